// SPDX-License-Identifier: Apache-2.0

package pcifn

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pvrdmad/pvrdmad/pvrdma"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

func TestDSRHighFillsTheCapabilitiesBeforeItIsAnswered(t *testing.T) {
	d := attach(t, Poll)
	d.layout()
	// Old bytes must not shine through, and nothing beside the capabilities is the device's.
	page := bytes.Repeat([]byte{0xff}, abi.PageSize)
	d.write(d.dsrAddr, page)
	before := d.snapshot()
	if e := d.loadDSR(); e != 0 {
		t.Fatalf("ERR is %d", e)
	}
	if diff := cmp.Diff(d.s.dev.Caps(), d.caps()); diff != "" {
		t.Errorf("capabilities (-want +got):\n%s", diff)
	}
	if !abi.AcceptCaps(d.get(abi.RegVersion), d.caps().Mode, d.caps().GIDTypes) {
		t.Error("the driver refuses these capabilities")
	}
	off := d.dsrAddr - guestBase
	after := d.snapshot()
	copy(after[off:off+abi.DSRSize], before[off:off+abi.DSRSize])
	if !bytes.Equal(before, after) {
		t.Error("something outside of the shared region was written")
	}
	want := make([]byte, abi.DSRSize)
	d.dsr.Encode(want)
	if diff := cmp.Diff(want[:72], d.read(d.dsrAddr, 72)); diff != "" {
		t.Errorf("the driver's part (-want +got):\n%s", diff)
	}
}

func TestASharedRegionMayLieAnywhere(t *testing.T) {
	d := attach(t, Poll)
	d.layout()
	for name, addr := range map[string]uint64{
		"at an odd address":              d.page() + 1,
		"at the end of a page":           d.page() + 4096 - 100,
		"across two regions":             guestBase + guestPages/2*abi.PageSize - 100,
		"at the very end of the memory":  guestBase + guestPages*abi.PageSize - abi.DSRSize,
		"at a multiple of 8 in the page": d.page() + 808,
	} {
		d.dsrAddr = addr
		if e := d.loadDSR(); e != 0 {
			t.Errorf("%s: ERR is %d", name, e)
		}
		if d.caps().MaxUAR != 8 {
			t.Errorf("%s: no capabilities", name)
		}
	}
}

