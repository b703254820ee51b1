// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// consumed returns the device's index of the send queue as the guest sees it.
func (q *guestQP) consumed() uint32 { return q.load32(q.at(txConsHead)) }

func TestSendsReachTheEngineInOrderRoundTheRing(t *testing.T) {
	r, g, q, _ := polledCQ(t, 8)
	var want, got []uint64
	for id := uint64(1); id < 60; id++ {
		q.postSends(id)
		want = append(want, id)
		if id%3 == 0 {
			q.ring(userPage, abi.UARQPSend)
			r.settle()
			got = append(got, ids(q.engine.taken())...)
			if q.consumed() != q.sprod {
				t.Fatalf("the guest sees index %d, want %d", q.consumed(), q.sprod)
			}
		}
	}
	if diff := cmp.Diff(want[:57], got); diff != "" {
		t.Errorf("the engine took (-want +got):\n%s", diff)
	}
	if n := g.dev.Counters().SendWQEs; n != 57 {
		t.Errorf("%d requests are counted", n)
	}
}

// TestACompletionIsNotSeenBeforeItsSlotIsFree: a program that keeps its send queue full posts the next request when it
// sees a completion, and the provider refuses that if the slot is still taken.
func TestACompletionIsNotSeenBeforeItsSlotIsFree(t *testing.T) {
	r, _, q, c := kernelCQ(t, 8)
	q.modify(hostverbs.StateRTS)
	q.engine.beforePost = func() {
		if err := q.engine.h.CompleteSend(&hostverbs.WC{WRID: 1}); err != nil {
			t.Error(err)
		}
	}
	seen := 0
	q.g.notifier.onCQ = func() {
		seen++
		if q.consumed() != q.sprod {
			t.Errorf("a program that is told of a completion sees index %d, want %d", q.consumed(), q.sprod)
		}
	}
	c.ring(0, abi.UARCQArm)
	q.postSends(1)
	q.ring(0, abi.UARQPSend)
	r.settle()
	if seen != 1 {
		t.Errorf("%d events, want 1", seen)
	}
}

// TestACompletionIsNotSeenBeforeTheSlotOfItsReceiveIsFree: the same of a program that keeps its receive queue full, whichever
// queue the receive is from.
func TestACompletionIsNotSeenBeforeTheSlotOfItsReceiveIsFree(t *testing.T) {
	for name, shared := range map[string]bool{"a queue of its own": false, "a shared queue": true} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t).newGuest()
			pull, posted, index, q := g.receiving(shared)
			seen := 0
			g.notifier.onCQ = func() {
				seen++
				if got := index(); got != posted {
					t.Errorf("a program that is told of a completion sees index %d, want %d", got, posted)
				}
			}
			g.rig.worker.Do(func() {
				var wr hostverbs.RecvWR
				for id := uint64(1); id <= 2; id++ {
					if ok, err := pull(&wr); !ok || err != nil || wr.WRID != id {
						t.Errorf("pulled %t, %v, %d", ok, err, wr.WRID)
					}
					if err := q.engine.h.CompleteRecv(&hostverbs.WC{WRID: id, Opcode: hostverbs.WCOpRecv}); err != nil {
						t.Error(err)
					}
				}
				if got := index(); got != 0 {
					t.Errorf("the index is %d before anything is shown: it is stored once for all", got)
				}
			})
			g.rig.settle()
			if seen != 1 {
				t.Errorf("%d events, want 1", seen)
			}
		})
	}
}

// receiving returns a queue pair of the guest kernel whose completions are armed, how its two receives are taken, how many there
// are, and how the index is read that says which slots are free.
func (g *guest) receiving(shared bool) (pull func(*hostverbs.RecvWR) (bool, error), posted uint32, index func() uint32, q *guestQP) {
	pd, c := g.createPD(0), g.createCQ(0, 8)
	if shared {
		s := g.createSRQ(pd, 8)
		s.post(1)
		s.post(2)
		q = g.createQP(pd, c, c, withSRQ(s))
		pull, index = s.engine.h.PullRecv, func() uint32 { return s.load32(s.at(rxConsHead)) }
	} else {
		q = g.createQP(pd, c, c)
		q.postRecv(1)
		q.postRecv(2)
		pull, index = q.engine.h.PullRecv, func() uint32 { return q.load32(q.at(rxConsHead)) }
	}
	q.modify(hostverbs.StateRTS)
	c.ring(0, abi.UARCQArm)
	g.rig.settle() // it is armed before anything is there
	return pull, 2, index, q
}

