// SPDX-License-Identifier: Apache-2.0

package pcifn

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// apart is where a region of one page lies that can be taken away by itself.
const apart = 0x8000_0000

// sharedPlaces are what a driver shares with its device since its probe, each with what puts it (or a page of it) into the
// region that lies apart.
func sharedPlaces() map[string]func(d *driver, page []byte) {
	ring := func(d *driver, r *driverRing, page int) {
		d.write64(r.pdir+abi.PageSize+uint64(page)*abi.PDirEntSize, apart) // the table is next to the directory
	}
	return map[string]func(d *driver, page []byte){
		"shared region": func(d *driver, page []byte) {
			d.dsr.Encode(page)
			d.dsrAddr = apart
		},
		"command slot":          func(d *driver, _ []byte) { d.dsr.CmdSlotDMA = apart },
		"response slot":         func(d *driver, _ []byte) { d.dsr.RespSlotDMA = apart },
		asyncRing:               func(d *driver, _ []byte) { ring(d, d.async, 3) },
		"completion event ring": func(d *driver, _ []byte) { ring(d, d.cq, 2) },
		"completion event ring's page of indices": func(d *driver, _ []byte) { ring(d, d.cq, 0) },
	}
}

// activeApart returns a driver whose device is active, with one thing in the region that lies apart.
func activeApart(t *testing.T, place func(d *driver, page []byte)) *driver {
	t.Helper()
	d := attach(t, Poll)
	d.layout()
	page := make([]byte, abi.PageSize)
	d.ok(d.s.mem.MapBytes(apart, page, rw))
	place(d, page)
	if d.dsrAddr == apart {
		wantERR(t, "DSRHIGH", d.tryDSR(), 0)
	} else {
		wantERR(t, "DSRHIGH", d.loadDSR(), 0)
	}
	d.reg(abi.RegIMR, 0)
	wantERR(t, "ACTIVATE", d.ctl(abi.DeviceCtlActivate), 0)
	return d
}

// inState checks the device's error state, and that it was reported.
func (d *driver) inState(want pvrdma.ErrorState) {
	d.t.Helper()
	d.s.mu.Lock()
	got := d.s.state
	d.s.mu.Unlock()
	told := pvrdma.NoError
	if all := seen[pvrdma.ErrorStateChanged](d.seen); len(all) > 0 {
		told = all[len(all)-1].State
	}
	if got != want || told != want {
		d.t.Errorf("error state %v, reported as %v; want %v", got, told, want)
	}
}

// wasReset checks that the device was reset once, and why.
func (d *driver) wasReset(cause pvrdma.ResetCause, text string) {
	d.t.Helper()
	r := seen[pvrdma.WasReset](d.seen)
	if len(r) != 1 || r[0].Cause != cause || (r[0].Err == nil) != (text == "") ||
		r[0].Err != nil && !strings.Contains(r[0].Err.Error(), text) {
		d.t.Errorf("resets %+v, want one by %v, %q", r, cause, text)
	}
}

func TestADeviceWhoseProbesMemoryIsTakenEnds(t *testing.T) {
	for name, place := range sharedPlaces() {
		for how, instead := range map[string]guestmem.Prot{
			"unmapped": 0, "other memory in its place": rw, "read-only in its place": guestmem.ProtRead,
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				d := activeApart(t, place)
				other, _ := d.beside(t)
				if !strings.HasSuffix(name, "slot") { // through which this driver could not reach the device
					d.queuePair()
				}
				d.interrupts()

				d.ok(d.s.UnmapDMA(apart, abi.PageSize))
				if instead != 0 {
					d.ok(d.s.mem.MapBytes(apart, make([]byte, abi.PageSize), instead))
				}

				what, _, _ := strings.Cut(name, "'")
				d.wasReset(pvrdma.ResetByMemoryLoss, what)
				d.inState(pvrdma.ErrorMemoryLost)
				if d.s.dev.Active() || d.s.mem.Stats().Pinned != 0 || d.engine.contexts() != 1 {
					t.Errorf("active %v, %d pages are pinned", d.s.dev.Active(), d.s.mem.Stats().Pinned)
				}
				var want []abi.EQE
				irqs := [abi.MaxInterrupts]int64{}
				if what != asyncRing {
					want, irqs[abi.IntrVectorAsync] = []abi.EQE{{Type: abi.EventDeviceFatal, Info: 1}}, 1
				}
				if diff := cmp.Diff(want, d.async.asyncs()); diff != "" || d.interrupts() != irqs {
					t.Errorf("events (-want +got):\n%s", diff)
				}
				if n := len(d.seen.violations()); n != 0 {
					t.Errorf("violations %v: a reset is enough", d.seen.violations())
				}
				d.isDead("after its memory was taken")
				other.must(&abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD)}, nil)
				d.comesBack()
			})
		}
	}
}