func TestASharedRegionThatIsWrongIsRefused(t *testing.T) {
	const beyond = guestBase + guestPages*abi.PageSize
	cases := []struct {
		name  string
		spoil func(d *driver)
		want  unix.Errno
	}{
		{"at 0", func(d *driver) { d.dsrAddr = 0 }, unix.EFAULT},
		{"in a hole", func(d *driver) { d.dsrAddr = 0x1000 }, unix.EFAULT},
		{"beyond the memory", func(d *driver) { d.dsrAddr = beyond }, unix.EFAULT},
		{"one byte beyond the memory", func(d *driver) { d.dsrAddr = beyond - abi.DSRSize + 1 }, unix.EFAULT},
		{"at the top of the address space", func(d *driver) { d.dsrAddr = 0xffff_ffff_ffff_ff00 }, unix.EINVAL},
		{"driver version 0", func(d *driver) { d.dsr.DriverVersion = 0 }, unix.EOPNOTSUPP},
		{"driver version 16", func(d *driver) { d.dsr.DriverVersion = 16 }, unix.EOPNOTSUPP},
		{"a driver that knows RoCE v1 alone", func(d *driver) { d.dsr.DriverVersion = 17 }, unix.EOPNOTSUPP},
		{"no command slot", func(d *driver) { d.dsr.CmdSlotDMA = 0 }, unix.EINVAL},
		{"command slot misaligned", func(d *driver) { d.dsr.CmdSlotDMA += 8 }, unix.EINVAL},
		{"no response slot", func(d *driver) { d.dsr.RespSlotDMA = 0 }, unix.EINVAL},
		{"response slot misaligned", func(d *driver) { d.dsr.RespSlotDMA += 0x800 }, unix.EINVAL},
		{"async ring of 0 pages", func(d *driver) { d.dsr.AsyncRingPages.NumPages = 0 }, unix.EINVAL},
		{"async ring of 1 page", func(d *driver) { d.dsr.AsyncRingPages.NumPages = 1 }, unix.EINVAL},
		{"async ring of 513 pages", func(d *driver) { d.dsr.AsyncRingPages.NumPages = 513 }, unix.EINVAL},
		{"async ring of 2^32-1 pages", func(d *driver) { d.dsr.AsyncRingPages.NumPages = 0xffffffff }, unix.EINVAL},
		{"completion ring of 0 pages", func(d *driver) { d.dsr.CQRingPages.NumPages = 0 }, unix.EINVAL},
		{"completion ring of 1 page", func(d *driver) { d.dsr.CQRingPages.NumPages = 1 }, unix.EINVAL},
		{"completion ring of 513 pages", func(d *driver) { d.dsr.CQRingPages.NumPages = 513 }, unix.EINVAL},
		{"completion ring of 2^32-1 pages", func(d *driver) { d.dsr.CQRingPages.NumPages = 0xffffffff }, unix.EINVAL},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := attach(t, Poll)
			d.layout()
			c.spoil(d)
			if d.dsrAddr >= guestBase && d.dsrAddr <= beyond-abi.DSRSize {
				b := make([]byte, abi.DSRSize)
				d.dsr.Encode(b)
				d.write(d.dsrAddr, b)
			}
			before := d.snapshot()
			d.reg(abi.RegDSRLow, uint32(d.dsrAddr))
			d.reg(abi.RegDSRHigh, uint32(d.dsrAddr>>32))
			wantERR(t, "DSRHIGH", d.get(abi.RegErr), c.want)
			d.unchanged(before, "the region was refused")
			if n := d.seen.violations()[pvrdma.BadDSR]; n != 1 {
				t.Errorf("%d violations are reported, want 1", n)
			}
			wantERR(t, "ACTIVATE after it", d.ctl(abi.DeviceCtlActivate), unix.ENODEV)
			d.unchanged(before, "ACTIVATE without a region")
		})
	}
}

func TestNothingIsReadWhileTheFunctionIsNoBusMaster(t *testing.T) {
	d := attach(t, Poll)
	d.layout()
	d.config(pciCommand, 2, pciCommandMemory)
	wantERR(t, "DSRHIGH", d.loadDSR(), unix.EFAULT)
	if d.caps().MaxUAR != 0 {
		t.Error("capabilities were written")
	}
	d.config(pciCommand, 2, pciCommandMemory|pciCommandMaster)
	wantERR(t, "DSRHIGH", d.loadDSR(), 0)
}

func TestAReadOnlyRegionTakesNoCapabilities(t *testing.T) {
	d := attach(t, Poll)
	d.layout()
	rom := make([]byte, abi.PageSize)
	d.dsr.Encode(rom)
	if err := d.s.mem.MapBytes(0x8000_0000, rom, 1); err != nil {
		t.Fatal(err)
	}
	d.reg(abi.RegDSRLow, 0x8000_0000)
	d.reg(abi.RegDSRHigh, 0)
	wantERR(t, "DSRHIGH", d.get(abi.RegErr), unix.EFAULT)
	wantERR(t, "ACTIVATE", d.ctl(abi.DeviceCtlActivate), unix.ENODEV)
}