func TestAFullSendQueueGoesInBatches(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	pd, c := g.createPD(0), g.createCQ(0, 8)
	q := g.createQP(pd, c, c, func(r *abi.CmdCreateQPReq) { r.MaxSendWR = 256 })
	q.modify(hostverbs.StateRTS)
	var want []uint64
	for id := range uint64(256) {
		want = append(want, id)
	}
	q.postSends(want...)
	q.engine.offered = nil
	q.ring(0, abi.UARQPSend)
	r.step()
	if n := len(q.engine.posted); n != hostverbs.VisitWRs {
		t.Errorf("%d requests were served in one pass, want %d", n, hostverbs.VisitWRs)
	}
	r.settle()
	if diff := cmp.Diff(want, ids(q.engine.taken())); diff != "" {
		t.Errorf("the engine took (-want +got):\n%s", diff)
	}
	for _, n := range q.engine.offered {
		if n > sendBatch {
			t.Errorf("a batch of %d", n)
		}
	}
}

func TestAnotherQueuePairGetsItsTurnWhileALongQueueIsServed(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	pd, c := g.createPD(0), g.createCQ(0, 8)
	long := g.createQP(pd, c, c, func(r *abi.CmdCreateQPReq) { r.MaxSendWR = 256 })
	short := g.createQP(pd, c, c)
	long.modify(hostverbs.StateRTS)
	short.modify(hostverbs.StateRTS)
	for id := range uint64(256) {
		long.postSends(id)
	}
	short.postSends(1)
	long.ring(0, abi.UARQPSend)
	short.ring(0, abi.UARQPSend)
	for range 3 { // the long queue has the first two visits, as it was rung first
		r.step()
	}
	if len(short.engine.taken()) != 1 {
		t.Error("a short queue waits for a long one")
	}
	r.settle()
}

func TestWhatTheEngineDoesNotTakeIsOfferedAgainWhenItIsReady(t *testing.T) {
	r, _, q, _ := polledCQ(t, 8)
	q.engine.setRoom(3)
	q.postSends(1, 2, 3, 4, 5)
	q.ring(userPage, abi.UARQPSend)
	r.settle()
	if diff := cmp.Diff([]uint64{1, 2, 3}, ids(q.engine.taken())); diff != "" {
		t.Errorf("the engine took (-want +got):\n%s", diff)
	}
	if q.consumed() != 3 {
		t.Errorf("the guest sees index %d, want 3", q.consumed())
	}
	q.engine.setRoom(1)
	for range 100 {
		q.engine.h.SendReady()
	}
	if n := q.g.dev.ready.len(); n != 1 {
		t.Errorf("the queue pair waits for %d turns, want 1", n)
	}
	r.settle()
	q.engine.setRoom(-1)
	q.engine.h.SendReady()
	r.settle()
	if diff := cmp.Diff([]uint64{4, 5}, ids(q.engine.taken())); diff != "" {
		t.Errorf("the engine took (-want +got):\n%s", diff)
	}
}

func TestRequestsPostedBelowRTSAreServedWhenItIsReached(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	pd, c := g.createPD(0), g.createCQ(0, 8)
	q := g.createQP(pd, c, c)
	q.modify(hostverbs.StateInit)
	q.postSends(1)
	q.ring(0, abi.UARQPSend)
	r.settle()
	if len(q.engine.taken()) != 0 || q.consumed() != 0 {
		t.Error("a request was served in INIT")
	}
	q.modify(hostverbs.StateRTS) // no doorbell after it
	r.settle()
	if len(q.engine.taken()) != 1 {
		t.Error("the request was not served in RTS")
	}
}

