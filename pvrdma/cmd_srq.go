// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"fmt"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"github.com/pvrdmad/pvrdmad/ringbuf"
	"golang.org/x/sys/unix"
)

// srqTypeBasic is IB_SRQT_BASIC (include/rdma/ib_verbs.h), the only type that pvrdma's driver passes on.
const srqTypeBasic = 0

// createSRQ makes a shared receive queue. The limit that the guest may name is none yet: see ibv_create_srq(3).
func (d *Device) createSRQ(req *Request, resp *Response) error {
	var r abi.CmdCreateSRQReq
	if err := r.Decode(req[:]); err != nil {
		return err
	}
	if d.caps.MaxSRQ == 0 {
		return fmt.Errorf("the engine has no shared receive queues: %w", unix.EOPNOTSUPP)
	}
	pd := d.pds.get(r.PDHandle)
	if pd == nil {
		return noSuch("protection domain", r.PDHandle)
	}
	if err := d.srqs.full(); err != nil {
		return fmt.Errorf("%d shared receive queues: %w", d.srqs.live, err)
	}
	s := &sharedReceiveQueue{dev: d, ctx: pd.ctx, pd: pd}
	need, err := d.layOutSRQ(s, &r)
	if err != nil {
		return err
	}
	if s.pages, err = d.pinDirectory(r.PDirDMA, need, guestmem.ProtRead|guestmem.ProtWrite); err != nil {
		return fmt.Errorf("shared receive queue: %w", err)
	}
	attr := hostverbs.SRQAttr{MaxWR: r.Attrs.MaxWR, MaxSGE: r.Attrs.MaxSGE}
	if s.engine, err = d.engine.CreateSRQ(pd.engine, attr, s); err != nil {
		s.pages.Release()
		return err
	}
	d.worker.Do(func() {
		s.handle = d.srqs.add(s)
		s.ctx.srqs = enlist(s.ctx.srqs, s)
		d.pinned += uint64(need)
	})
	a := abi.CmdCreateSRQResp{Hdr: ack(abi.CmdCreateSRQ), SRQN: s.handle}
	a.Encode(resp[:])
	return nil
}

// layOutSRQ checks what a create asks for and returns how many pages it needs: the guest's library allocates twice as many as
// that for the requests.
func (d *Device) layOutSRQ(s *sharedReceiveQueue, r *abi.CmdCreateSRQReq) (need uint32, err error) {
	n, sge := r.Attrs.MaxWR, r.Attrs.MaxSGE
	stride, ok := abi.RecvWQEStride(sge)
	ring, bad := ringbuf.NewRing(n)
	switch {
	case r.SRQType != srqTypeBasic:
		return 0, fmt.Errorf("shared receive queue of type %d: %w", r.SRQType, unix.EOPNOTSUPP)
	case !ok || sge > d.caps.MaxSRQSGE:
		return 0, fmt.Errorf("shared receive queue with %d elements, the limit is %d: %w", sge, d.caps.MaxSRQSGE, unix.EINVAL)
	case bad != nil || n > d.caps.MaxSRQWR:
		return 0, fmt.Errorf("shared receive queue of %d requests, want a power of two up to %d: %w", n, d.caps.MaxSRQWR,
			unix.EINVAL)
	}
	pages := abi.SRQPages(n, stride)
	if uint64(r.NChunks) < pages || r.NChunks > abi.MaxPages {
		return 0, fmt.Errorf("shared receive queue of %d requests in %d pages, want %d: %w", n, r.NChunks, pages, unix.EINVAL)
	}
	s.rq = workQueue{
		ring: ring, maxSGE: sge, base: abi.PageSize, stride: uint64(stride), prodAt: rxProdTail, consAt: rxConsHead,
	}
	return uint32(pages), nil
}

func (d *Device) modifySRQ(req *Request, _ *Response) error {
	var r abi.CmdModifySRQReq
	if err := r.Decode(req[:]); err != nil {
		return err
	}
	s := d.srqs.get(r.SRQHandle)
	if s == nil {
		return noSuch("shared receive queue", r.SRQHandle)
	}
	attr := hostverbs.SRQAttr{MaxWR: r.Attrs.MaxWR, Limit: r.Attrs.SRQLimit}
	if err := s.engine.Modify(&attr, hostverbs.SRQAttrMask(r.AttrMask)); err != nil {
		return fmt.Errorf("shared receive queue %d: %w", s.handle, err)
	}
	return nil
}

func (d *Device) querySRQ(req *Request, resp *Response) error {
	var r abi.CmdQuerySRQReq
	if err := r.Decode(req[:]); err != nil {
		return err
	}
	s := d.srqs.get(r.SRQHandle)
	if s == nil {
		return noSuch("shared receive queue", r.SRQHandle)
	}
	attr, err := s.engine.Query()
	if err != nil {
		return fmt.Errorf("shared receive queue %d: %w", s.handle, err)
	}
	a := abi.CmdQuerySRQResp{
		Hdr:   ack(abi.CmdQuerySRQ),
		Attrs: abi.SRQAttr{MaxWR: attr.MaxWR, MaxSGE: attr.MaxSGE, SRQLimit: attr.Limit},
	}
	a.Encode(resp[:])
	return nil
}

func (d *Device) destroySRQ(req *Request, _ *Response) error {
	var r abi.CmdDestroySRQReq
	if err := r.Decode(req[:]); err != nil {
		return err
	}
	s := d.srqs.get(r.SRQHandle)
	if s == nil {
		return noSuch("shared receive queue", r.SRQHandle)
	}
	return d.removeSRQ(s)
}

// removeSRQ destroys a shared receive queue. As with a completion queue, the guest frees its memory whatever we say: queue
// pairs that still use it, if the guest lost their destruction, go to the error state.
func (d *Device) removeSRQ(s *sharedReceiveQueue) error {
	used := s.users != 0
	d.worker.Do(func() {
		d.srqs.remove(s.handle)
		s.ctx.srqs = delist(s.ctx.srqs, s)
		d.pinned -= s.pages.Len() / abi.PageSize
		s.release()
		if used {
			d.failUsers()
		}
	})
	if used {
		return nil // the last queue pair that uses it ends the engine's side
	}
	return s.engine.Destroy()
}
