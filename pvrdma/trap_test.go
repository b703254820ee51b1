// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// TestTheDevicesOwnIndicesAreNotReadBack: what the device has written for the guest to read is the guest's to overwrite.
func TestTheDevicesOwnIndicesAreNotReadBack(t *testing.T) {
	r, g, q, c := polledCQ(t, 8)
	for i, lie := range []uint32{0, 5, 15, 16, 1 << 31, 0xffffffff} {
		n := uint32(i)
		q.store32(q.at(txConsHead), lie)
		q.store32(q.at(rxConsHead), lie)
		c.store32(c.at(rxProdTail), lie)
		q.postSends(uint64(n))
		q.postRecv(uint64(100 + n))
		q.ring(userPage, abi.UARQPSend|abi.UARQPRecv)
		r.settle()
		if got := ids(q.engine.taken()); len(got) != 1 || got[0] != uint64(n) || q.consumed() != n+1 {
			t.Errorf("with %#x in its place: the engine took %v, the device's index is %d", lie, got, q.consumed())
		}
		var recv hostverbs.RecvWR
		if ok, err := q.engine.h.PullRecv(&recv); !ok || err != nil || recv.WRID != uint64(100+n) {
			t.Errorf("with %#x in its place: receive %d, %v, %v", lie, recv.WRID, ok, err)
		}
		if err := q.complete(hostverbs.WC{WRID: uint64(n)}); err != nil {
			t.Error(err)
		}
		if got := q.load32(q.at(rxConsHead)); got != n+1 {
			t.Errorf("with %#x in its place: the device's index of receives is %d, want %d", lie, got, n+1)
		}
		if e := c.poll(); len(e) != 1 || e[0].WRID != uint64(n) {
			t.Fatalf("with %#x in its place: completions %+v", lie, e)
		}
	}
	if v := g.seen.violations(); len(v) != 0 {
		t.Errorf("violations %v", v)
	}
}

// TestADoorbellByMessageWaitsForNobody: the guest's processor stands still until its store is answered, with interrupts off in
// the guest's kernel.
func TestADoorbellByMessageWaitsForNobody(t *testing.T) {
	r := newLiveRig(t)
	g := r.trappingGuest()
	q, _ := g.kernelQP(8)
	busy, rest := make(chan struct{}), make(chan struct{})
	go r.worker.Do(func() {
		close(busy)
		<-rest
	})
	<-busy
	rung := make(chan struct{})
	go func() {
		q.ring(0, abi.UARQPSend)
		close(rung)
	}()
	select {
	case <-rung:
	case <-time.After(10 * time.Second):
		t.Error("a doorbell waits for the worker")
	}
	close(rest)
	<-rung
}

func TestARegionThatIsDestroyedGivesAllBack(t *testing.T) {
	g := newRig(t).newGuest()
	pd := g.createPD(0)
	before := g.books()
	mr := g.createMR(pd, 3)
	g.must(&abi.CmdDestroyMRReq{Hdr: hdr(abi.CmdDestroyMR), MRHandle: mr.MRHandle}, nil)
	g.sameBooks(before)
}

// TestADoorbellByMessageWakesAWorkerThatSleeps: a worker without a page to poll sleeps until it is woken, once nothing has come for
// a while.
func TestADoorbellByMessageWakesAWorkerThatSleeps(t *testing.T) {
	r := newLiveRig(t)
	r.echo()
	g := r.trappingGuest()
	q, c := g.kernelQP(64)
	for i := range uint64(5) {
		r.asleep()
		q.postSends(i)
		q.ring(0, abi.UARQPSend)
		eventually(t, "the message is served", func() bool { return c.unread() != 0 })
		c.take()
	}
}
