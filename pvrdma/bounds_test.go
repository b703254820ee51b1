// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// manyCQs returns n completion queues of one process, all in the same memory, each with an entry that nobody has read.
func manyCQs(g *guest, n int) []*completionQueue {
	g.t.Helper()
	ctx, _ := g.user(userPage)
	first := g.createCQ(ctx, 8)
	all := []*completionQueue{first.dev()}
	for len(all) < n {
		var r abi.CmdCreateCQResp
		g.must(&abi.CmdCreateCQReq{
			Hdr: hdr(abi.CmdCreateCQ), PDirDMA: first.pdir, CtxHandle: ctx, CQE: 8, NChunks: uint32(abi.CQPages(8)),
		}, &r)
		all = append(all, g.dev.cqs.get(r.CQHandle))
	}
	for _, c := range all {
		if err := c.push(&abi.CQE{}, false); err != nil {
			g.t.Fatal(err)
		}
	}
	g.rig.worker.show()
	return all
}

func TestAWordAndAGraceTimeOfManyCompletionQueuesTakeManyPasses(t *testing.T) {
	// Arrange
	const n = 5*passLooks + 1
	r := newRig(t)
	r.engine.attr.MaxCQ = 2 * n
	g := r.newGuest()
	manyCQs(g, n)

	// Act: a word, which speaks for all of them.
	g.ring(userPage, abi.UARCQOffset, abi.UARCQArm)
	for looked := 0; looked < n; {
		worked, _ := r.step()
		now := g.dev.graced.len()
		if now-looked > sweepSlice {
			t.Fatalf("%d queues were looked at in one pass", now-looked)
		}
		if now == looked || (now < n && !worked) {
			t.Fatalf("%d of %d queues were looked at, and no more", now, n)
		}
		looked = now
	}

	// Act: all grace times end at once.
	r.after(DefaultCQGrace)
	for notified := 0; notified < n; {
		_, next := r.step()
		now := len(g.notifier.events())
		if now > passLooks {
			t.Fatalf("%d queues were notified in one pass", now)
		}
		if notified += now; now == 0 || (notified < n && next > r.now) {
			t.Fatalf("%d of %d queues were notified, and the worker comes again at %d (now %d)", notified, n, next, r.now)
		}
	}
}

func TestDoorbellsByMessageTakeManyPasses(t *testing.T) {
	const n = maxTrapped - 1
	r := newRig(t)
	g := r.trappingGuest()
	q, _ := g.rcQP(1, 8)
	before := g.dev.Counters().Doorbells
	for range n {
		q.ring(1, abi.UARQPSend)
	}
	for served := uint64(0); served < n; {
		worked, _ := r.step()
		now := g.dev.Counters().Doorbells - before - served
		if now > passLooks || now == 0 || !worked {
			t.Fatalf("%d doorbells were served in one pass, after %d of %d", now, served, n)
		}
		served += now
	}
	if worked, _ := r.step(); worked {
		t.Error("there is still work")
	}
}

func TestAllDoorbellsAreTakenBeforeACommandHoweverMany(t *testing.T) {
	r := newRig(t)
	g := r.trappingGuest()
	q, _ := g.rcQP(1, 8)
	before := g.dev.Counters().Doorbells
	for range maxTrapped - 1 {
		q.ring(1, abi.UARQPSend)
	}
	g.must(&abi.CmdQueryPortReq{Hdr: hdr(abi.CmdQueryPort), PortNum: 1}, nil)
	if n := g.dev.Counters().Doorbells - before; n != maxTrapped-1 {
		t.Errorf("%d of %d doorbells were served before the command", n, maxTrapped-1)
	}
}

func TestAQueuePairOfAFailedCompletionQueueIsSeenInErrorAtOnce(t *testing.T) {
	r := newRig(t)
	r.engine.attr.MaxQP = 1024
	g := r.newGuest()
	q, _ := g.rcQP(userPage, 8)
	all := twins(q, 2*passLooks)
	r.settle()
	all[0].sendCQ.fail()
	last := all[len(all)-1]
	g.must(&abi.CmdQueryQPReq{Hdr: hdr(abi.CmdQueryQP), QPHandle: last.handle}, nil)
	if n := last.engine.(*fakeQP).failed(); n != 1 {
		t.Errorf("a queue pair had failed %d times when its state was asked for, want 1", n)
	}
	r.settle()
}

// twins returns n queue pairs with the completion queues of q, all in the memory of q.
func twins(q *guestQP, n int) []*queuePair {
	q.t.Helper()
	all := []*queuePair{q.dev()}
	for len(all) < n {
		var r abi.CmdCreateQPRespV2
		q.g.must(&q.req, &r)
		all = append(all, q.g.dev.qps.get(r.QPHandle))
		q.g.must(&abi.CmdModifyQPReq{
			Hdr: hdr(abi.CmdModifyQP), QPHandle: r.QPHandle, AttrMask: abi.QPMaskState,
			Attrs: abi.QPAttr{QPState: abi.QPState(hostverbs.StateRTS)},
		}, nil)
	}
	return all
}

