// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

func TestAWordOfAPolledPageIsServedAndCleared(t *testing.T) {
	r, g, q, _ := polledCQ(t, 8)
	q.postSends(1, 2)
	q.ring(userPage, abi.UARQPSend)
	r.step()
	if diff := cmp.Diff([]uint64{1, 2}, ids(q.engine.taken())); diff != "" {
		t.Errorf("the engine took (-want +got):\n%s", diff)
	}
	if v := g.bells.Load32(userPage * abi.UARPageSize); v != 0 {
		t.Errorf("the word is %#x after it was served", v)
	}
	if n := g.dev.Counters().Doorbells; n != 1 {
		t.Errorf("%d doorbells are counted, want 1", n)
	}
	r.settle()
	if worked, _ := r.step(); worked {
		t.Error("an idle page is work")
	}
}

func TestAReceiveDoorbellReachesTheEngine(t *testing.T) {
	r, _, q, _ := polledCQ(t, 8)
	before := q.engine.rings()
	q.ring(userPage, abi.UARQPRecv)
	r.step()
	if q.engine.rings() <= before {
		t.Error("the engine heard nothing")
	}
}

// manyQPs returns n queue pairs of one process.
func manyQPs(g *guest, page uint64, n int) []*guestQP {
	q, c := g.rcQP(page, 8)
	all := []*guestQP{q}
	for len(all) < n {
		x := g.createQP(q.req.PDHandle, c, c)
		x.modify(hostverbs.StateRTS)
		all = append(all, x)
	}
	return all
}

func TestAWordThatHidesAnotherIsFoundByASweep(t *testing.T) {
	r := newRig(t)
	r.engine.attr.MaxQP = 1024
	g := r.newGuest()
	all := manyQPs(g, userPage, 3*sweepSlice)
	for i, q := range all {
		q.postSends(uint64(i))
		q.ring(userPage, abi.UARQPSend) // each overwrites the one before
	}
	last := all[len(all)-1]
	r.step()
	if n := len(last.engine.taken()); n != 1 {
		t.Errorf("the queue pair that the word names was served %d times at once", n)
	}
	served := 0
	for passes := 1; ; passes++ {
		now := 0
		for _, q := range all {
			now += len(q.engine.taken())
		}
		if served += now; served == len(all)-1 {
			break
		}
		if now > sweepSlice {
			t.Fatalf("%d queue pairs were swept in one pass", now)
		}
		if worked, _ := r.step(); !worked || passes > 4 {
			t.Fatalf("%d of %d hidden queue pairs were served in %d passes", served, len(all)-1, passes)
		}
	}
	r.settle()
}

func TestASweepGivesWayToANewWord(t *testing.T) {
	r := newRig(t)
	r.engine.attr.MaxQP = 1024
	g := r.newGuest()
	all := manyQPs(g, userPage, 3*sweepSlice)
	all[0].ring(userPage, abi.UARQPSend)
	r.step()
	hidden, named := all[len(all)-1], all[len(all)-2]
	hidden.postSends(1)
	hidden.ring(userPage, abi.UARQPSend)
	named.postSends(2)
	named.ring(userPage, abi.UARQPSend)
	r.step()
	if len(named.engine.taken()) != 1 {
		t.Error("a new word waits for a sweep")
	}
	r.settle()
	if len(hidden.engine.taken()) != 1 {
		t.Error("a queue pair that was rung during a sweep is not found")
	}
}

func TestASweepOfAContextWithoutQueuePairsEnds(t *testing.T) {
	r, g, q, _ := polledCQ(t, 8)
	g.must(q.destroyReq(), nil)
	g.dev.polled[0].qpSweep.left = 65535 // as after a word in a page with as many queue pairs, all destroyed
	passes := 0
	for worked := true; worked; passes++ {
		worked, _ = r.step()
	}
	if passes > 3 {
		t.Errorf("%d passes to sweep nothing", passes)
	}
}

