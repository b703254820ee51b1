// SPDX-License-Identifier: Apache-2.0

// Package driver does to a device what Linux's vmw_pvrdma does, in the same order and with the same waits: probe and
// removal, the command channel, doorbells of the kernel's page, the two event rings.
//
// It takes every offset and constant from the headers' layout, and may not use the device's codecs. What the driver
// does not check is not checked here either.
package driver

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"github.com/pvrdmad/pvrdmad/internal/testguest/vfio"
	"golang.org/x/sys/unix"
)

// commandTimeout is how long the driver waits for a command's response.
const commandTimeout = 10 * time.Second

// Options bend a probe.
type Options struct {
	// DriverVersion is what the driver is, 0 for the headers' PVRDMA_VERSION.
	DriverVersion uint32
	// DirtyDSR fills the capabilities with this byte before the device sees them.
	DirtyDSR byte
}

// Device is a bound device.
type Device struct {
	L    *layout.Layout
	RAM  *ram.RAM
	Func *vfio.Function
	// Version is the device's, DriverVersion the driver's.
	Version, DriverVersion uint32

	bar1, bar2 uint32
	dsrAddr    uint64
	dsr        layout.View
	slots      [2]uint64 // command, response
	rings      [2]deviceRing
	irqs       interrupts

	cmdMu   sync.Mutex // the driver's cmd_sema: one command at a time
	garbage byte

	events eventSink
	uars   uarTable
}

// deviceRing is one of the two rings that belong to the device and not to an object.
type deviceRing struct {
	pages []uint64
	dir   *PageDir
	ring  Ring
}

// Probe binds the device, in the driver's order.
func Probe(l *layout.Layout, r *ram.RAM, f *vfio.Function, o Options) (*Device, error) {
	d := &Device{
		L: l, RAM: r, Func: f, DriverVersion: o.DriverVersion,
		bar1: l.Const("PVRDMA_PCI_RESOURCE_REG"), bar2: l.Const("PVRDMA_PCI_RESOURCE_UAR"),
	}
	if d.DriverVersion == 0 {
		d.DriverVersion = l.Const("PVRDMA_VERSION")
	}
	d.events.init()
	if err := d.probe(o); err != nil {
		return nil, errors.Join(fmt.Errorf("probe: %w", err), d.stopListening(), d.irqs.close())
	}
	return d, nil
}

func (d *Device) probe(o Options) (err error) {
	if d.Func.Regions[d.bar1] == nil || d.Func.Regions[d.bar2] == nil {
		return fmt.Errorf("no register or doorbell BAR: %w", unix.ENODEV)
	}
	if d.Version, err = d.ReadReg("PVRDMA_REG_VERSION"); err != nil {
		return err
	}
	if err := d.allocateShared(o); err != nil {
		return err
	}
	if err := d.WriteDSR(d.dsrAddr); err != nil {
		return err
	}
	// No register is read here: the driver looks at memory next, and so the device must have written it by now.
	if err := d.checkCaps(); err != nil {
		return err
	}
	if err := d.irqs.open(d.Func); err != nil {
		return err
	}
	if n := d.Caps().Get32("max_uar"); n == 0 || n&(n-1) != 0 {
		return fmt.Errorf("%d doorbell pages are no power of two: %w", n, unix.EINVAL)
	}
	d.listen()
	return d.Activate()
}

// Activate unmasks the interrupts and switches the device on.
func (d *Device) Activate() error {
	if err := d.WriteReg("PVRDMA_REG_IMR", 0); err != nil {
		return err
	}
	return d.Control("PVRDMA_DEVICE_CTL_ACTIVATE")
}

// Control writes the CTL register and reads the verdict, as the driver does for ACTIVATE and UNQUIESCE.
func (d *Device) Control(op string) error {
	if err := d.WriteReg("PVRDMA_REG_CTL", d.L.Const(op)); err != nil {
		return err
	}
	v, err := d.ReadReg("PVRDMA_REG_ERR")
	if err != nil {
		return err
	}
	if v != 0 {
		return &CommandError{Name: op, Register: v, Guest: unix.EFAULT}
	}
	return nil
}