// TestASecondRegionReplacesTheFirst is the probe that fails for want of its network card and is tried again: the driver has
// freed what it had before without a word.
func TestASecondRegionReplacesTheFirst(t *testing.T) {
	d := attach(t, Poll)
	d.layout()
	if e := d.loadDSR(); e != 0 {
		t.Fatalf("ERR is %d", e)
	}
	first := d.dsr
	before := d.snapshot()
	d.probe() // with all of it anew
	var pd abi.CmdCreatePDResp
	d.must(&abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD)}, &pd)
	d.onWorker(func() { d.s.events.AsyncEvent(abi.EventPortActive, 1); d.s.events.CQEvent(1) })
	if len(d.async.asyncs()) != 1 || len(d.cq.handles()) != 1 {
		t.Error("no events in the new rings")
	}
	for _, p := range []uint64{first.CmdSlotDMA, first.RespSlotDMA} {
		off := p - guestBase
		if !bytes.Equal(before[off:off+4096], d.bytes[off:off+4096]) {
			t.Error("a slot of the first region was used")
		}
	}
}

func TestARegionThatIsRefusedDropsTheOneBefore(t *testing.T) {
	d := attach(t, Poll)
	d.layout()
	if e := d.loadDSR(); e != 0 {
		t.Fatalf("ERR is %d", e)
	}
	d.reg(abi.RegDSRHigh, 0xffff)
	wantERR(t, "DSRHIGH", d.get(abi.RegErr), unix.EFAULT)
	wantERR(t, "ACTIVATE", d.ctl(abi.DeviceCtlActivate), unix.ENODEV)
}

// TestARegionInActiveTearsDown is a guest kernel that crashed and starts again without a reset.
func TestARegionInActiveTearsDown(t *testing.T) {
	d := active(t, Poll)
	d.must(&abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD)}, nil)
	d.layout()
	if e := d.loadDSR(); e != 0 {
		t.Fatalf("ERR is %d", e)
	}
	if d.s.dev.Active() || d.engine.contexts() != 0 || d.s.mem.Stats().Pinned != 0 {
		t.Errorf("active %v, %d contexts, %d pinned pages", d.s.dev.Active(), d.engine.contexts(), d.s.mem.Stats().Pinned)
	}
	resets := seen[pvrdma.WasReset](d.seen)
	if len(resets) != 1 || resets[0].Cause != pvrdma.ResetByProbe || resets[0].Err != nil {
		t.Errorf("resets %+v", resets)
	}
	wantERR(t, "ACTIVATE", d.ctl(abi.DeviceCtlActivate), 0)
	var pd abi.CmdCreatePDResp
	d.must(&abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD)}, &pd)
	if pd.PDHandle != 1 {
		t.Errorf("the first protection domain has handle %d", pd.PDHandle)
	}
}

func TestARingThatCannotBeMappedFailsActivate(t *testing.T) {
	type info = *abi.RingPageInfo
	rings := map[string]func(d *driver) (info, *driverRing){
		"async":      func(d *driver) (info, *driverRing) { return &d.dsr.AsyncRingPages, d.async },
		"completion": func(d *driver) (info, *driverRing) { return &d.dsr.CQRingPages, d.cq },
	}
	spoils := []struct {
		name  string
		spoil func(i info, r *driverRing)
		want  unix.Errno
	}{
		{"no directory", func(i info, _ *driverRing) { i.PDirDMA = 0 }, unix.EINVAL},
		{"directory misaligned", func(i info, _ *driverRing) { i.PDirDMA += 8 }, unix.EINVAL},
		{"directory in a hole", func(i info, _ *driverRing) { i.PDirDMA = 0x1000 }, unix.EFAULT},
		{"more pages than the directory has", func(i info, _ *driverRing) { i.NumPages = 5 }, unix.EINVAL},
		{"as many pages as a table has", func(i info, _ *driverRing) { i.NumPages = 512 }, unix.EINVAL},
		{"table of 0", func(i info, r *driverRing) { r.write64(i.PDirDMA, 0) }, unix.EINVAL},
		{"page of 0", func(i info, r *driverRing) { r.write64(i.PDirDMA+abi.PageSize+8, 0) }, unix.EINVAL}, // the table is next
		{"page in a hole", func(i info, r *driverRing) { r.write64(i.PDirDMA+abi.PageSize+8, 0x2000) }, unix.EFAULT},
	}
	for name, which := range rings {
		for _, c := range spoils {
			t.Run(name+": "+c.name, func(t *testing.T) {
				d := attach(t, Poll)
				d.layout()
				c.spoil(which(d))
				if e := d.loadDSR(); e != 0 {
					t.Fatalf("DSRHIGH: ERR is %d", e)
				}
				wantERR(t, "ACTIVATE", d.ctl(abi.DeviceCtlActivate), c.want)
				if d.s.dev.Active() || d.s.mem.Stats().Pinned != 0 || d.engine.contexts() != 0 {
					t.Errorf("active %v, %d pinned pages", d.s.dev.Active(), d.s.mem.Stats().Pinned)
				}
				// The region is still loaded: the driver could correct its rings.
				wantERR(t, "REQUEST", d.try(abi.RegRequest), unix.ENODEV)
			})
		}
	}
}