// isDead checks that the device does nothing of what its driver asks, that it says so, and that no memory changes.
func (d *driver) isDead(when string) {
	d.t.Helper()
	wantERR(d.t, "ERR "+when, d.get(abi.RegErr), unix.EIO)
	before := d.snapshot()
	wantERR(d.t, "REQUEST "+when, d.try(abi.RegRequest), unix.ENODEV)
	wantERR(d.t, "UNQUIESCE "+when, d.ctl(abi.DeviceCtlUnquiesce), unix.ENODEV)
	wantERR(d.t, "ACTIVATE "+when, d.ctl(abi.DeviceCtlActivate), unix.ENODEV)
	d.doorbell(0, abi.UARQPOffset, abi.UARQPSend|1)
	d.doorbell(0, abi.UARCQOffset, abi.UARCQArm|1)
	d.onWorker(func() {
		d.s.events.AsyncEvent(abi.EventQPFatal, 1)
		d.s.events.CQEvent(1)
		d.s.events.Flush()
	})
	d.unchanged(before, when)
	if n := d.interrupts(); n != [abi.MaxInterrupts]int64{} {
		d.t.Errorf("interrupts %v %s", n, when)
	}
}

// comesBack checks that a driver can start anew.
func (d *driver) comesBack() {
	d.t.Helper()
	d.probe()
	d.inState(pvrdma.NoError)
	d.must(&abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD)}, nil)
	d.onWorker(func() { d.s.events.AsyncEvent(abi.EventPortActive, 1) })
	if len(d.async.asyncs()) != 1 {
		d.t.Error("no event in the new ring")
	}
}

func TestAllMemoryTakenEndsTheDevice(t *testing.T) {
	d := active(t, Poll)
	before := d.snapshot()
	d.ok(d.s.UnmapAllDMA())
	d.wasReset(pvrdma.ResetByMemoryLoss, "shared region")
	d.inState(pvrdma.ErrorMemoryLost)
	d.unchanged(before, "without memory")
	d.ok(d.s.UnmapAllDMA()) // once more changes nothing
	d.wasReset(pvrdma.ResetByMemoryLoss, "shared region")
}

func TestOtherMemoryTakenEndsNothing(t *testing.T) {
	d := activeApart(t, func(*driver, []byte) {})
	d.queuePair()
	d.ok(d.s.UnmapDMA(apart, abi.PageSize))
	d.inState(pvrdma.NoError)
	if !d.s.dev.Active() || len(d.async.asyncs()) != 0 {
		t.Error("the device has lost something")
	}
	d.must(&abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD)}, nil)
}

