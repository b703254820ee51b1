// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"fmt"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"github.com/pvrdmad/pvrdmad/ringbuf"
	"golang.org/x/sys/unix"
)

func (d *Device) createCQ(req *Request, resp *Response) error {
	var q abi.CmdCreateCQReq
	if err := q.Decode(req[:]); err != nil {
		return err
	}
	ctx, err := d.context(q.CtxHandle)
	if err != nil {
		return err
	}
	if err := d.cqs.full(); err != nil {
		return fmt.Errorf("%d completion queues: %w", d.cqs.live, err)
	}
	ring, err := ringbuf.NewRing(q.CQE)
	if err != nil || q.CQE > d.caps.MaxCQE {
		return fmt.Errorf("completion queue of %d entries, want a power of two up to %d: %w", q.CQE, d.caps.MaxCQE,
			unix.EINVAL)
	}
	need := abi.CQPages(q.CQE)
	if uint64(q.NChunks) < need || q.NChunks > abi.MaxPages {
		return fmt.Errorf("completion queue of %d entries in %d pages, want %d: %w", q.CQE, q.NChunks, need, unix.EINVAL)
	}
	c := &completionQueue{dev: d, ctx: ctx, ring: ring}
	if c.pages, err = d.pinDirectory(q.PDirDMA, uint32(need), guestmem.ProtRead|guestmem.ProtWrite); err != nil {
		return fmt.Errorf("completion queue: %w", err)
	}
	if c.engine, err = d.engine.CreateCQ(int(q.CQE)); err != nil {
		c.pages.Release()
		return err
	}
	d.worker.Do(func() {
		c.handle = d.cqs.add(c)
		ctx.addCQ(c)
		d.pinned += need
	})
	r := abi.CmdCreateCQResp{Hdr: ack(abi.CmdCreateCQ), CQHandle: c.handle, CQE: q.CQE}
	r.Encode(resp[:])
	return nil
}

func (d *Device) destroyCQ(req *Request, _ *Response) error {
	var q abi.CmdDestroyCQReq
	if err := q.Decode(req[:]); err != nil {
		return err
	}
	c := d.cqs.get(q.CQHandle)
	if c == nil {
		return noSuch("completion queue", q.CQHandle)
	}
	return d.removeCQ(c)
}

// removeCQ destroys a completion queue. Queue pairs may still use it, if the guest lost their destruction; it frees the
// queue's memory whatever we say. They go to the error state, and their completions nowhere.
func (d *Device) removeCQ(c *completionQueue) error {
	used := c.users != 0
	d.worker.Do(func() {
		d.cqs.remove(c.handle)
		c.ctx.dropCQ(c)
		d.pinned -= abi.CQPages(c.ring.N)
		c.release()
		if used {
			d.failUsers()
		}
	})
	if used {
		return nil // the last queue pair that uses it ends the engine's side
	}
	return c.engine.Destroy()
}
