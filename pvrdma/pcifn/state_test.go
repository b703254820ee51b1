// SPDX-License-Identifier: Apache-2.0

package pcifn

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/pvrdma"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// states are the device's states, each with a way to reach it.
func states() map[string]func(d *driver) {
	loaded := func(d *driver) {
		d.layout()
		if e := d.loadDSR(); e != 0 {
			d.t.Fatalf("DSRHIGH: ERR is %d", e)
		}
	}
	return map[string]func(d *driver){
		"power on": func(d *driver) { d.layout() },
		"loaded":   loaded,
		"active":   func(d *driver) { d.probe() },
		"reset": func(d *driver) {
			d.probe()
			wantERR(d.t, "RESET", d.ctl(abi.DeviceCtlReset), 0)
		},
		"refused": func(d *driver) {
			loaded(d)
			d.reg(abi.RegDSRHigh, 0xffff)
		},
	}
}

func TestEveryRegisterWriteInEveryState(t *testing.T) {
	const nodev = unix.ENODEV
	cases := []struct {
		name string
		do   func(d *driver) uint32
		want map[string]unix.Errno
	}{
		{
			"ACTIVATE", func(d *driver) uint32 { return d.ctl(abi.DeviceCtlActivate) },
			map[string]unix.Errno{"power on": nodev, "loaded": 0, "active": 0, "reset": nodev, "refused": nodev},
		},
		{
			"UNQUIESCE", func(d *driver) uint32 { return d.ctl(abi.DeviceCtlUnquiesce) },
			map[string]unix.Errno{"power on": nodev, "loaded": nodev, "active": 0, "reset": nodev, "refused": nodev},
		},
		{"RESET", func(d *driver) uint32 { return d.ctl(abi.DeviceCtlReset) }, map[string]unix.Errno{}},
		{
			"no control at all", func(d *driver) uint32 { return d.ctl(3) },
			map[string]unix.Errno{
				"power on": unix.EINVAL, "loaded": unix.EINVAL, "active": unix.EINVAL, "reset": unix.EINVAL, "refused": unix.EINVAL,
			},
		},
		{
			"REQUEST", func(d *driver) uint32 { return d.try(abi.RegRequest) },
			map[string]unix.Errno{"power on": nodev, "loaded": nodev, "active": 0, "reset": nodev, "refused": nodev},
		},
		{"DSRHIGH", func(d *driver) uint32 { return d.loadDSR() }, map[string]unix.Errno{}},
	}
	for state, reach := range states() {
		for _, c := range cases {
			t.Run(c.name+" in "+state, func(t *testing.T) {
				d := attach(t, Trap)
				reach(d)
				d.command0()
				before := d.s.dev.Active()
				wantERR(t, c.name, c.do(d), c.want[state])
				if v := d.get(abi.RegVersion); v != 20 {
					t.Errorf("VERSION is %d", v)
				}
				after := d.s.dev.Active()
				if want := c.want[state] == 0 && c.name == "ACTIVATE" || before && c.name != "RESET" && c.name != "DSRHIGH"; after != want {
					t.Errorf("active: %v, then %v", before, after)
				}
			})
		}
	}
}

// command0 puts QUERY_PORT into the command slot, if there is one.
func (d *driver) command0() {
	b := make([]byte, abi.CmdReqSize)
	(&abi.CmdQueryPortReq{Hdr: hdr(abi.CmdQueryPort), PortNum: 1}).Encode(b)
	d.write(d.dsr.CmdSlotDMA, b)
}

func TestDoorbellsOutsideOfActiveAreIgnored(t *testing.T) {
	for state, reach := range states() {
		if state == "active" {
			continue
		}
		d := attach(t, Trap)
		reach(d)
		before := d.snapshot()
		for _, off := range []uint32{abi.UARQPOffset, abi.UARCQOffset, abi.UARSRQOffset, 12} {
			d.doorbell(0, off, 0xffffffff)
			d.doorbell(1, off, 0x40000001)
		}
		d.onWorker(func() {})
		d.unchanged(before, "doorbells in "+state)
		if n := len(d.seen.violations()); n != 0 && state != "refused" {
			t.Errorf("%s: violations %v", state, d.seen.violations())
		}
	}
}

func TestAStoreThatIsNoDoorbellIsReported(t *testing.T) {
	d := active(t, Trap)
	for i, off := range []uint64{1, 2, 3} {
		d.store(2, off, []byte{1, 2, 3, 4})
		if n := d.seen.violations()[pvrdma.BadDoorbell]; n != i+1 {
			t.Errorf("store at %d: %d violations, want %d", off, n, i+1)
		}
	}
	for i, n := range []int{1, 2, 8} {
		d.store(2, 0, make([]byte, n))
		if got := d.seen.violations()[pvrdma.BadDoorbell]; got != 4+i {
			t.Errorf("store of %d bytes: %d violations, want %d", n, got, 4+i)
		}
	}
	d.store(0, 0, make([]byte, 16)) // the interrupt table is the client's
	if len(d.seen.violations()) != 1 {
		t.Errorf("violations %v", d.seen.violations())
	}
}

// TestAnErrorIsForgottenByTheNextControl: a link that comes up must not look as if it failed because a command before it
// did.
func TestAnErrorIsForgottenByTheNextControl(t *testing.T) {
	d := active(t, Poll)
	if e, _, _ := d.command(&abi.CmdDestroyPDReq{Hdr: hdr(abi.CmdDestroyPD), PDHandle: 9}); e == 0 {
		t.Fatal("a command that fails sets no ERR")
	}
	wantERR(t, "UNQUIESCE", d.ctl(abi.DeviceCtlUnquiesce), 0)
}

func TestResetStopsAllAccessBeforeItIsAnswered(t *testing.T) {
	d := active(t, Poll)
	d.queuePair()
	d.onWorker(func() { d.s.events.CQEvent(1) })
	if e := d.ctl(abi.DeviceCtlReset); e != 0 {
		t.Fatalf("ERR is %d", e)
	}
	before := d.snapshot()
	d.interrupts()
	if d.s.mem.Stats().Pinned != 0 || d.engine.contexts() != 0 {
		t.Errorf("%d pages are pinned, %d contexts open", d.s.mem.Stats().Pinned, d.engine.contexts())
	}
	// Everything that could still write.
	d.onWorker(func() {
		d.s.events.AsyncEvent(abi.EventQPFatal, 1)
		d.s.events.CQEvent(1)
		d.s.events.Flush()
	})
	d.try(abi.RegRequest)
	d.doorbell(0, abi.UARQPOffset, abi.UARQPSend|1)
	d.doorbell(0, abi.UARCQOffset, abi.UARCQArm|1)
	d.onWorker(func() {})
	d.unchanged(before, "after RESET")
	if n := d.interrupts(); n != [3]int64{} {
		t.Errorf("interrupts %v after RESET", n)
	}
	resets := seen[pvrdma.WasReset](d.seen)
	if len(resets) != 1 || resets[0].Cause != pvrdma.ResetByDriver {
		t.Errorf("resets %+v", resets)
	}
	d.probe()
	d.must(&abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD)}, nil)
}