func TestAHandleOfAnotherContextIsIgnored(t *testing.T) {
	for name, polled := range map[string]bool{"polled": true, "trapped": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			g := r.idleGuest(defaultConfig(), polled)
			g.activate()
			mine, myCQ := g.rcQP(1, 8)
			other, otherCQ := g.rcQP(2, 8)
			kernel, kernelCQ := g.kernelQP(8)
			for _, q := range []*guestQP{mine, other, kernel} {
				q.postSends(1)
				_ = q.complete(hostverbs.WC{})
			}
			for _, q := range []*guestQP{other, kernel} {
				q.ring(1, abi.UARQPSend)
				r.settle()
			}
			for _, c := range []*guestCQ{otherCQ, kernelCQ} {
				c.ring(1, abi.UARCQArm)
				r.settle()
			}
			if n := len(other.engine.taken()) + len(kernel.engine.taken()); n != 0 {
				t.Errorf("%d requests of others were served", n)
			}
			r.after(time.Second)
			r.settle()
			for _, h := range g.notifier.events() {
				if h != myCQ.handle {
					t.Errorf("queue %d was armed through another's page", h)
				}
			}
		})
	}
}

func TestTheKernelsPageMayNameAnything(t *testing.T) {
	r, g, q, c := polledCQ(t, 8)
	q.postSends(7)
	q.ring(0, abi.UARQPSend)
	c.ring(0, abi.UARCQArm)
	r.step()
	_ = q.complete(hostverbs.WC{})
	if len(q.engine.taken()) != 1 || len(g.notifier.events()) != 1 || len(g.seen.violations()) != 0 {
		t.Errorf("violations %v", g.seen.violations())
	}
}

func TestDoorbellsOfNothingAreReported(t *testing.T) {
	r := newRig(t)
	g := r.trappingGuest()
	q, c := g.rcQP(1, 8)
	for _, b := range []struct{ page, off, v uint32 }{
		{0, abi.UARQPOffset, 0x40000000 | 0xffffff},
		{0, abi.UARQPOffset, 0x40000000},
		{2, abi.UARQPOffset, 0x40000000 | q.handle},
		{0, abi.UARCQOffset, 0x40000000 | 0xffffff},
		{2, abi.UARCQOffset, 0x40000000 | c.handle},
		{1, abi.UARSRQOffset, 0x40000000},
		{1, 12, 0x40000001},
		{1, 4092, 0xffffffff},
	} {
		before := g.seen.violations()[BadDoorbell]
		g.dev.Doorbell(b.page, b.off, b.v)
		r.settle()
		if n := g.seen.violations()[BadDoorbell] - before; n != 1 {
			t.Errorf("doorbell %+v: %d violations, want 1", b, n)
		}
	}
}

func TestASharedReceiveQueueWordIsReportedAndCleared(t *testing.T) {
	r, g, _, _ := polledCQ(t, 8)
	g.ring(userPage, abi.UARSRQOffset, 0x40000001)
	r.settle()
	if n := g.seen.violations()[BadDoorbell]; n != 1 || g.bells.Load32(userPage*4096+abi.UARSRQOffset) != 0 {
		t.Errorf("%d violations", n)
	}
}

func TestDoorbellsAreTakenBeforeACommand(t *testing.T) {
	for name, polled := range map[string]bool{"polled": true, "trapped": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			g := r.idleGuest(defaultConfig(), polled)
			g.activate()
			q, c := g.rcQP(1, 8)
			q.postSends(5)
			q.ring(1, abi.UARQPSend)
			g.must(&abi.CmdQueryPortReq{Hdr: hdr(abi.CmdQueryPort), PortNum: 1}, nil)
			if got := ids(q.engine.taken()); len(got) != 1 {
				t.Errorf("the engine took %v before the command was done", got)
			}
			c.ring(1, abi.UARCQArm)
			g.must(&abi.CmdQueryPortReq{Hdr: hdr(abi.CmdQueryPort), PortNum: 1}, nil)
			_ = q.complete(hostverbs.WC{})
			r.step()
			r.after(DefaultCQGrace)
			r.step()
			if n := len(g.notifier.events()); n != 1 {
				t.Errorf("%d events, want 1", n)
			}
		})
	}
}