func TestRequestsPostedInErrorAreFlushed(t *testing.T) {
	r, _, q, c := polledCQ(t, 8)
	q.modify(hostverbs.StateErr)
	q.postSends(1)
	q.ring(userPage, abi.UARQPSend)
	r.settle()
	q.putSend(sendWQE(abi.SendWQEHdr{WRID: 2, Opcode: abi.WRRDMAWrite}, nil)) // as ib_drain_qp does: not signalled
	q.publishSends()
	q.ring(userPage, abi.UARQPSend)
	before := q.engine.rings()
	q.ring(userPage, abi.UARQPRecv)
	r.settle()
	if es := c.poll(); len(es) != 2 || es[0].Status != abi.WCWRFlushErr || es[1].WRID != 2 {
		t.Errorf("entries %+v, want two flushes", es)
	}
	if q.engine.rings() == before {
		t.Error("a receive doorbell did not reach the engine")
	}
}

func TestAnInvalidIndexEndsTheQueuePairOnce(t *testing.T) {
	const n = 8
	for _, bad := range []uint32{2 * n, 0xffffffff, ^uint32(n - 1), 1 << 31, n + 4 + 1, 2*n - 1} {
		r, g, q, _ := polledCQ(t, 8)
		q.postSends(1, 2, 3, 4)
		q.ring(userPage, abi.UARQPSend)
		r.settle()
		q.store32(q.at(txProdTail), bad) // the device is at 4
		for range 3 {
			q.ring(userPage, abi.UARQPSend)
			r.settle()
		}
		if diff := cmp.Diff([]asyncRecord{{abi.EventQPFatal, q.handle}}, g.notifier.asyncs()); diff != "" {
			t.Errorf("index %#x: events (-want +got):\n%s", bad, diff)
		}
		if got := q.engine.failed(); got != 1 || len(q.engine.taken()) != 4 {
			t.Errorf("index %#x: the queue pair failed %d times", bad, got)
		}
		if v := g.seen.violations(); v[BadRing] != 1 || len(v) != 1 || len(g.notifier.failures()) != 0 {
			t.Errorf("index %#x: violations %v", bad, v)
		}
		if q.consumed() != 4 {
			t.Errorf("index %#x: the device's index is %d", bad, q.consumed())
		}
		// What the engine flushes is still delivered, and a reset brings the queue pair back.
		q.reset()
		q.modify(hostverbs.StateRTS)
		q.postSends(9)
		q.ring(userPage, abi.UARQPSend)
		r.settle()
		if got := ids(q.engine.taken()); len(got) != 1 || got[0] != 9 {
			t.Errorf("index %#x: after a reset the engine took %v", bad, got)
		}
	}
}

func TestAnInvalidReceiveIndexEndsTheQueuePairOnce(t *testing.T) {
	for _, bad := range []uint32{16, 0xffffffff, ^uint32(7), 9} {
		r, g, q, _ := polledCQ(t, 8)
		q.store32(q.at(rxProdTail), bad)
		var wr hostverbs.RecvWR
		for range 3 {
			if ok, err := q.engine.h.PullRecv(&wr); ok || err != nil {
				t.Errorf("index %#x: pulled %v, %v", bad, ok, err)
			}
		}
		r.settle()
		if diff := cmp.Diff([]asyncRecord{{abi.EventQPFatal, q.handle}}, g.notifier.asyncs()); diff != "" {
			t.Errorf("index %#x: events (-want +got):\n%s", bad, diff)
		}
		if q.engine.failed() != 1 {
			t.Errorf("index %#x: failed %d times", bad, q.engine.failed())
		}
	}
}

