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

func (d *Device) createQP(req *Request, resp *Response) error {
	var r abi.CmdCreateQPReq
	if err := r.Decode(req[:]); err != nil {
		return err
	}
	q, err := d.newQueuePair(&r)
	if err != nil {
		return err
	}
	handle, qpn, err := d.freeQPHandle(r.QPType)
	if err != nil {
		return err
	}
	if q.pages, err = d.pinDirectory(r.PDirDMA, uint32(r.TotalChunks), guestmem.ProtRead|guestmem.ProtWrite); err != nil {
		return fmt.Errorf("queue pair: %w", err)
	}
	init := hostverbs.QPInitAttr{
		QPN: qpn, SendCQ: q.sendCQ.engine, RecvCQ: q.recvCQ.engine, Type: hostverbs.QPType(r.QPType), SQSigAll: r.SQSigAll != 0,
		Cap: hostverbs.QPCap{
			MaxSendWR: r.MaxSendWR, MaxRecvWR: r.MaxRecvWR, MaxSendSGE: r.MaxSendSGE, MaxRecvSGE: r.MaxRecvSGE,
		},
	}
	if q.srq != nil {
		init.SRQ = q.srq.engine
	}
	if q.engine, err = d.engine.CreateQP(q.pd.engine, &init, q); err != nil {
		q.pages.Release()
		return err
	}
	q.ahead, _ = q.engine.(prefetcher)
	d.worker.Do(func() {
		q.handle = handle
		d.qps.put(handle, q)
		q.ctx.addQP(q)
		q.sendCQ.users++
		q.recvCQ.users++
		if q.srq != nil {
			q.srq.users++
		}
		d.pinned += uint64(r.TotalChunks)
	})
	d.answerCreateQP(q, &r, resp)
	return nil
}

// newQueuePair checks a request for a queue pair. The guest kernel checks nothing of what its users ask for.
func (d *Device) newQueuePair(r *abi.CmdCreateQPReq) (*queuePair, error) {
	pd := d.pds.get(r.PDHandle)
	if pd == nil {
		return nil, noSuch("protection domain", r.PDHandle)
	}
	send, recv := d.cqs.get(r.SendCQHandle), d.cqs.get(r.RecvCQHandle)
	if send == nil || send.ctx != pd.ctx {
		return nil, noSuch("completion queue of the context", r.SendCQHandle)
	}
	if recv == nil || recv.ctx != pd.ctx {
		return nil, noSuch("completion queue of the context", r.RecvCQHandle)
	}
	srq, err := d.srqOf(r, pd)
	if err != nil {
		return nil, err
	}
	switch {
	case r.QPType == abi.QPTypeRC, r.QPType == abi.QPTypeUD:
	case r.QPType == abi.QPTypeGSI && pd.ctx == d.kernel:
	default:
		return nil, fmt.Errorf("queue pair of type %v: %w", r.QPType, unix.EOPNOTSUPP)
	}
	if r.MaxInlineData != 0 {
		return nil, fmt.Errorf("queue pair with %d bytes of inline data, none are offered: %w", r.MaxInlineData,
			unix.EINVAL)
	}
	q := &queuePair{
		dev: d, ctx: pd.ctx, pd: pd, typ: r.QPType, sendCQ: send, recvCQ: recv, srq: srq,
		parked: true,
	}
	d.worker.Do(func() { err = q.lacks() })
	if err != nil {
		return nil, err
	}
	return q, d.layOutQP(q, r)
}

// srqOf returns the shared receive queue that a request names, nil if it names none. What it says of a receive queue means
// nothing then: see ibv_create_qp(3).
func (d *Device) srqOf(r *abi.CmdCreateQPReq, pd *protectionDomain) (*sharedReceiveQueue, error) {
	if r.IsSRQ == 0 {
		return nil, nil
	}
	s := d.srqs.get(r.SRQHandle)
	if s == nil || s.ctx != pd.ctx {
		return nil, noSuch("shared receive queue of the context", r.SRQHandle)
	}
	r.MaxRecvWR, r.MaxRecvSGE = 0, 0
	return s, nil
}

// lacks says what the queue pair cannot work without and has lost: its completions or its receives would go nowhere, and
// nobody would be told once more. Runs inside Worker.Do.
func (q *queuePair) lacks() error {
	for _, c := range []*completionQueue{q.sendCQ, q.recvCQ} {
		if c.pages.Revoked() {
			return c.revoked()
		}
		if c.dead {
			return fmt.Errorf("completion queue %d has failed: %w", c.handle, unix.EIO)
		}
	}
	if s := q.srq; s != nil && s.dead {
		return fmt.Errorf("shared receive queue %d has failed: %w", s.handle, unix.EIO)
	}
	return nil
}