func TestAPageIsZeroedWhenAContextComesAndGoes(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	scribble := func() {
		for off := 0; off < abi.UARPageSize; off += 4 {
			g.bells.Store32(userPage*abi.UARPageSize+off, 0x40000001)
		}
	}
	clean := func(when string) {
		t.Helper()
		for off := 0; off < abi.UARPageSize; off += 4 {
			if v := g.bells.Load32(userPage*abi.UARPageSize + off); v != 0 {
				t.Fatalf("%s: offset %d is %#x", when, off, v)
			}
		}
	}
	scribble()
	ctx := g.createUC(userPage)
	clean("created")
	scribble()
	g.must(&abi.CmdDestroyUCReq{Hdr: hdr(abi.CmdDestroyUC), CtxHandle: ctx}, nil)
	clean("destroyed")
	g.createUC(userPage)
	scribble()
	if err := g.dev.Reset(); err != nil {
		t.Fatal(err)
	}
	clean("reset")
}

func TestPollWordsAloneKeepNobodyAwake(t *testing.T) {
	r, _, _, c := polledCQ(t, 8)
	r.settle()
	c.ring(userPage, abi.UARCQPoll)
	worked, next := r.step()
	if worked {
		t.Error("a program that polls an empty queue keeps the worker from sleeping")
	}
	if next != r.now+firstIdleStep {
		t.Errorf("the worker looks again after %v, want the first idle step", time.Duration(next-r.now))
	}
}

func TestDoorbellsByMessageAreBounded(t *testing.T) {
	r := newRig(t) // a worker that never makes a pass
	g := r.trappingGuest()
	q, _ := g.rcQP(1, 8)
	for range 10 * maxTrapped {
		q.ring(1, abi.UARQPSend)
		if n := len(g.dev.trapped.queue); n >= maxTrapped {
			t.Fatalf("%d doorbells wait", n)
		}
	}
	if n := g.dev.Counters().Doorbells; n < 9*maxTrapped {
		t.Errorf("%d doorbells were served", n)
	}
}

func TestDoorbellsOfAFailedDeviceAreDropped(t *testing.T) {
	r := newRig(t)
	g := r.trappingGuest()
	q, _ := g.rcQP(1, 8)
	calls := 0
	q.engine.beforePost = func() { calls++; panic("of the engine") }
	q.postSends(1)
	for range 3 * maxTrapped { // the worker makes no pass: the bound serves them
		q.ring(1, abi.UARQPSend)
	}
	if calls != 1 || len(g.dev.trapped.queue) >= maxTrapped || len(g.notifier.failures()) != 1 {
		t.Errorf("%d calls of the engine, %d doorbells wait, failures %v", calls, len(g.dev.trapped.queue),
			g.notifier.failures())
	}
	q.engine.beforePost = nil
}

func TestDoorbellsOfADeviceThatIsOffAreIgnored(t *testing.T) {
	g := newRig(t).idleGuest(defaultConfig(), false)
	g.dev.Doorbell(0, abi.UARQPOffset, 0x40000001)
	if g.dev.trapped.waiting.Load() != 0 || len(g.dev.trapped.queue) != 0 {
		t.Error("a doorbell waits")
	}
}

func TestRungEndsALongSleepWhereThereIsAPageToPoll(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	idle := &r.worker.idle
	ends := func() bool {
		idle.until.Store(r.now + forever)
		idle.state.Store(sleeping)
		g.dev.Rung()
		return idle.state.Load() == woken && idle.restart.Load()
	}
	if ends() {
		t.Error("a guest without a page to poll ends a sleep")
	}
	idle.state.Store(awake)
	g.user(userPage)
	if !ends() {
		t.Error("a guest with a page to poll does not end a sleep")
	}
}