// allocateShared allocates the shared region, both slots and both rings.
func (d *Device) allocateShared(o Options) (err error) {
	if d.dsrAddr, err = d.RAM.Page(); err != nil {
		return err
	}
	for i := range d.slots {
		if d.slots[i], err = d.RAM.Page(); err != nil {
			return err
		}
	}
	for i := range d.rings {
		if err := d.allocateRing(&d.rings[i]); err != nil {
			return err
		}
	}
	const name = "pvrdma_device_shared_region"
	b, err := d.RAM.Bytes(d.dsrAddr, d.L.Size(name))
	if err != nil {
		return err
	}
	d.dsr = d.L.View(name, b)
	caps := d.dsr.Slice("caps")
	for i := range caps {
		caps[i] = o.DirtyDSR
	}
	d.fillDSR()
	return nil
}

func (d *Device) allocateRing(r *deviceRing) (err error) {
	if r.pages, err = d.RAM.Pages(int(d.L.Const("PVRDMA_NUM_RING_PAGES"))); err != nil {
		return err
	}
	if r.dir, err = NewPageDir(d.L, d.RAM, r.pages); err != nil {
		return err
	}
	state, err := d.RAM.Bytes(r.pages[0], ram.PageSize)
	if err != nil {
		return err
	}
	r.ring = NewRing(d.L, state, "rx")
	return nil
}

func (d *Device) fillDSR() {
	pages := uint64(d.L.Const("PVRDMA_NUM_RING_PAGES"))
	d.dsr.Set("driver_version", uint64(d.DriverVersion)).
		Set("gos_info.gos_bits", uint64(d.L.Const("PVRDMA_GOS_BITS_64"))).
		Set("gos_info.gos_type", uint64(d.L.Const("PVRDMA_GOS_TYPE_LINUX"))).
		Set("gos_info.gos_ver", 1).
		Set("cmd_slot_dma", d.slots[0]).Set("resp_slot_dma", d.slots[1]).
		Set("async_ring_pages.num_pages", pages).Set("async_ring_pages.pdir_dma", d.rings[asyncRing].dir.Addr()).
		Set("cq_ring_pages.num_pages", pages).Set("cq_ring_pages.pdir_dma", d.rings[cqRing].dir.Addr())
	if d.Effective() < d.L.Const("PVRDMA_PPN64_VERSION") {
		d.dsr.Set("uar_pfn", d.UARPFN(0))
	} else {
		d.dsr.Set("uar_pfn64", d.UARPFN(0))
	}
}

// checkCaps is the driver's acceptance test.
func (d *Device) checkCaps() error {
	c := d.Caps()
	mode, types := c.Get32("mode"), c.Get32("gid_types")
	v1, v2 := d.L.Const("PVRDMA_GID_TYPE_FLAG_ROCE_V1"), d.L.Const("PVRDMA_GID_TYPE_FLAG_ROCE_V2")
	ok := mode == d.L.Const("PVRDMA_DEVICE_MODE_ROCE") &&
		(types == v1 || types == v2 && d.Version >= d.L.Const("PVRDMA_ROCEV2_VERSION"))
	if !ok {
		return fmt.Errorf("driver needs RoCE v1 or v2 support: mode %d, GID types %#x, version %d: %w",
			mode, types, d.Version, unix.EFAULT)
	}
	return nil
}

// Effective is the version that device and driver have in common.
func (d *Device) Effective() uint32 { return min(d.Version, d.DriverVersion) }

// DSR is the shared region; DSRAddr is where the guest keeps it.
func (d *Device) DSR() layout.View { return d.dsr }

// DSRAddr is the guest address of the shared region.
func (d *Device) DSRAddr() uint64 { return d.dsrAddr }

// Caps are the capabilities as they stand in the shared region now.
func (d *Device) Caps() layout.View { return d.L.View("pvrdma_device_caps", d.dsr.Slice("caps")) }

// UARPFN is the page frame of a doorbell page.
func (d *Device) UARPFN(page int) uint64 { return d.Func.Base[d.bar2]/ram.PageSize + uint64(page) }
