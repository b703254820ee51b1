// SPDX-License-Identifier: Apache-2.0

package inproc

import (
	"encoding/binary"

	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/internal/testguest/driver"
	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"github.com/pvrdmad/pvrdmad/pvrdma"
	"github.com/pvrdmad/pvrdmad/pvrdma/pcifn"
	"github.com/pvrdmad/pvrdmad/vfiouser"
)

const (
	// UARPFN is the page frame of doorbell page 0 in every guest, MaxUAR the number of its doorbell pages.
	UARPFN = 0xfd000
	MaxUAR = 8
	// ROMAddr is where a guest has memory that the device may only read.
	ROMAddr = 16 << 30
	// ROMSize is that memory's size in bytes.
	ROMSize = 16 * ram.PageSize

	pciCommand       = 4
	pciCommandMaster = 4
)

// Options say what a guest is like.
type Options struct {
	Name string
	// Trap makes every doorbell a message.
	Trap bool
	// Memory is its size in bytes; 0 is 1 MiB.
	Memory uint64
	Limits hostverbs.Limits
	GIDs   []hostverbs.GID
}

// Guest is a guest that is attached to its function. Its methods are for one goroutine.
type Guest struct {
	*Host
	// Worker serves the guest.
	Worker   *pvrdma.Worker
	RAM, ROM *ram.RAM
	Fn       *pcifn.Function
	// Device is what the client of the function's socket talks to.
	Device vfiouser.Device
	Seen   *Recorder
	// DSR is the shared region in guest memory, at DSRAddr; the slots are where it says.
	DSR               layout.View
	DSRAddr           uint64
	CmdSlot, RespSlot uint64
	Regions           []vfiouser.Region

	o        Options
	attached bool
}

// Guest attaches a guest with two pieces of memory and a read-only one, and makes its function a bus master.
func (h *Host) Guest(o Options) *Guest {
	h.T.Helper()
	if o.Memory == 0 {
		o.Memory = 1 << 20
	}
	g := &Guest{Host: h, o: o, Seen: &Recorder{}}
	g.RAM, g.ROM = h.memory(o.Memory), h.memory(2*ROMSize)
	mode := pcifn.Poll
	if o.Trap {
		mode = pcifn.Trap
	}
	g.Worker = h.Workers[len(h.guests)%len(h.Workers)]
	mac := [6]byte{0x52, 0x54, 0, 0, 0, byte(len(h.guests) + 1)}
	var err error
	if g.Fn, err = pcifn.New(pcifn.Config{
		Device: pvrdma.Config{
			Name: o.Name, MAC: mac, Version: DeviceVersion(), GIDType: GIDType(), MaxUAR: MaxUAR, Limits: o.Limits, GIDs: o.GIDs,
		},
		Doorbells: mode, Worker: g.Worker, Domain: h.Domain, Observer: g.Seen,
	}); err != nil {
		h.T.Fatal(err)
	}
	g.Attach()
	h.guests = append(h.guests, g)
	return g
}

func (h *Host) memory(size uint64) *ram.RAM {
	h.T.Helper()
	r, err := ram.New(ram.Options{Size: size})
	if err != nil {
		h.T.Fatal(err)
	}
	return r
}

// Attach connects the guest's client to the function.
func (g *Guest) Attach() {
	g.T.Helper()
	var err error
	if g.Device, err = g.Fn.Open(&vfiouser.Session{}); err != nil {
		g.T.Fatal(err)
	}
	g.attached = true
	g.Regions = g.Device.Regions()
	maps := []vfiouser.DMAMap{{Addr: ROMAddr, Size: ROMSize, FD: g.ROM.FD(), Flags: vfiouser.DMARead}}
	for _, r := range g.RAM.Regions() {
		maps = append(maps, vfiouser.DMAMap{
			Addr: r.Addr, Size: r.Size, FD: g.RAM.FD(), Offset: r.Offset, Flags: vfiouser.DMARead | vfiouser.DMAWrite,
		})
	}
	for _, m := range maps {
		if err := g.Device.MapDMA(m); err != nil {
			g.T.Fatal(err)
		}
	}
	g.BusMaster(true)
}

// Detach ends the client's connection. The guest's memory stays.
func (g *Guest) Detach() {
	if g.attached {
		g.attached = false
		g.Device.Close()
	}
}

// Close ends the guest.
func (g *Guest) Close() {
	g.T.Helper()
	g.Detach()
	for _, r := range []*ram.RAM{g.RAM, g.ROM} {
		if r.FD() < 0 {
			continue
		}
		if err := r.Close(); err != nil {
			g.T.Errorf("free guest memory: %v", err)
		}
	}
}

// BusMaster lets the function reach memory, or not.
func (g *Guest) BusMaster(on bool) {
	v := uint16(0)
	if on {
		v = pciCommandMaster
	}
	g.Store(vfiouser.RegionConfig, pciCommand, binary.LittleEndian.AppendUint16(nil, v))
}

// Store writes to a region as the client of a socket does: the write, its answer, and what follows the answer.
func (g *Guest) Store(index vfiouser.RegionIndex, off uint64, p []byte) {
	g.T.Helper()
	if err := g.Device.WriteRegion(index, off, p); err != nil {
		g.T.Errorf("write %d bytes at %#x of region %d: %v", len(p), off, index, err)
		return
	}
	g.Device.Replied()
}

// Load reads from a region.
func (g *Guest) Load(index vfiouser.RegionIndex, off uint64, n int) []byte {
	g.T.Helper()
	p := make([]byte, n)
	if err := g.Device.ReadRegion(index, off, p); err != nil {
		g.T.Errorf("read %d bytes at %#x of region %d: %v", n, off, index, err)
	}
	return p
}

// SetReg writes a register by its name in the headers.
func (g *Guest) SetReg(name string, v uint32) {
	g.T.Helper()
	g.Store(vfiouser.RegionBAR1, uint64(g.Const("PVRDMA_REG_"+name)), binary.LittleEndian.AppendUint32(nil, v))
}

// Reg reads a register by its name in the headers.
func (g *Guest) Reg(name string) uint32 {
	g.T.Helper()
	return binary.LittleEndian.Uint32(g.Load(vfiouser.RegionBAR1, uint64(g.Const("PVRDMA_REG_"+name)), 4))
}

// Control writes CTL and returns ERR.
func (g *Guest) Control(op string) uint32 {
	g.T.Helper()
	g.SetReg("CTL", g.Const("PVRDMA_DEVICE_CTL_"+op))
	return g.Reg("ERR")
}

// Doorbell rings by message.
func (g *Guest) Doorbell(page, off, v uint32) {
	g.T.Helper()
	g.Store(vfiouser.RegionBAR2, uint64(page)*ram.PageSize+uint64(off), binary.LittleEndian.AppendUint32(nil, v))
}

// Bytes is guest memory, not a copy.
func (g *Guest) Bytes(addr uint64, n int) []byte {
	g.T.Helper()
	b, err := g.RAM.Bytes(addr, n)
	if err != nil {
		g.T.Fatal(err)
	}
	return b
}

// Pages allocates guest pages.
func (g *Guest) Pages(n int) []uint64 {
	g.T.Helper()
	p, err := g.RAM.Pages(n)
	if err != nil {
		g.T.Fatal(err)
	}
	return p
}

// Dir writes the page directory of some pages.
func (g *Guest) Dir(pages []uint64) *driver.PageDir {
	g.T.Helper()
	d, err := driver.NewPageDir(g.L, g.RAM, pages)
	if err != nil {
		g.T.Fatal(err)
	}
	return d
}