func TestTooManyElementsFailOneRequestAndTheQueueGoesOn(t *testing.T) {
	for _, n := range []uint32{3, 0x80000000, 0xffffffff} { // the queue allows 2
		r, g, q, _ := polledCQ(t, 8)
		q.putSend(sendWQE(abi.SendWQEHdr{WRID: 1, NumSGE: n, Opcode: abi.WRSend}, nil))
		q.postSends(2)
		q.ring(userPage, abi.UARQPSend)
		r.settle()
		got := q.engine.taken()
		if len(got) != 2 || got[0].WRID != 1 || got[0].Status != hostverbs.WCLocQPOpErr || got[0].NumSGE != 0 ||
			got[1].Status != hostverbs.WCSuccess {
			t.Errorf("%#x elements: the engine took %+v", n, got)
		}
		q.postRecvHdr(abi.RecvWQEHdr{WRID: 3, NumSGE: n})
		q.postRecv(4)
		var wr hostverbs.RecvWR
		ok, err := q.engine.h.PullRecv(&wr)
		if !ok || err != nil || wr.WRID != 3 || wr.Status != hostverbs.WCLocQPOpErr || wr.NumSGE != 0 {
			t.Errorf("%#x elements: pulled %v, %v, %+v", n, ok, err, wr)
		}
		if ok, err = q.engine.h.PullRecv(&wr); !ok || err != nil || wr.WRID != 4 || wr.Status != hostverbs.WCSuccess {
			t.Errorf("%#x elements: pulled %v, %v, %+v", n, ok, err, wr)
		}
		if v := g.seen.violations(); v[BadWQE] != 2 || len(v) != 1 || q.engine.failed() != 0 {
			t.Errorf("%#x elements: violations %v", n, v)
		}
	}
}

// TestARequestThatIsWrongIsCountedOnce: the engine takes it at the third offer.
func TestARequestThatIsWrongIsCountedOnce(t *testing.T) {
	for name, hdr := range map[string]abi.SendWQEHdr{
		"an opcode":         {WRID: 1, Opcode: abi.WRFastRegMR},
		"too many elements": {WRID: 1, NumSGE: 100, Opcode: abi.WRSend},
	} {
		r, g, q, _ := polledCQ(t, 8)
		q.engine.setRoom(0)
		q.putSend(sendWQE(hdr, nil))
		q.publishSends()
		q.ring(userPage, abi.UARQPSend)
		r.settle()
		q.engine.h.SendReady()
		r.settle()
		if v := g.seen.violations(); len(v) != 0 {
			t.Errorf("%s: nothing is taken, and counted are %v", name, v)
		}
		q.engine.setRoom(-1)
		q.engine.h.SendReady()
		r.settle()
		if v := g.seen.violations(); v[BadWQE] != 1 || len(v) != 1 || len(q.engine.taken()) != 1 {
			t.Errorf("%s: counted are %v, want one request", name, v)
		}
	}
}

func TestReceivesArePulledInOrderRoundTheRing(t *testing.T) {
	_, g, q, _ := polledCQ(t, 8)
	var wr hostverbs.RecvWR
	for id := uint64(1); id < 50; id += 5 {
		for k := range uint64(5) {
			q.postRecv(id+k, abi.SGE{Addr: id + k, Length: 100, LKey: 7}, abi.SGE{Addr: 1, Length: 2, LKey: 3})
		}
		for k := range uint64(5) {
			ok, err := q.engine.h.PullRecv(&wr)
			if !ok || err != nil || wr.WRID != id+k || wr.NumSGE != 2 {
				t.Fatalf("pulled %v, %v, %+v, want %d", ok, err, wr, id+k)
			}
			want := [2]hostverbs.SGE{{Addr: id + k, Length: 100, LKey: 7}, {Addr: 1, Length: 2, LKey: 3}}
			if diff := cmp.Diff(want[:], wr.SGE[:2]); diff != "" {
				t.Fatalf("elements (-want +got):\n%s", diff)
			}
		}
		if ok, err := q.engine.h.PullRecv(&wr); ok || err != nil {
			t.Fatalf("pulled %v, %v from an empty queue", ok, err)
		}
		g.rig.worker.show()
		if got := q.load32(q.at(rxConsHead)); got != q.rprod {
			t.Fatalf("the guest sees index %d, want %d", got, q.rprod)
		}
	}
	if n := g.dev.Counters().RecvWQEs; n != 50 {
		t.Errorf("%d requests are counted", n)
	}
}
