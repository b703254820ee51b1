// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// A queue whose memory was unmapped ends in order, also if a message finds that out before the unmapping has: nothing of what
// others have left with the engine is dropped.

// softGuest is a guest of the embedded engine, with an address.
func softGuest(t *testing.T) (*rig, *guest) {
	t.Helper()
	s := softSubject(t, hostverbs.QPTypeRC)
	s.must(&abi.CmdDestroyQPReq{Hdr: hdr(abi.CmdDestroyQP), QPHandle: s.q.handle}, nil)
	return s.rig, s.guest
}

// loop brings a queue pair of the embedded engine to RTS, connected with itself.
func (q *guestQP) loop() {
	q.t.Helper()
	for _, to := range []hostverbs.QPState{hostverbs.StateInit, hostverbs.StateRTR, hostverbs.StateRTS} {
		mask, _, _ := hostverbs.Transition(hostverbs.QPTypeRC, to-1, to)
		req := &abi.CmdModifyQPReq{
			Hdr: hdr(abi.CmdModifyQP), QPHandle: q.handle, Attrs: goodAttrs(to-1, to),
			AttrMask: abi.QPAttrMask(mask | hostverbs.QPStateMask),
		}
		req.Attrs.DestQPNum, req.Attrs.RQPSN, req.Attrs.SQPSN = q.dev().engine.QPN(), 7, 7
		req.Attrs.AHAttr.GRH.DGID = abi.GID{0: 0xfe, 1: 0x80, 15: 1}
		req.Attrs.RNRRetry = 7
		q.g.must(req, nil)
	}
}

// TestWorkIsFlushedWhenACompletionFindsItsQueueGone: the other completion queue gets all that was posted, and the kernel its
// sign that nothing more is taken from the shared receive queue.
func TestWorkIsFlushedWhenACompletionFindsItsQueueGone(t *testing.T) {
	r, g := softGuest(t)
	pd := g.createPD(0)
	sent := g.createCQ(0, 16)
	var received *guestCQ
	g.inUpperHalf(func() { received = g.createCQ(0, 16) })
	s := g.createSRQ(pd, 8)
	q := g.createQP(pd, sent, received, withSRQ(s))
	q.loop()
	for id := range uint64(3) {
		s.post(id)
	}
	q.postSends(11)
	q.ring(0, abi.UARQPSend)
	r.settle()
	sent.poll()

	g.unplug() // and nothing has looked for what lies there
	q.postSends(12, 13, 14)
	q.ring(0, abi.UARQPSend)
	r.settle()
	q.postSends(15)
	q.ring(0, abi.UARQPSend)
	r.settle()

	var got []uint64
	for _, e := range sent.poll() {
		got = append(got, e.WRID)
	}
	if len(got) == 0 || got[len(got)-1] != 15 {
		t.Errorf("completions of %v; the last request that was posted is to be flushed", got)
	}
	want := []asyncRecord{{abi.EventCQErr, received.handle}, {abi.EventQPLastWQEReached, q.handle}}
	if diff := cmp.Diff(want, g.notifier.asyncs()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if len(g.notifier.failures()) != 0 {
		t.Errorf("failures %v", g.notifier.failures())
	}
}

// TestAQueuePairThatHasEndedStillSaysThatItTakesNothingMore: the kernel waits for it before it destroys the queue pair, and for
// ever.
func TestAQueuePairThatHasEndedStillSaysThatItTakesNothingMore(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	_, q, other, _ := g.sharing(userPage)
	q.store32(q.at(txProdTail), 99)
	q.ring(0, abi.UARQPSend)
	r.settle()
	h := q.engine.h
	h.Event(hostverbs.EventCommEst) // of no interest any more
	h.Event(hostverbs.EventQPLastWQEReached)
	want := []asyncRecord{{abi.EventQPFatal, q.handle}, {abi.EventQPLastWQEReached, q.handle}}
	if diff := cmp.Diff(want, g.notifier.asyncs()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	g.must(q.destroyReq(), nil)
	h.Event(hostverbs.EventQPLastWQEReached)
	if got := g.notifier.asyncs(); len(got) != 0 || other.engine.failed() != 0 {
		t.Errorf("events %v of a queue pair that was destroyed", got)
	}
}

// TestTheEndOfACompletionQueueIsToldUnderGuard: the queue's memory was unmapped, and that of the ring in which the guest is told
// of it fails, in the middle of the engine's work.
func TestTheEndOfACompletionQueueIsToldUnderGuard(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	ring, fd := g.truncatable(1)
	ctx, pd := g.user(userPage)
	var c *guestCQ
	g.inUpperHalf(func() { c = g.createCQ(ctx, 8) })
	q := g.createQP(pd, c, c)
	q.modify(hostverbs.StateRTS)
	g.notifier.onAsync = func() { g.store(ring) }
	truncate(t, fd)
	g.unplug()
	var err error
	returned := false
	r.engine.onProgress(func(int64) (bool, int64) {
		err = q.engine.h.CompleteRecv(&hostverbs.WC{})
		returned = true
		return true, 0
	})

	r.step()

	r.engine.onProgress(nil)
	g.notifier.onAsync = nil
	var fault *guestmem.FaultError
	if !returned || !errors.As(err, &fault) {
		t.Errorf("the completion returned %t with %v, want a fault of the guest's memory", returned, err)
	}
	if n := len(g.notifier.failures()); n != 1 {
		t.Errorf("the guest failed %d times, want once", n)
	}
	_ = g.dev.Reset()
	ring.Release()
}

// truncatable gives the guest a page of memory in a file, which the test can take away.
func (g *guest) truncatable(pages int) (*guestmem.Pages, int) {
	g.t.Helper()
	fd, err := unix.MemfdCreate("guest-ram", unix.MFD_CLOEXEC)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = unix.Close(fd) })
	if err := errors.Join(unix.Ftruncate(fd, int64(pages)*abi.PageSize),
		g.space.Map(fileBase, uint64(pages)*abi.PageSize, fd, 0, rw)); err != nil {
		g.t.Fatal(err)
	}
	p, err := g.space.Pin([]uint64{fileBase}, rw)
	if err != nil {
		g.t.Fatal(err)
	}
	return p, fd
}