// TestTheEventOfAQueuePairsLossIsThereWhenTheUnmappingIsAnswered: nobody has used the queue pair since.
func TestTheEventOfAQueuePairsLossIsThereWhenTheUnmappingIsAnswered(t *testing.T) {
	d := active(t, Poll)
	d.ok(d.s.mem.MapBytes(apart, make([]byte, 2*abi.PageSize), rw))
	qp, _ := d.queuePairIn([]uint64{d.page(), apart, apart + abi.PageSize})
	h := d.engine.qp()
	d.interrupts()

	d.ok(d.s.UnmapDMA(apart, 2*abi.PageSize))

	if diff := cmp.Diff([]abi.EQE{{Type: abi.EventQPFatal, Info: qp}}, d.async.asyncs()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if n := d.interrupts(); n != [abi.MaxInterrupts]int64{0, 1, 0} {
		t.Errorf("interrupts %v, want vector 1 once", n)
	}
	d.onWorker(func() { h.Event(hostverbs.EventCommEst) })
	if len(d.async.asyncs()) != 0 || !d.s.dev.Active() {
		t.Error("the queue pair lives on")
	}
}

func TestASlotThatIsNoMemoryFailsActivate(t *testing.T) {
	for name, spoil := range map[string]func(d *driver){
		"command slot in a hole":          func(d *driver) { d.dsr.CmdSlotDMA = 0x1000 },
		"response slot in a hole":         func(d *driver) { d.dsr.RespSlotDMA = 0x1000 },
		"response slot that is read-only": func(d *driver) { d.dsr.RespSlotDMA = apart },
	} {
		t.Run(name, func(t *testing.T) {
			d := attach(t, Poll)
			d.layout()
			d.ok(d.s.mem.MapBytes(apart, make([]byte, abi.PageSize), guestmem.ProtRead))
			spoil(d)
			wantERR(t, "DSRHIGH", d.loadDSR(), 0)
			wantERR(t, "ACTIVATE", d.ctl(abi.DeviceCtlActivate), unix.EFAULT)
			if d.s.dev.Active() || d.s.mem.Stats().Pinned != 0 || d.engine.contexts() != 0 {
				t.Errorf("active %v, %d pages are pinned", d.s.dev.Active(), d.s.mem.Stats().Pinned)
			}
			if n := d.seen.violations()[pvrdma.BadState]; n != 1 {
				t.Errorf("violations %v", d.seen.violations())
			}
		})
	}
}

func TestASharedRegionThatCannotBeReadSaysWhatIsKnown(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(d *driver)
		text    string
	}{
		"bus mastering off": {func(d *driver) { d.config(pciCommand, 2, pciCommandMemory) }, "bus mastering is off"},
		"no memory at all":  {func(d *driver) { d.s.mem.UnmapAll() }, "share=on"},
		"memory without files": {func(d *driver) {
			d.s.mem.UnmapAll()
			d.ok(d.s.mem.Map(0, 1<<30, -1, 0, rw))
		}, "share=on"},
		"pages that a virtual IOMMU maps": {func(d *driver) {
			d.s.mem.UnmapAll()
			for i := range uint64(20) {
				d.ok(d.s.mem.MapBytes(0xffff_0000-i<<16, make([]byte, abi.PageSize), rw))
			}
		}, "iommu=pt"},
		"a hole": {func(*driver) {}, "no memory there"},
	} {
		t.Run(name, func(t *testing.T) {
			d := attach(t, Poll)
			d.dsrAddr = 0x1000
			c.prepare(d)
			wantERR(t, "DSRHIGH", d.tryDSR(), unix.EFAULT)
			all := seen[pvrdma.GuestError](d.seen)
			if len(all) != 1 || !strings.Contains(all[0].Err.Error(), c.text) {
				t.Errorf("reported %+v, want it to say %q", all, c.text)
			}
			if name == "a hole" && strings.Contains(all[0].Err.Error(), "IOMMU") {
				t.Errorf("a guest without a virtual IOMMU is told of one: %v", all[0].Err)
			}
		})
	}
	d := attach(t, Poll)
	d.dsrAddr = 0xffff_ffff_ffff_ff00
	wantERR(t, "DSRHIGH", d.tryDSR(), unix.EINVAL)
}

func TestAVirtualIOMMUIsNamedWhenTheDeviceBecomesActive(t *testing.T) {
	d := attach(t, Poll)
	d.s.mem.UnmapAll()
	for i := range uint64(guestPages) {
		d.ok(d.s.mem.MapBytes(guestBase+i*abi.PageSize, d.bytes[i*abi.PageSize:][:abi.PageSize], rw))
	}
	d.probe()
	if a := seen[pvrdma.Activated](d.seen); len(a) != 1 || !a[0].VIOMMU {
		t.Errorf("reported %+v", a)
	}
	if a := seen[pvrdma.Activated](active(t, Poll).seen); len(a) != 1 || a[0].VIOMMU {
		t.Errorf("without one: reported %+v", a)
	}
}

// The guest's driver says "failed to write to register" at most: who reads the log must learn why.
func TestWhatIsAskedOfADeviceThatIsNotOnSaysSo(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(d *driver)
		text string
	}{
		"a command": {func(d *driver) { d.reg(abi.RegRequest, 0) }, "command: the device is not switched on"},
		"unquiesce": {func(d *driver) { d.ctl(abi.DeviceCtlUnquiesce) }, "unquiesce: the device is not switched on"},
		"a control that there is not": {
			func(d *driver) { d.ctl(7) }, "there are ACTIVATE, UNQUIESCE and RESET",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := attach(t, Poll)

			c.do(d)

			all := seen[pvrdma.GuestError](d.seen)
			if len(all) != 1 || !strings.Contains(all[0].Err.Error(), c.text) {
				t.Errorf("reported %+v, want it to say %q once", all, c.text)
			}
		})
	}
}
