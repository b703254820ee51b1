// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"encoding/binary"
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/vfio"
	"golang.org/x/sys/unix"
)

const (
	msix      = 2
	triggerFD = vfio.IRQDataEventFD | vfio.IRQActionTrigger
)

func newEventFD(t *testing.T) int {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) }) // nothing was written that matters
	return fd
}

// count takes what an eventfd has counted.
func count(fd int) uint64 {
	var b [8]byte
	if _, err := unix.Read(fd, b[:]); err != nil {
		return 0
	}
	return binary.NativeEndian.Uint64(b[:])
}

// request runs QUERY_PORT with the registers alone and returns what ERR says. The read of ERR waits for the command.
func queryPortByHand(t *testing.T, g *testguest.Guest) uint32 {
	t.Helper()
	slot, err := g.RAM.Bytes(g.Dev.DSR().Get("cmd_slot_dma"), g.L.Size("pvrdma_cmd_req"))
	if err != nil {
		t.Fatal(err)
	}
	copy(slot, g.L.New("pvrdma_cmd_query_port").Set("hdr.cmd", uint64(g.Const("PVRDMA_CMD_QUERY_PORT"))).
		Set("port_num", 1).Bytes())
	if err := g.Dev.WriteReg("PVRDMA_REG_REQUEST", 0); err != nil {
		t.Fatal(err)
	}
	v, err := g.Dev.ReadReg("PVRDMA_REG_ERR")
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestAnInterruptThatFindsNoEventfdIsDeliveredOnceThereIsOne(t *testing.T) {
	d := startDaemon(t, "poll")
	g := d.guest("a")
	if err := g.Func.SetIRQs(triggerFD, msix, 0, 1); err != nil { // takes vector 0 back, as QEMU does on a mask
		t.Fatal(err)
	}
	for range 3 {
		if v := queryPortByHand(t, g); v != 0 {
			t.Fatalf("ERR is %d", v)
		}
	}
	fd := newEventFD(t)
	if err := g.Func.SetIRQs(triggerFD, msix, 0, 1, fd); err != nil {
		t.Fatal(err)
	}
	if n := count(fd); n != 1 {
		t.Errorf("%d interrupts after three commands without an eventfd, want 1", n)
	}
	if v := queryPortByHand(t, g); v != 0 || count(fd) != 1 {
		t.Errorf("the next command: ERR %d, want 0 and one interrupt", v)
	}
	g.Reboot()
}

// The response is there and its interrupt raised by the time ERR is read: a late interrupt could complete the next
// command.
func TestTheReadOfERRComesAfterTheResponseAndItsInterrupt(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		g := d.guest("a")
		fd := newEventFD(t)
		if err := g.Func.SetIRQs(triggerFD, msix, 0, 1, fd); err != nil {
			t.Fatal(err)
		}
		slot, err := g.RAM.Bytes(g.Dev.DSR().Get("resp_slot_dma"), g.L.Size("pvrdma_cmd_resp"))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 200 {
			clear(slot)
			v := queryPortByHand(t, g)
			ack := g.L.View("pvrdma_cmd_resp_hdr", slot).Get32("ack")
			if v != 0 || ack != g.Const("PVRDMA_CMD_QUERY_PORT_RESP") || count(fd) != 1 {
				t.Fatalf("command %d: ERR %d, ack %#x, or not one interrupt", i, v, ack)
			}
		}
		g.Reboot()
	})
}

func TestMaskedInterruptsAreNotRaised(t *testing.T) {
	d := startDaemon(t, "poll")
	g := d.guest("a")
	fd := newEventFD(t)
	if err := g.Func.SetIRQs(triggerFD, msix, 0, 1, fd); err != nil {
		t.Fatal(err)
	}
	if err := g.Dev.WriteReg("PVRDMA_REG_IMR", ^uint32(0)); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Dev.ReadReg("PVRDMA_REG_ICR"); err != nil { // reading clears it
		t.Fatal(err)
	}
	if v := queryPortByHand(t, g); v != 0 {
		t.Fatalf("ERR is %d", v)
	}
	if n := count(fd); n != 0 {
		t.Errorf("%d interrupts while all are masked", n)
	}
	icr, err := g.Dev.ReadReg("PVRDMA_REG_ICR")
	if err != nil || icr != g.Const("PVRDMA_INTR_CAUSE_RESPONSE") {
		t.Errorf("ICR is %#x after a response, error %v; a driver without MSI-X wants exactly 1", icr, err)
	}
	g.Reboot()
}

// Events that come before the driver has registered its device stay in their ring, which has room for 512.
func TestEventsBeyondTheirRingAreDroppedAndTheRingStaysSound(t *testing.T) {
	d := startDaemon(t, "poll")
	n := d.neighbour()
	o := guestOptions("a")
	o.ProbeOnly = true // so asynchronous events are not taken
	g := testguest.Start(t, d.socket("a"), o)
	if err := g.Dev.CreateBind(0, [16]byte{0xfe, 0x80, 15: 9}, gidType(g)); err != nil {
		t.Fatal(err)
	}
	g.GIDs = [][16]byte{{0xfe, 0x80, 15: 9}}
	e := g.Open().Endpoint(testguest.Shape{Depth: 4})
	const ring, raised = 512, 540
	for i := range raised {
		spoilAndReset(t, e, i)
	}
	produced := g.Dev.AsyncRing().Prod()
	if produced != ring {
		t.Errorf("the producer's index is %d after %d events, want %d", produced, raised, ring)
	}
	g.Dev.Registered()
	spoilAndReset(t, e, raised) // its interrupt is the one at which the driver looks
	for i := range ring {
		ev, err := g.Dev.WaitAsync(testguest.Patience)
		if err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
		if ev.Type != g.Const("PVRDMA_EVENT_QP_FATAL") || ev.Info != e.QP.Handle {
			t.Fatalf("event %d is %+v", i, ev)
		}
	}
	for i := range ring { // around the ring's end
		spoilAndReset(t, e, i)
		awaitEvent(t, g, "QP_FATAL", e.QP.Handle)
	}
	if _, err := g.Dev.EventStats(); err != nil {
		t.Error(err)
	}
	n.check()
}

// spoilAndReset makes a queue pair fail, which is one event, and takes it back to INIT.
func spoilAndReset(t *testing.T, e *testguest.Endpoint, i int) {
	t.Helper()
	if err := e.QP.ToInit(*e.Shape.Tuning); err != nil {
		t.Fatalf("round %d: %v", i, err)
	}
	send, _ := e.QP.Rings()
	send.SetProd(1 << 30)
	if err := e.QP.RingSend(); err != nil {
		t.Fatal(err)
	}
	if v, err := e.QP.Query(); err != nil { // a device takes its doorbells before each command
		t.Fatal(err)
	} else if v.Get32("qp_state") != e.P.G.Const("PVRDMA_QPS_ERR") {
		e.StateIs("ERR")
	}
	if err := e.QP.Reset(); err != nil {
		t.Fatalf("round %d: %v", i, err)
	}
}
