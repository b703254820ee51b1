// SPDX-License-Identifier: Apache-2.0

package pcifn

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// sendAsync has the device send n events, with info counting from first on, and returns how many found room.
func (d *driver) sendAsync(first, n uint32) (sent int) {
	d.onWorker(func() {
		for i := range n {
			if d.s.events.AsyncEvent(abi.EventCommEst, first+i) {
				sent++
			}
		}
	})
	return sent
}

func TestAsynchronousEventsArriveInOrderRoundTheRing(t *testing.T) {
	d := active(t, Poll)
	next := uint32(0)
	// Bursts up to the driver's real capacity: 512 of 1536 slots.
	for _, burst := range []uint32{1, 511, 512, 7, 512, 512, 300, 512} {
		if n := d.sendAsync(next, burst); n != int(burst) {
			t.Fatalf("%d of %d events found room", n, burst)
		}
		for i, e := range d.async.asyncs() {
			if e.Info != next+uint32(i) || e.Type != abi.EventCommEst {
				t.Fatalf("event %+v where %d belongs", e, next+uint32(i))
			}
		}
		next += burst
	}
	if n := d.interrupts(); n[1] != int64(next) || n[2] != 0 {
		t.Errorf("interrupts %v for %d events", n, next)
	}
}

func TestAFullAsynchronousRingLosesNewEventsAndKeepsOldOnes(t *testing.T) {
	d := active(t, Poll)
	if n := d.sendAsync(0, 600); n != 512 {
		t.Errorf("%d events found room, want 512", n)
	}
	// Each event that is lost is an interrupt nevertheless: until its device is registered the driver takes interrupts and
	// reads no events, and would never look again at a ring that had filled up by then.
	if n := d.interrupts()[1]; n != 600 {
		t.Errorf("%d interrupts, want 600", n)
	}
	got := d.async.asyncs()
	if len(got) != 512 || got[511].Info != 511 {
		t.Fatalf("the driver reads %d events", len(got))
	}
	if n := d.sendAsync(1000, 1); n != 1 || d.async.asyncs()[0].Info != 1000 {
		t.Error("no event after the ring was read")
	}
}

func TestTheSlotsBehindTheDriversCapacityAreNeverUsed(t *testing.T) {
	d := active(t, Poll)
	for i := range uint32(5) {
		d.sendAsync(i, 512)
		d.async.asyncs()
		d.onWorker(func() {
			for h := range uint32(1024) {
				d.s.events.CQEvent(h + 1)
			}
		})
		d.cq.handles()
	}
	for name, r := range map[string]*driverRing{"async": d.async, "completion": d.cq} {
		for i := 2; i < 4; i++ {
			if !bytes.Equal(r.read(r.list[i], 4096), make([]byte, 4096)) {
				t.Errorf("page %d of the %s ring was written", i, name)
			}
		}
	}
}

func TestCompletionEventsArriveInOrderRoundTheRing(t *testing.T) {
	d := active(t, Poll)
	next := uint32(1)
	for _, burst := range []uint32{1, 1023, 1024, 5, 1024, 700, 1024} {
		d.onWorker(func() {
			for i := range burst {
				if !d.s.events.CQEvent(next + i) {
					t.Errorf("event %d of %d found no room", i, burst)
				}
			}
		})
		for i, h := range d.cq.handles() {
			if h != next+uint32(i) {
				t.Fatalf("event of %d where that of %d belongs", h, next+uint32(i))
			}
		}
		next = (next+burst)%2000 + 1
	}
	if n := d.interrupts(); n[1] != 0 || n[2] != 1+1023+1024+5+1024+700+1024 {
		t.Errorf("interrupts %v", n)
	}
}

func TestCompletionEventsWithoutRoomAreKeptAndFlushed(t *testing.T) {
	d := active(t, Poll)
	d.onWorker(func() {
		for h := range uint32(1024) {
			d.s.events.CQEvent(h + 1)
		}
		for range 3 { // how often does not matter
			for _, h := range []uint32{2000, 5, 4095, 0, 64, 63} {
				if d.s.events.CQEvent(h) {
					t.Errorf("event of %d found room in a full ring", h)
				}
			}
		}
		if d.s.events.Flush() {
			t.Error("a full ring is flushed")
		}
	})
	before := d.interrupts()[2]
	for range 2 {
		d.cq.take()
	}
	d.onWorker(func() {
		if d.s.events.Flush() {
			t.Error("six events found room for two")
		}
	})
	d.cq.take()
	d.onWorker(func() {
		if d.s.events.CQEvent(7) {
			t.Error("an event overtakes others that wait")
		}
	})
	got := d.cq.handles()
	d.onWorker(func() {
		if !d.s.events.Flush() {
			t.Error("events are left although there is room")
		}
	})
	got = append(got, d.cq.handles()...)
	if diff := cmp.Diff([]uint32{0, 5, 7, 63, 64, 2000, 4095}, got[len(got)-7:]); diff != "" || len(got) != 1021+7 {
		t.Errorf("%d events, the last (-want +got):\n%s", len(got), diff)
	}
	if n := d.interrupts()[2]; before != 1024 || n != 2 {
		t.Errorf("%d interrupts before, %d for two flushes", before, n)
	}
	d.onWorker(func() {
		if !d.s.events.CQEvent(9) {
			t.Error("an event waits in an empty ring")
		}
	})
	if got := d.cq.handles(); len(got) != 1 || got[0] != 9 {
		t.Errorf("events %v", got)
	}
}

