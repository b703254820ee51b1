// SPDX-License-Identifier: Apache-2.0

package pcifn

import (
	"errors"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"github.com/pvrdmad/pvrdmad/vfiouser"
	"golang.org/x/sys/unix"
)

func TestBusMasteringOffEndsTheDeviceBeforeItIsAnswered(t *testing.T) {
	for _, mode := range []DoorbellMode{Poll, Trap} {
		d := active(t, mode)
		other, _ := d.beside(t)
		qp, cq := d.queuePair()
		d.doorbell(0, abi.UARCQOffset, abi.UARCQArm|cq)
		h := d.engine.qp()
		d.onWorker(func() { _ = h.CompleteSend(&hostverbs.WC{WRID: uint64(qp)}) })
		eventually(t, "the completion is told", func() bool { return d.irqs[abi.IntrVectorCQ].Load() == 1 })
		d.interrupts()

		d.config(pciCommand, 2, pciCommandMemory)

		before := d.snapshot()
		d.onWorker(func() { _ = h.CompleteSend(&hostverbs.WC{}) }) // work that was under way
		d.unchanged(before, "a completion without bus mastering")
		d.wasReset(pvrdma.ResetByBusMaster, "")
		d.inState(pvrdma.ErrorBusMasterOff)
		d.isDead("without bus mastering")
		if d.s.mem.Enabled() || d.s.mem.Stats().Pinned != 0 || d.engine.contexts() != 1 {
			t.Errorf("memory access %v, %d pages are pinned", d.s.mem.Enabled(), d.s.mem.Stats().Pinned)
		}
		wantERR(t, "DSRHIGH without bus mastering", d.tryDSR(), unix.EFAULT)

		before = d.snapshot()
		d.config(pciCommand, 2, pciCommandMemory|pciCommandMaster)
		d.unchanged(before, "bus mastering on again: the memory may be somebody else's")
		d.inState(pvrdma.ErrorBusMasterOff)
		wantERR(t, "REQUEST", d.try(abi.RegRequest), unix.ENODEV)
		wantERR(t, "ACTIVATE", d.ctl(abi.DeviceCtlActivate), unix.ENODEV)
		other.must(&abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD)}, nil)
		d.comesBack()
	}
}

func TestBusMasteringOffForgetsASharedRegionThatWasLoaded(t *testing.T) {
	d := attach(t, Poll)
	d.layout()
	wantERR(t, "DSRHIGH", d.loadDSR(), 0)
	d.config(pciCommand, 2, pciCommandMemory)
	d.inState(pvrdma.NoError) // there was nothing to lose
	d.config(pciCommand, 2, pciCommandMemory|pciCommandMaster)
	wantERR(t, "ACTIVATE", d.ctl(abi.DeviceCtlActivate), unix.ENODEV)
	if n := len(seen[pvrdma.WasReset](d.seen)); n != 0 {
		t.Errorf("%d resets of a device that was not active", n)
	}
	d.comesBack()
}

func TestADriversResetEndsAnErrorState(t *testing.T) {
	d := active(t, Poll)
	d.config(pciCommand, 2, pciCommandMemory)
	d.config(pciCommand, 2, pciCommandMemory|pciCommandMaster)
	wantERR(t, "RESET", d.ctl(abi.DeviceCtlReset), 0)
	d.inState(pvrdma.NoError)
	d.config(pciCommand, 2, pciCommandMemory)
	d.config(pciCommand, 2, pciCommandMemory|pciCommandMaster)
	d.inState(pvrdma.NoError)
	d.comesBack()
}

// onlyProbed are the accesses that only a driver makes that has probed the device.
func onlyProbed() map[string]func(d *driver) {
	return map[string]func(d *driver){
		"REQUEST":           func(d *driver) { d.reg(abi.RegRequest, 0) },
		"unmasking":         func(d *driver) { d.reg(abi.RegIMR, 0) },
		"masking":           func(d *driver) { d.reg(abi.RegIMR, 0xffffffff) },
		"ACTIVATE":          func(d *driver) { d.reg(abi.RegCtl, uint32(abi.DeviceCtlActivate)) },
		"UNQUIESCE":         func(d *driver) { d.reg(abi.RegCtl, uint32(abi.DeviceCtlUnquiesce)) },
		"a kernel doorbell": func(d *driver) { d.doorbell(0, abi.UARCQOffset, abi.UARCQArm|1) },
		"a user doorbell":   func(d *driver) { d.doorbell(3, abi.UARQPOffset, abi.UARQPSend|1) },
	}
}

