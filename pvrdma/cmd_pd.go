// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"errors"
	"fmt"
	"slices"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// protectionDomain is a PD of the guest.
type protectionDomain struct {
	handle uint32
	ctx    *userContext
	engine hostverbs.PD
}

// memoryRegion is an MR of the guest.
type memoryRegion struct {
	handle uint32
	pd     *protectionDomain
	engine hostverbs.MR
	pages  *guestmem.Pages // nil for the region that covers all memory
	npages uint32
	dev    *Device // of a region for fast registration, which the worker gives its pages
}

func (m *memoryRegion) release() {
	if m.pages != nil {
		m.pages.Release()
	}
}

// context returns the user of the device that a handle names, 0 being the guest kernel.
func (d *Device) context(handle uint32) (*userContext, error) {
	if handle == 0 {
		return d.kernel, nil
	}
	if c := d.contexts.get(handle); c != nil {
		return c, nil
	}
	return nil, noSuch("context", handle)
}

// createUC takes a doorbell page that is in use from the context that had it. The guest kernel hands the pages out and
// knows nothing of that context: a signal made it give up on the command that made it, which then succeeded.
func (d *Device) createUC(req *Request, resp *Response) error {
	var q abi.CmdCreateUCReq
	if err := q.Decode(req[:]); err != nil {
		return err
	}
	pfn := q.PFNAt(d.version)
	page := pfn - d.uarPFN
	if page == 0 || page >= uint64(d.cfg.MaxUAR) {
		return fmt.Errorf("doorbell page at frame %#x is none of %d from frame %#x on that contexts can have: %w", pfn,
			d.cfg.MaxUAR, d.uarPFN, unix.EINVAL)
	}
	var forgotten *userContext
	d.contexts.each(func(c *userContext) {
		if uint64(c.page) == page {
			forgotten = c
		}
	})
	if forgotten != nil {
		if err := d.removeContext(forgotten); err != nil {
			return fmt.Errorf("context %d, whose doorbell page %d is wanted: %w", forgotten.handle, page, err)
		}
	}
	c := &userContext{page: uint32(page)}
	d.worker.Do(func() {
		c.handle = d.contexts.add(c)
		if d.doorbells != nil {
			d.doorbells.Zero(int(page))
			d.polled = append(slices.Clone(d.polled), c)
			d.worker.retune()
		}
	})
	r := abi.CmdCreateUCResp{Hdr: ack(abi.CmdCreateUC), CtxHandle: c.handle}
	r.Encode(resp[:])
	return nil
}

func (d *Device) destroyUC(req *Request, _ *Response) error {
	var q abi.CmdDestroyUCReq
	if err := q.Decode(req[:]); err != nil {
		return err
	}
	c := d.contexts.get(q.CtxHandle)
	if c == nil {
		return noSuch("context", q.CtxHandle)
	}
	return d.removeContext(c)
}

// removeContext destroys what the process left behind, too: the guest kernel may have given up on a command that then
// succeeded. It goes on when the engine refuses something: the guest kernel does not look at the answer, and gives the
// doorbell page to the next process.
func (d *Device) removeContext(c *userContext) error {
	d.worker.Do(func() {
		d.polled = without(d.polled, c)
		d.worker.retune()
	})
	err := d.destroyAll(c)
	d.worker.Do(func() {
		d.contexts.remove(c.handle)
		if d.doorbells != nil {
			d.doorbells.Zero(int(c.page))
		}
	})
	return err
}

// owned is an object that belongs to a context.
type owned interface{ owner() *userContext }

func (p *protectionDomain) owner() *userContext { return p.ctx }

func (m *memoryRegion) owner() *userContext { return m.pd.ctx }

// ownedBy returns the objects of a table that belong to a context.
func ownedBy[T any, P interface {
	*T
	owned
}](c *userContext, slots []P,
) (found []P) {
	for _, x := range slots {
		if x != nil && x.owner() == c {
			found = append(found, x)
		}
	}
	return found
}

// destroyBatch is how many objects are destroyed in one visit of the worker. A process may have tens of thousands, its
// guest waits for the end of all, and the other guests for the end of a batch.
const destroyBatch = 64

// destroyAll destroys all objects of a context. Another worker may be at work on their memory: it is waited for once, outside
// Worker.Do, since it may be waiting for this one. Only then the memory is let go of.
func (d *Device) destroyAll(c *userContext) (err error) {
	var gone []*memoryRegion
	deregister := func(m *memoryRegion) error {
		if err := m.engine.Dereg(); err != nil {
			return fmt.Errorf("memory region %d: %w", m.handle, err)
		}
		d.mrs.remove(m.handle)
		d.pinned -= uint64(m.npages)
		gone = append(gone, m)
		return nil
	}
	d.engine.Together(func() {
		err = errors.Join(
			inBatches(d, c.qps, d.removeQP),
			inBatches(d, c.srqs, d.removeSRQ),
			inBatches(d, c.cqs, d.removeCQ),
			inBatches(d, ownedBy(c, d.mrs.slots), deregister),
			inBatches(d, ownedBy(c, d.pds.slots), d.removePD),
		)
	})
	for _, m := range gone {
		m.release()
	}
	return err
}

// inBatches destroys many objects, and goes on when the engine refuses one.
func inBatches[T any](d *Device, objects []*T, destroy func(*T) error) error {
	var errs []error
	for batch := range slices.Chunk(slices.Clone(objects), destroyBatch) {
		d.worker.Do(func() {
			for _, x := range batch {
				errs = append(errs, destroy(x))
			}
		})
	}
	return errors.Join(errs...)
}

func (d *Device) createPD(req *Request, resp *Response) error {
	var q abi.CmdCreatePDReq
	if err := q.Decode(req[:]); err != nil {
		return err
	}
	c, err := d.context(q.CtxHandle)
	if err != nil {
		return err
	}
	if err := d.pds.full(); err != nil {
		return fmt.Errorf("%d protection domains: %w", d.pds.live, err)
	}
	engine, err := d.engine.AllocPD()
	if err != nil {
		return err
	}
	p := &protectionDomain{ctx: c, engine: engine}
	d.worker.Do(func() { p.handle = d.pds.add(p) })
	r := abi.CmdCreatePDResp{Hdr: ack(abi.CmdCreatePD), PDHandle: p.handle}
	r.Encode(resp[:])
	return nil
}

func (d *Device) destroyPD(req *Request, _ *Response) error {
	var q abi.CmdDestroyPDReq
	if err := q.Decode(req[:]); err != nil {
		return err
	}
	p := d.pds.get(q.PDHandle)
	if p == nil {
		return noSuch("protection domain", q.PDHandle)
	}
	return d.removePD(p)
}

func (d *Device) removePD(p *protectionDomain) error {
	if err := p.engine.Dealloc(); err != nil {
		return fmt.Errorf("protection domain %d: %w", p.handle, err)
	}
	d.worker.Do(func() { d.pds.remove(p.handle) })
	return nil
}