func TestTheWorkerFlushesWhenTheGuestHasMadeRoom(t *testing.T) {
	d := active(t, Trap)
	_, cq := d.queuePair()
	d.onWorker(func() {
		for h := range uint32(1024) {
			d.s.events.CQEvent(h + 100)
		}
	})
	d.doorbell(0, abi.UARCQOffset, abi.UARCQArm|cq)
	h := d.engine.qp()
	d.onWorker(func() { _ = h.CompleteSend(&hostverbs.WC{WRID: 1}) })
	var got []uint32
	eventually(t, "the event that waited arrives", func() bool {
		got = append(got, d.cq.handles()...) // the driver makes room meanwhile
		return len(got) == 1025 && got[1024] == cq
	})
}

func TestAnInvalidIndexOfTheGuestEndsARing(t *testing.T) {
	for _, bad := range []uint32{1536, 1 << 31, 0xffffffff, 3072, 1024, 2048, 2} {
		d := active(t, Poll)
		d.sendAsync(0, 1)
		d.async.asyncs()
		d.async.store32(d.async.consHead(), bad)
		d.cq.store32(d.cq.consHead(), bad<<1|1)
		before := d.snapshot()
		d.onWorker(func() {
			for range 3 {
				if d.s.events.AsyncEvent(abi.EventCommEst, 1) || d.s.events.CQEvent(1) {
					t.Errorf("index %#x: an event was written", bad)
				}
				if !d.s.events.Flush() {
					t.Errorf("index %#x: the worker is to look at the ring for ever", bad)
				}
			}
		})
		d.unchanged(before, "the rings have ended")
		if n := d.seen.violations()[pvrdma.BadRing]; n != 2 {
			t.Errorf("index %#x: %d violations, want one for each ring", bad, n)
		}
		d.must(&abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD)}, nil) // all else goes on
	}
}

// TestRingsWhoseMemoryIsUnmappedEnd: the worker may write events between the unmapping and the look at what lay there.
func TestRingsWhoseMemoryIsUnmappedEnd(t *testing.T) {
	d := active(t, Poll)
	d.s.mem.UnmapAll()
	d.onWorker(func() {
		if d.s.events.AsyncEvent(abi.EventCommEst, 1) || d.s.events.CQEvent(1) || !d.s.events.Flush() {
			t.Error("events were written into memory that is gone")
		}
	})
	if n := d.seen.violations()[pvrdma.BadRing]; n != 2 {
		t.Errorf("%d violations, want 2", n)
	}
}

func TestMaskedInterruptsAreNotRaised(t *testing.T) {
	d := active(t, Poll)
	for _, mask := range []uint32{0xffffffff, 1, 0x80000000} {
		d.reg(abi.RegIMR, mask)
		d.interrupts()
		d.must(&abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD)}, nil)
		d.onWorker(func() {
			d.s.events.AsyncEvent(abi.EventCommEst, 1)
			d.s.events.CQEvent(1)
		})
		if n := d.interrupts(); n != [3]int64{} {
			t.Errorf("mask %#x: interrupts %v", mask, n)
		}
		if got := d.get(abi.RegIMR); got != mask {
			t.Errorf("IMR is %#x, want %#x", got, mask)
		}
		d.reg(abi.RegIMR, 0)
		d.must(&abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD)}, nil)
		d.onWorker(func() { d.s.events.AsyncEvent(abi.EventCommEst, 2) })
		if n := d.interrupts(); n != [3]int64{1, 1, 0} {
			t.Errorf("interrupts %v after the mask was lifted", n)
		}
	}
}

// TestACompletionReachesTheGuestByAllOfIt follows one completion from the engine to the interrupt.
func TestACompletionReachesTheGuestByAllOfIt(t *testing.T) {
	for _, mode := range []DoorbellMode{Poll, Trap} {
		d := active(t, mode)
		qp, cq := d.queuePair()
		d.doorbell(0, abi.UARCQOffset, abi.UARCQArm|cq)
		d.interrupts()
		h := d.engine.qp()
		d.onWorker(func() {})
		d.onWorker(func() { _ = h.CompleteSend(&hostverbs.WC{WRID: 42}) })
		if got := d.cq.handles(); len(got) != 1 || got[0] != cq {
			t.Errorf("events %v, want one of %d", got, cq)
		}
		if n := d.interrupts(); n != [3]int64{0, 0, 1} {
			t.Errorf("interrupts %v, want vector 2 once", n)
		}
		d.onWorker(func() { h.Event(hostverbs.EventCommEst) })
		if diff := cmp.Diff([]abi.EQE{{Type: abi.EventCommEst, Info: qp}}, d.async.asyncs()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if c := d.fn.Counters(); c.CQEs != 1 || c.Notifications != 1 {
			t.Errorf("counters %+v", c)
		}
	}
}
