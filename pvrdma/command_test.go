// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

func TestCommandsBeforeActivateAreRefused(t *testing.T) {
	g := newRig(t).idleGuest(defaultConfig(), true)
	for c := range abi.CmdMax + 3 {
		h := hdr(c)
		_, err := g.exec(&h)
		wantErrno(t, err, unix.ENODEV)
	}
}

func TestCommandsThatAreNotServedAreRefused(t *testing.T) {
	g := newRig(t).newGuest()
	for _, c := range []abi.Cmd{
		abi.CmdResizeCQ, abi.CmdMax, 1 << 31, 0xffffffff,
	} {
		h := hdr(c)
		g.refused(&h, unix.EOPNOTSUPP)
	}
}

func TestAResponseEchoesItsRequestsToken(t *testing.T) {
	g := newRig(t).newGuest()
	for _, req := range []request{
		&abi.CmdCreatePDReq{Hdr: abi.CmdHeader{Response: 0x1122334455667788, Cmd: abi.CmdCreatePD}},
		&abi.CmdDestroyPDReq{Hdr: abi.CmdHeader{Response: 0x1122334455667788, Cmd: abi.CmdDestroyPD}, PDHandle: 1},
	} {
		b, err := g.exec(req)
		if err != nil {
			t.Fatal(err)
		}
		var h abi.RespHeader
		if err := h.Decode(b[:]); err != nil || h.Response != 0x1122334455667788 {
			t.Errorf("%T: response %#x, %v", req, h.Response, err)
		}
	}
}

func TestNothingOfTheSlotsOldBytesIsInAResponse(t *testing.T) {
	g := newRig(t).newGuest()
	b, err := g.exec(&abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD)})
	if err != nil {
		t.Fatal(err)
	}
	var want Response
	r := abi.CmdCreatePDResp{Hdr: abi.RespHeader{Ack: abi.CmdCreatePD.Ack()}, PDHandle: 1}
	r.Encode(want[:])
	if diff := cmp.Diff(want, *b); diff != "" {
		t.Errorf("response (-want +got):\n%s", diff)
	}
}

func TestEveryCommandIsReported(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	g.createPD(0)
	h := hdr(abi.CmdResizeCQ)
	_, _ = g.exec(&h)
	got := seen[CommandDone](g.seen)
	if len(got) != 2 || got[0].Cmd != abi.CmdCreatePD || got[0].Err != nil || got[1].Cmd != abi.CmdResizeCQ ||
		!errors.Is(got[1].Err, unix.EOPNOTSUPP) || got[0].GuestName() != "vm1" {
		t.Errorf("reported: %+v", got)
	}
}

func TestACommandThatPanicsIsNotReportedAsDone(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	r.engine.panicWith("AllocPD", "of the engine")
	func() {
		defer func() { _ = recover() }()
		_, _ = g.exec(&abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD)})
		t.Error("the panic did not reach the caller")
	}()
	if got := seen[CommandDone](g.seen); len(got) != 1 || got[0].Err == nil {
		t.Errorf("reported: %+v", got)
	}
}

func TestADeviceWorksWithoutAnObserver(t *testing.T) {
	r := newRig(t)
	g := r.idleGuest(defaultConfig(), false)
	g.dev.observer = nil
	g.activate()
	q, _ := g.kernelQP(8)
	q.ring(0, 0x40ffffff)
	r.settle()
}

func TestActivateTellsTheEngineForWhom(t *testing.T) {
	r := newRig(t)
	cfg := defaultConfig()
	cfg.Limits.MaxQP = 7
	g := r.idleGuest(cfg, false)
	if g.dev.Active() {
		t.Error("a new device is active")
	}
	g.activate()
	if c := g.eng.cfg; c.Guest != "vm1" || c.GIDTableLen != 256 || c.Limits.MaxQP != 7 {
		t.Errorf("the context was opened with %+v", c)
	}
	g.activate() // once more changes nothing
	if n := len(r.engine.contexts); n != 1 || !g.dev.Active() {
		t.Errorf("%d contexts after a second Activate", n)
	}
}

func TestAnEngineThatRefusesAContextLeavesTheDeviceOff(t *testing.T) {
	r := newRig(t)
	g := r.idleGuest(defaultConfig(), true)
	r.engine.refuseWith("OpenContext", unix.ENOMEM)
	wantErrno(t, g.dev.Activate(abi.VersionMax, uarPFN), unix.ENOMEM)
	if g.dev.Active() || len(r.worker.devices) != 0 {
		t.Error("the device is on")
	}
	r.engine.refuseWith("OpenContext", nil)
	g.activate()
}
