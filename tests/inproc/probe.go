// SPDX-License-Identifier: Apache-2.0

package inproc

import (
	"slices"

	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
)

// Layout allocates what a driver shares with the device, and fills the shared region as Linux does.
func (g *Guest) Layout() {
	g.T.Helper()
	const name = "pvrdma_device_shared_region"
	p := g.Pages(3)
	g.DSRAddr, g.CmdSlot, g.RespSlot = p[0], p[1], p[2]
	pages := g.Const("PVRDMA_NUM_RING_PAGES")
	g.DSR = g.L.View(name, g.Bytes(g.DSRAddr, g.L.Size(name)))
	g.DSR.Set("driver_version", uint64(g.Const("PVRDMA_VERSION"))).
		Set("gos_info.gos_bits", uint64(g.Const("PVRDMA_GOS_BITS_64"))).
		Set("gos_info.gos_type", uint64(g.Const("PVRDMA_GOS_TYPE_LINUX"))).Set("gos_info.gos_ver", 1).
		Set("cmd_slot_dma", g.CmdSlot).Set("resp_slot_dma", g.RespSlot).Set("uar_"+g.FrameField(), UARPFN)
	for _, ring := range []string{"async_ring_pages", "cq_ring_pages"} {
		g.DSR.Set(ring+".num_pages", uint64(pages)).Set(ring+".pdir_dma", g.Dir(g.Pages(int(pages))).Addr())
	}
}

// FrameField is the field in which a driver of these guests writes a frame number: the other half of the 64 bits is not
// defined below version 19.
func (g *Guest) FrameField() string {
	if DeviceVersion() < g.Const("PVRDMA_PPN64_VERSION") {
		return "pfn"
	}
	return "pfn64"
}

// LoadDSR writes the region's address and returns ERR.
func (g *Guest) LoadDSR() uint32 {
	g.T.Helper()
	g.SetReg("DSRLOW", uint32(g.DSRAddr))
	g.SetReg("DSRHIGH", uint32(g.DSRAddr>>32))
	return g.Reg("ERR")
}

// Probe brings the device up.
func (g *Guest) Probe() {
	g.T.Helper()
	g.Layout()
	if e := g.LoadDSR(); e != 0 {
		g.T.Fatalf("DSRHIGH: ERR is %d, %v", e, g.Seen.Last())
	}
	g.SetReg("IMR", 0)
	if e := g.Control("ACTIVATE"); e != 0 {
		g.T.Fatalf("ACTIVATE: ERR is %d, %v", e, g.Seen.Last())
	}
}

// Answer is what a command left behind.
type Answer struct {
	// Reg is the ERR register.
	Reg uint32
	// Slot is a copy of the response slot, Header the view of its header.
	Slot   []byte
	Header layout.View
}

// OK reports whether the driver takes the command for a success.
func (a Answer) OK() bool { return a.Reg == 0 && a.Header.Get("err") == 0 }

// Request begins a command: struct pvrdma_cmd_<name>.
func (g *Guest) Request(name string) layout.View {
	return g.L.New("pvrdma_cmd_"+name).Set("hdr.cmd", uint64(g.Const(cmdConst(name))))
}

// Post executes a command. The rest of the slot holds what was on the driver's stack.
func (g *Guest) Post(req []byte) Answer {
	g.T.Helper()
	slot := g.Bytes(g.CmdSlot, g.L.Size("pvrdma_cmd_req"))
	for i := range slot {
		slot[i] = 0xa5
	}
	return g.PostRaw(req)
}

// PostRaw executes a command and leaves the rest of the slot as it is.
func (g *Guest) PostRaw(req []byte) Answer {
	g.T.Helper()
	copy(g.Bytes(g.CmdSlot, g.L.Size("pvrdma_cmd_req")), req)
	g.SetReg("REQUEST", 0)
	return g.Answer()
}

// Answer reads ERR and the response slot.
func (g *Guest) Answer() Answer {
	g.T.Helper()
	a := Answer{Reg: g.Reg("ERR"), Slot: slices.Clone(g.Bytes(g.RespSlot, g.L.Size("pvrdma_cmd_resp")))}
	a.Header = g.L.View("pvrdma_cmd_resp_hdr", a.Slot)
	return a
}

// Must executes a command that succeeds, and returns a field of the response; "" returns 0.
func (g *Guest) Must(req layout.View, resp, field string) uint32 {
	g.T.Helper()
	a := g.Post(req.Bytes())
	if !a.OK() {
		g.T.Fatalf("%s: ERR %d, err %d: %v", req.Name(), a.Reg, a.Header.Get("err"), g.Seen.Last())
	}
	if field == "" {
		return 0
	}
	return g.L.View("pvrdma_cmd_"+resp, a.Slot).Get32(field)
}

// Ready forgets what the recorder and the cause register hold.
func (g *Guest) Ready() {
	g.Settle()
	g.Seen.Take()
	g.Reg("ICR")
}

// PageSize is a guest page's size in bytes.
const PageSize = ram.PageSize