// try writes a register and returns ERR.
func (d *driver) try(off uint64) uint32 {
	d.reg(off, 0)
	return d.get(abi.RegErr)
}

func TestRingsOfTheSmallestAndTheLargestSize(t *testing.T) {
	for _, pages := range []int{2, 3, 5, 100} {
		d := attach(t, Poll)
		d.layout()
		d.async, d.cq = d.ring(pages, abi.EQESize), d.ring(pages, abi.CQNESize)
		d.dsr.AsyncRingPages = abi.RingPageInfo{NumPages: uint32(pages), PDirDMA: d.async.pdir}
		d.dsr.CQRingPages = abi.RingPageInfo{NumPages: uint32(pages), PDirDMA: d.cq.pdir}
		if e := d.loadDSR(); e != 0 {
			t.Fatalf("DSRHIGH: ERR is %d", e)
		}
		wantERR(t, "ACTIVATE", d.ctl(abi.DeviceCtlActivate), 0)
		for i := range uint32(3000) {
			d.onWorker(func() { d.s.events.AsyncEvent(abi.EventCommEst, i); d.s.events.CQEvent(i) })
			if a, c := d.async.asyncs(), d.cq.handles(); len(a) != 1 || a[0].Info != i || len(c) != 1 || c[0] != i {
				t.Fatalf("%d pages: event %d arrives as %v, %v", pages, i, a, c)
			}
		}
	}
}

func TestWhatIsWrittenIntoTheRegionLaterIsNotLookedAt(t *testing.T) {
	d := active(t, Poll)
	d.write(d.dsrAddr, bytes.Repeat([]byte{0xff}, abi.DSRSize))
	d.must(&abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD)}, nil)
	d.onWorker(func() { d.s.events.AsyncEvent(abi.EventPortActive, 1) })
	if len(d.async.asyncs()) != 1 {
		t.Error("no event")
	}
}

func TestAnEngineThatRefusesTheGuestFailsActivate(t *testing.T) {
	d := attach(t, Poll)
	d.layout()
	if e := d.loadDSR(); e != 0 {
		t.Fatalf("DSRHIGH: ERR is %d", e)
	}
	d.engine.plan(func(e *stubEngine) { e.refuse["OpenContext"] = unix.ENOMEM })
	wantERR(t, "ACTIVATE", d.ctl(abi.DeviceCtlActivate), unix.ENOMEM)
	if d.s.mem.Stats().Pinned != 0 || len(seen[pvrdma.Activated](d.seen)) != 0 {
		t.Errorf("%d pages are pinned", d.s.mem.Stats().Pinned)
	}
	d.engine.plan(func(e *stubEngine) { e.refuse["OpenContext"] = nil })
	wantERR(t, "ACTIVATE", d.ctl(abi.DeviceCtlActivate), 0)
	want := pvrdma.Activated{Guest: pvrdma.Guest{Name: "vm1"}, DriverVersion: 20, Version: 20}
	if diff := cmp.Diff([]pvrdma.Activated{want}, seen[pvrdma.Activated](d.seen)); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
}