// layOutQP finds the queues of a queue pair in its pages: one of indices, those for sends, those for receives.
func (d *Device) layOutQP(q *queuePair, r *abi.CmdCreateQPReq) error {
	sendStride, ok := abi.SendWQEStride(r.MaxSendSGE)
	if !ok {
		return fmt.Errorf("queue pair with %d send elements: %w", r.MaxSendSGE, unix.EINVAL)
	}
	if err := d.layOut(&q.sq, "send", r.MaxSendWR, r.MaxSendSGE, sendStride); err != nil {
		return err
	}
	sendPages, recvPages := abi.WQEPages(r.MaxSendWR, sendStride), uint64(0)
	if q.srq == nil {
		stride, ok := abi.RecvWQEStride(r.MaxRecvSGE)
		if !ok {
			return fmt.Errorf("queue pair with %d receive elements: %w", r.MaxRecvSGE, unix.EINVAL)
		}
		if err := d.layOut(&q.rq, "receive", r.MaxRecvWR, r.MaxRecvSGE, stride); err != nil {
			return err
		}
		recvPages = abi.WQEPages(r.MaxRecvWR, stride)
	}
	if uint64(r.SendChunks) < sendPages || uint64(r.TotalChunks) < 1+uint64(r.SendChunks)+recvPages {
		return fmt.Errorf("queue pair in %d pages, %d of them for sends, want 1+%d+%d: %w", r.TotalChunks,
			r.SendChunks, sendPages, recvPages, unix.EINVAL)
	}
	q.sq.base, q.sq.prodAt, q.sq.consAt = abi.PageSize, txProdTail, txConsHead
	q.rq.base, q.rq.prodAt, q.rq.consAt = abi.PageSize*(1+uint64(r.SendChunks)), rxProdTail, rxConsHead
	q.pinned = uint32(r.TotalChunks)
	return nil
}

func (d *Device) layOut(w *workQueue, name string, maxWR, maxSGE, stride uint32) error {
	ring, err := ringbuf.NewRing(maxWR)
	if err != nil || maxWR > d.caps.MaxQPWR {
		return fmt.Errorf("%s queue of %d requests, want a power of two up to %d: %w", name, maxWR, d.caps.MaxQPWR,
			unix.EINVAL)
	}
	if maxSGE > d.caps.MaxSGE {
		return fmt.Errorf("%s queue with %d elements, the limit is %d: %w", name, maxSGE, d.caps.MaxSGE, unix.EINVAL)
	}
	w.ring, w.maxSGE, w.stride = ring, maxSGE, uint64(stride)
	return nil
}

func (d *Device) destroyQP(req *Request, _ *Response) error {
	var r abi.CmdDestroyQPReq
	if err := r.Decode(req[:]); err != nil {
		return err
	}
	q := d.qps.get(r.QPHandle)
	if q == nil {
		return noSuch("queue pair", r.QPHandle)
	}
	return d.removeQP(q)
}

func (d *Device) removeQP(q *queuePair) error {
	// The table lets go of it first: no doorbell reaches it any more.
	d.worker.Do(func() {
		d.qps.remove(q.handle)
		q.ctx.dropQP(q)
		q.sendCQ.users--
		q.recvCQ.users--
		if q.srq != nil {
			q.srq.users--
		}
		q.dead, q.failing = true, false
		d.pinned -= uint64(q.pinned)
	})
	err := q.engine.Destroy()
	d.worker.Do(q.release)
	if err != nil {
		return fmt.Errorf("queue pair %d: %w", q.handle, err)
	}
	d.endOrphan(q.sendCQ)
	if q.recvCQ != q.sendCQ {
		d.endOrphan(q.recvCQ)
	}
	if s := q.srq; s != nil && d.srqs.get(s.handle) != s {
		_ = s.engine.Destroy()
	}
	return nil
}

// endOrphan ends the engine's side of a completion queue that was destroyed while a queue pair used it. The engine
// refuses while another one still does.
func (d *Device) endOrphan(c *completionQueue) {
	if d.cqs.get(c.handle) != c {
		_ = c.engine.Destroy()
	}
}