func TestACompletionQueueThatFailsTakesItsQueuePairsAlongInManyPasses(t *testing.T) {
	const n = 5*passLooks + 1
	r := newRig(t)
	r.engine.attr.MaxQP = 2 * n
	g := r.newGuest()
	q, _ := g.rcQP(userPage, 8)
	all := twins(q, n)
	other := g.createQP(q.req.PDHandle, g.createCQ(all[0].ctx.handle, 8), g.createCQ(all[0].ctx.handle, 8))

	r.settle()
	all[0].sendCQ.fail()
	failed := func() (k int) {
		for _, q := range all {
			k += q.engine.(*fakeQP).failed()
		}
		return k
	}
	for found, done := 0, 0; done < n; {
		worked, _ := r.step()
		nowDone := failed()
		nowFound := nowDone + g.dev.ready.len()
		if nowDone-done > passLooks || nowFound-found > passLooks {
			t.Fatalf("%d queue pairs were found and %d failed in one pass", nowFound-found, nowDone-done)
		}
		if !worked {
			t.Fatalf("%d of %d queue pairs failed, and no more", nowDone, n)
		}
		found, done = nowFound, nowDone
	}
	r.settle()
	if failed() != n || other.engine.failed() != 0 {
		t.Errorf("%d queue pairs of %d failed, and %d with another completion queue", failed(), n, other.engine.failed())
	}
}

func TestASweepFindsWhatIsHiddenAlthoughTheListChanges(t *testing.T) {
	r := newRig(t)
	r.engine.attr.MaxQP = 1024
	g := r.newGuest()
	all := manyQPs(g, userPage, 4*sweepSlice)
	r.settle()

	// One slice is looked at in a pass, and the next before the command, which moves all behind its queue pair forward.
	hidden := all[2*sweepSlice]
	hidden.postSends(1)
	g.dev.polled[0].qpSweep.at = 0
	all[0].ring(userPage, abi.UARQPSend)
	r.step()
	g.must(all[5].destroyReq(), nil)
	if len(hidden.engine.taken()) != 0 {
		t.Fatal("the sweep has passed the queue pair already, which proves nothing")
	}
	r.settle()
	if n := len(hidden.engine.taken()); n != 1 {
		t.Errorf("the hidden queue pair had %d requests served, want 1", n)
	}
}

func TestAGuestWithLittleToDoIsServedInEveryPassAndBusyOnesTakeTurns(t *testing.T) {
	// Arrange: guests with more to do than a visit's worth, and one that has a request now and then.
	const busy, rounds = 4, 12
	r := newRig(t)
	r.engine.attr.MaxQP = 1024
	quiet := r.newGuest()
	q, _ := quiet.rcQP(userPage, 8)
	var queues [busy][]*guestQP
	for i := range queues {
		g := r.newGuest()
		queues[i] = manyQPs(g, userPage, 2*rounds*hostverbs.VisitWRs/8)
		flood(queues[i], 1)
	}
	taken := func(all []*guestQP) (n int) {
		for _, q := range all {
			n += len(q.engine.taken())
		}
		return n
	}
	r.step() // each guest's first visit shows that it has more to do
	for _, all := range queues {
		taken(all)
	}

	// Act, assert
	var each [busy]int
	for pass := range busy * rounds {
		q.postSends(uint64(pass))
		q.ring(userPage, abi.UARQPSend)
		r.step()
		if n := len(q.engine.taken()); n != 1 {
			t.Fatalf("pass %d: the quiet guest had %d requests served, want 1", pass, n)
		}
		sum := 0
		for i, all := range queues {
			n := taken(all)
			each[i] += n
			sum += n
		}
		if sum > hostverbs.VisitWRs || sum == 0 {
			t.Fatalf("pass %d: %d requests of busy guests were served, want a visit's worth", pass, sum)
		}
	}
	for i, n := range each {
		if n < rounds*hostverbs.VisitWRs/2 || n < each[0]-hostverbs.VisitWRs || n > each[0]+hostverbs.VisitWRs {
			t.Errorf("busy guest %d had %d requests served in %d visits, busy guest 0 had %d", i, n, rounds, each[0])
		}
	}
}

func TestAVisitIsShorterWhileMoreThanOneDeviceSends(t *testing.T) {
	// Arrange: a guest with long messages, and another.
	r := newRig(t)
	r.engine.attr.MaxQP = 1024
	busy, other := r.newGuest(), r.newGuest()
	all := manyQPs(busy, userPage, 64)
	q, _ := other.rcQP(userPage, 8)
	flood(all, shareBytes)
	taken := func() (n int) {
		r.step()
		for _, q := range all {
			n += len(q.engine.taken())
		}
		return n
	}
	if n := taken(); n != hostverbs.VisitWRs {
		t.Errorf("the only device that sends had %d requests of %d bytes served, want %d", n, shareBytes, hostverbs.VisitWRs)
	}

	// Act: the other one sends once.
	q.postSends(1)
	q.ring(userPage, abi.UARQPSend)
	r.step()
	taken()

	// Assert
	if n := taken(); n > hostverbs.VisitWRs/4 || n == 0 {
		t.Errorf("one of two devices that send had %d requests of %d bytes served, want %d at most", n, shareBytes,
			hostverbs.VisitWRs/4)
	}
	r.now += crowdedFor
	if n := taken(); n != hostverbs.VisitWRs {
		t.Errorf("long after the other had sent, %d requests were served, want %d", n, hostverbs.VisitWRs)
	}
}
