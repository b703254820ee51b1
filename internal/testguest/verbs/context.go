// SPDX-License-Identifier: Apache-2.0

// Package verbs is what programs of a guest use: the objects of verbs as rdma-core's vmw_pvrdma provider makes them in
// user space and as the guest kernel makes them for itself. Work requests and completions pass through shared memory
// and doorbell pages; what must go through the kernel goes through package driver.
//
// It takes every offset and constant from the headers' layout, and may not use the device's codecs.
package verbs

import (
	"errors"
	"fmt"
	"sync"

	"github.com/pvrdmad/pvrdmad/internal/testguest/driver"
	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"golang.org/x/sys/unix"
)

// handleBits is the part of a handle with which the provider indexes its table of queue pairs.
const handleBits = 0xffff

// Context is an open device: a program's, or the guest kernel's own.
type Context struct {
	Dev *driver.Device
	// Handle is the device's name of the context, 0 for the kernel's; Page its doorbell page.
	Handle uint32
	Page   int

	l   *layout.Layout
	f   fields
	uar []byte // the doorbell page if it is mapped

	mu  sync.Mutex
	qps map[uint64]*QP // the provider's qp_tbl
}

// Kernel returns the guest kernel's own context: doorbell page 0.
func Kernel(d *driver.Device) *Context { return newContext(d, 0, 0) }

// Open makes a context for a program, with a doorbell page of its own.
func Open(d *driver.Device) (*Context, error) {
	page, err := d.AllocUAR()
	if err != nil {
		return nil, err
	}
	handle, err := d.CreateUC(d.UARPFN(page))
	if err != nil {
		d.FreeUAR(page)
		return nil, fmt.Errorf("open a context: %w", err)
	}
	return newContext(d, handle, page), nil
}

func newContext(d *driver.Device, handle uint32, page int) *Context {
	return &Context{
		Dev: d, Handle: handle, Page: page, l: d.L, f: newFields(d.L), uar: d.DoorbellPage(page),
		qps: map[uint64]*QP{},
	}
}

// IsKernel reports whether this is the guest kernel's context.
func (c *Context) IsKernel() bool { return c.Page == 0 }

// Close ends a program's context.
func (c *Context) Close() error {
	if c.IsKernel() {
		return nil
	}
	err := c.Dev.DestroyUC(c.Handle)
	c.Dev.FreeUAR(c.Page)
	return err
}

// Ring writes a doorbell: a store into the mapped page, or a message where it is not mapped.
func (c *Context) Ring(offset, value uint32) error {
	if c.uar != nil {
		ram.Store32(c.uar, int(offset), value)
		return nil
	}
	return c.Dev.Doorbell(c.Page, offset, value)
}

// qp finds a queue pair as the provider does, by the low bits of a completion's handle.
func (c *Context) qp(handle uint64) *QP {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.qps[handle&handleBits]
}

func (c *Context) setQP(handle uint32, q *QP) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q == nil {
		delete(c.qps, uint64(handle)&handleBits)
		return
	}
	c.qps[uint64(handle)&handleBits] = q
}

// object is memory that a queue shares with the device.
type object struct {
	bufs []*ram.Buffer
	dir  *driver.PageDir
}

// newObject allocates buffers of some sizes in bytes and a directory that names their pages in this order.
func (c *Context) newObject(sizes ...int) (*object, error) {
	o := &object{}
	var pages []uint64
	for _, size := range sizes {
		if size == 0 {
			continue
		}
		b, err := c.Dev.RAM.Buffer(size)
		if err != nil {
			return nil, errors.Join(err, o.free())
		}
		o.bufs = append(o.bufs, b)
		pages = append(pages, b.Pages()...)
	}
	var err error
	if o.dir, err = driver.NewPageDir(c.l, c.Dev.RAM, pages); err != nil {
		return nil, errors.Join(err, o.free())
	}
	return o, nil
}

// pages is how many pages the object has.
func (o *object) pages() int {
	n := 0
	for _, b := range o.bufs {
		n += len(b.Pages())
	}
	return n
}

func (o *object) free() error {
	var err error
	for _, b := range o.bufs {
		err = errors.Join(err, b.Free())
	}
	if o.dir != nil {
		o.dir.Free()
	}
	o.bufs, o.dir = nil, nil
	return err
}

// roundUp is the next power of two, at least 1.
func roundUp(n uint32) uint32 {
	p := uint32(1)
	for p < n {
		p <<= 1
	}
	return p
}

// PD is a protection domain.
type PD struct {
	Ctx    *Context
	Handle uint32
	// DMA is the registration of all guest memory that every protection domain of the kernel has.
	DMA driver.MR
}

// AllocPD makes a protection domain. The kernel's come with a registration of all memory.
func (c *Context) AllocPD() (*PD, error) {
	h, err := c.Dev.CreatePD(c.Handle)
	if err != nil {
		return nil, err
	}
	pd := &PD{Ctx: c, Handle: h}
	if !c.IsKernel() {
		return pd, nil
	}
	pd.DMA, err = c.Dev.CreateMR(driver.MRParams{
		PD: h, Access: c.l.Const("PVRDMA_ACCESS_LOCAL_WRITE"), Flags: c.l.Const("PVRDMA_MR_FLAG_DMA"),
	})
	if err != nil {
		return nil, errors.Join(err, c.Dev.DestroyPD(h))
	}
	return pd, nil
}

// Free ends the protection domain.
func (p *PD) Free() error {
	var err error
	if p.Ctx.IsKernel() {
		err = p.Ctx.Dev.DestroyMR(p.DMA.Handle)
	}
	return errors.Join(err, p.Ctx.Dev.DestroyPD(p.Handle))
}

// errInvalid is what the provider returns for a work request that it refuses.
func errInvalid(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, unix.EINVAL)...)
}