// harmless are accesses that anybody may make before a probe.
func harmless(d *driver) {
	d.load(vfiouser.RegionConfig, 0, configSize)
	d.config(pciBaseAddress0, 4, 0xffffffff)
	d.config(pciBaseAddress0, 4, 0xfe000000)
	for off := uint64(0); off < bar1Size; off += regSize {
		d.get(off)
	}
	d.load(vfiouser.RegionBAR2, 0, 16)
	d.reg(abi.RegMACLow, 1)
	d.reg(abi.RegVersion, 1)
	d.reg(abi.RegCtl, uint32(abi.DeviceCtlReset))
	d.config(pciCommand, 2, pciCommandMemory|pciCommandMaster)
}

func TestADriverThatProbedElsewhereIsNamed(t *testing.T) {
	fresh := map[string]func(d *driver){
		"on a fresh connection":       func(*driver) {},
		"after the machine was reset": func(d *driver) { d.probe(); d.ok(d.s.Reset()) },
	}
	for when, start := range fresh {
		for name, use := range onlyProbed() {
			t.Run(name+" "+when, func(t *testing.T) {
				d := attach(t, Trap)
				start(d)
				harmless(d)
				d.inState(pvrdma.NoError)
				before := d.snapshot()

				use(d)
				use(d)

				d.inState(pvrdma.ErrorAlreadyActive)
				var told []pvrdma.ErrorStateChanged
				for _, e := range seen[pvrdma.ErrorStateChanged](d.seen) {
					if e.State == pvrdma.ErrorAlreadyActive {
						told = append(told, e)
					}
				}
				if len(told) != 1 || !errors.Is(told[0].Err, errNotProbed) {
					t.Errorf("reported %+v, want it once", told)
				}
				wantERR(t, "REQUEST", d.try(abi.RegRequest), unix.ENODEV)
				wantERR(t, "UNQUIESCE", d.ctl(abi.DeviceCtlUnquiesce), unix.ENODEV)
				d.unchanged(before, "a device that nobody has probed")
				d.reg(abi.RegIMR, 0xffffffff) // the driver is unloaded
				wantERR(t, "RESET", d.ctl(abi.DeviceCtlReset), 0)
				d.inState(pvrdma.NoError)
				d.comesBack()
			})
		}
	}
}

func TestADriverThatHasProbedMayDoAsItLikes(t *testing.T) {
	for _, start := range []func(d *driver){
		func(d *driver) { d.probe() },
		func(d *driver) { d.reg(abi.RegDSRLow, 0x1000) },
		func(d *driver) { d.reg(abi.RegDSRHigh, 0x1000) },
		func(d *driver) { d.probe(); d.ctl(abi.DeviceCtlReset) },
	} {
		d := attach(t, Trap)
		start(d)
		for _, use := range onlyProbed() {
			use(d)
		}
		if n := len(seen[pvrdma.ErrorStateChanged](d.seen)); n != 0 {
			t.Errorf("%d error states", n)
		}
	}
}

// impatient lets the time of grace be short from now on.
func (d *driver) impatient(grace time.Duration) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	d.s.grace = grace
	d.s.watchEnable()
}

func TestAFunctionThatNobodyEnablesIsNamed(t *testing.T) {
	d := attach(t, Poll)
	d.ok(d.s.Reset())
	d.impatient(time.Millisecond)
	eventually(t, "the state is known", func() bool {
		d.s.mu.Lock()
		defer d.s.mu.Unlock()
		return d.s.state != pvrdma.NoError
	})
	d.inState(pvrdma.ErrorNotEnabled)
	d.config(pciCommand, 2, 0x100) // SERR alone is no use
	d.inState(pvrdma.ErrorNotEnabled)
	d.config(pciCommand, 2, pciCommandMaster|pciCommandMemory)
	d.inState(pvrdma.NoError)
	d.comesBack()
	if all := seen[pvrdma.ErrorStateChanged](d.seen); len(all) != 2 || !errors.Is(all[0].Err, errUnenabled) {
		t.Errorf("reported %+v", all)
	}
}

func TestAFunctionThatIsEnabledInTimeIsNotNamed(t *testing.T) {
	const grace = 20 * time.Millisecond
	d := attach(t, Poll)
	d.ok(d.s.Reset())
	d.impatient(grace)
	d.config(pciCommand, 2, pciCommandMaster|pciCommandMemory)
	time.Sleep(2 * grace)
	d.inState(pvrdma.NoError)

	d.ok(d.s.Reset())
	d.s.Close()
	time.Sleep(2 * grace)
	d.s.notEnabled() // comes late
	d.inState(pvrdma.NoError)
}
