// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// kernelCQ returns a queue pair of the guest kernel, whose doorbells are exact.
func kernelCQ(t *testing.T, cqe uint32) (*rig, *guest, *guestQP, *guestCQ) {
	t.Helper()
	r := newRig(t)
	g := r.newGuest()
	q, c := g.kernelQP(cqe)
	return r, g, q, c
}

func TestACompletionHasAllFieldsOfTheDriversLayout(t *testing.T) {
	_, _, q, c := kernelCQ(t, 8)
	if err := q.engine.h.CompleteRecv(&hostverbs.WC{
		WRID: 0x1122334455667788, Status: hostverbs.WCRemOpErr, Opcode: hostverbs.WCOpRecvRDMAWithImm,
		Flags: hostverbs.WCGRH | hostverbs.WCWithImm, ByteLen: 0x10, Imm: 0xdeadbeef, SrcQP: 0x20, PKeyIndex: 3, SL: 4,
	}); err != nil {
		t.Fatal(err)
	}
	q.g.rig.worker.show()
	want := abi.CQE{
		WRID: 0x1122334455667788, QP: uint64(q.handle), Opcode: 129, Status: 11, ByteLen: 0x10, ImmData: 0xdeadbeef,
		SrcQP: 0x20, WCFlags: 3, PKeyIndex: 3, SL: 4, PortNum: 1,
	}
	if diff := cmp.Diff([]abi.CQE{want}, c.poll()); diff != "" {
		t.Errorf("entry (-want +got):\n%s", diff)
	}
}

func TestUserSpaceSeesOnlyTheFlagsItAgreesOn(t *testing.T) {
	_, _, user, uc := polledCQ(t, 8)
	_, _, kernel, kc := kernelCQ(t, 8)
	for _, cs := range []struct {
		q    *guestQP
		c    *guestCQ
		want abi.WCFlags
		imm  uint32
	}{
		{user, uc, abi.WCFlagGRH, 0},
		{kernel, kc, abi.WCFlagGRH | abi.WCFlagWithNetworkHdrType | abi.WCFlagWithInvalidate, 7},
	} {
		if err := cs.q.complete(hostverbs.WC{Flags: 0xff &^ hostverbs.WCWithImm, Imm: 7}); err != nil {
			t.Fatal(err)
		}
		cs.q.g.rig.worker.show()
		if e := cs.c.take(); e.WCFlags != cs.want || e.ImmData != cs.imm {
			t.Errorf("flags %v, want %v; immediate %d", e.WCFlags, cs.want, e.ImmData)
		}
	}
}

func TestTheHeaderOfADatagramIsNamedAsTheDriverNamesIt(t *testing.T) {
	_, _, q, c := kernelCQ(t, 8)
	for network, want := range map[hostverbs.Network]abi.NetworkType{
		hostverbs.NetworkRoCEv1: 0, hostverbs.NetworkIPv4: 1, hostverbs.NetworkIPv6: 2,
	} {
		if err := q.complete(hostverbs.WC{Flags: hostverbs.WCWithNetworkHdrType, NetworkHdrType: network}); err != nil {
			t.Fatal(err)
		}
		q.g.rig.worker.show()
		if e := c.take(); e.NetworkHdrType != want || e.WCFlags != abi.WCFlagWithNetworkHdrType {
			t.Errorf("%v is %v with %v", network, e.NetworkHdrType, e.WCFlags)
		}
	}
}

func TestCompletionsAreFoundInOrderRoundTheRing(t *testing.T) {
	_, g, q, c := kernelCQ(t, 4)
	for id := uint64(1); id <= 40; id += 3 {
		for k := range uint64(3) {
			if err := q.complete(hostverbs.WC{WRID: id + k}); err != nil {
				t.Fatal(err)
			}
		}
		for k, e := range c.poll() {
			if e.WRID != id+uint64(k) {
				t.Fatalf("entry of %d where that of %d belongs", e.WRID, id+uint64(k))
			}
		}
	}
	if n := g.dev.Counters(); n.CQEs != 42 || n.CQEErrors != 0 {
		t.Errorf("counters %+v", n)
	}
}

func TestOneArmGivesOneEvent(t *testing.T) {
	r, g, q, c := kernelCQ(t, 64)
	for _, arms := range []int{1, 2} {
		for range arms {
			c.ring(0, abi.UARCQArm)
		}
		r.settle()
		for id := range uint64(5) {
			_ = q.complete(hostverbs.WC{WRID: id})
		}
		r.settle()
		if got := g.notifier.events(); len(got) != 1 || got[0] != c.handle {
			t.Errorf("after %d arms and 5 completions: events %v, want one", arms, got)
		}
		c.poll()
	}
	if n := g.dev.Counters().Notifications; n != 2 {
		t.Errorf("%d notifications are counted, want 2", n)
	}
}

func TestAnEventComesAfterItsEntryCanBeSeen(t *testing.T) {
	r, g, q, c := kernelCQ(t, 64)
	c.ring(0, abi.UARCQArm)
	r.settle()
	g.dev.notifier = watcher{g.notifier, func() {
		if c.unread() != 1 || c.take().WRID != 77 {
			t.Error("the guest is interrupted before it can see the entry")
		}
	}}
	_ = q.complete(hostverbs.WC{WRID: 77})
	if len(g.notifier.events()) != 1 {
		t.Error("no event")
	}
}

// watcher looks at what the guest sees when an event comes.
type watcher struct {
	*fakeNotifier
	look func()
}

func (w watcher) CQEvent(h uint32) bool {
	w.look()
	return w.fakeNotifier.CQEvent(h)
}

func TestASolicitedArmWaitsForASolicitedOrFailedCompletion(t *testing.T) {
	wakes := map[string]hostverbs.WC{
		"solicited": {WRID: 1, Solicited: true}, "error": {WRID: 1, Status: hostverbs.WCWRFlushErr},
	}
	for name, wc := range wakes {
		t.Run(name, func(t *testing.T) {
			r, g, q, c := kernelCQ(t, 64)
			c.ring(0, abi.UARCQArmSol)
			r.settle()
			for range 3 {
				_ = q.complete(hostverbs.WC{})
			}
			if got := g.notifier.events(); len(got) != 0 {
				t.Errorf("events %v for completions that nobody asked for", got)
			}
			_ = q.complete(wc)
			if got := g.notifier.events(); len(got) != 1 {
				t.Errorf("events %v, want one", got)
			}
			_ = q.complete(wc)
			if got := g.notifier.events(); len(got) != 0 {
				t.Errorf("events %v without an arm", got)
			}
		})
	}
}

func TestAnArmUpgradesASolicitedOneAndNotTheOtherWayRound(t *testing.T) {
	for name, bits := range map[string][2]uint32{
		"solicited first": {abi.UARCQArmSol, abi.UARCQArm}, "solicited last": {abi.UARCQArm, abi.UARCQArmSol},
	} {
		t.Run(name, func(t *testing.T) {
			r, g, q, c := kernelCQ(t, 8)
			c.ring(0, bits[0])
			c.ring(0, bits[1])
			r.settle()
			_ = q.complete(hostverbs.WC{})
			if got := g.notifier.events(); len(got) != 1 {
				t.Errorf("events %v, want one", got)
			}
		})
	}
}

func TestAnArmWithUnreadEntriesNotifiesAtOnce(t *testing.T) {
	r, g, q, c := kernelCQ(t, 8)
	_ = q.complete(hostverbs.WC{WRID: 1})
	c.ring(0, abi.UARCQArm)
	r.settle()
	if got := g.notifier.events(); len(got) != 1 {
		t.Errorf("events %v, want one", got)
	}
	_ = q.complete(hostverbs.WC{WRID: 2})
	if got := g.notifier.events(); len(got) != 0 {
		t.Errorf("events %v: the arm was used up", got)
	}
	c.poll()
	c.ring(0, abi.UARCQArm)
	r.settle()
	if got := g.notifier.events(); len(got) != 0 {
		t.Errorf("events %v with nothing unread", got)
	}
}

// TestAnEntryIsAnnouncedOnce: a program that was woken arms first and takes the entry then. A second event for the same
// entry would be taken for that of another one.
func TestAnEntryIsAnnouncedOnce(t *testing.T) {
	for name, arm := range map[string]uint32{"arm": abi.UARCQArm, "solicited arm": abi.UARCQArmSol} {
		t.Run(name, func(t *testing.T) {
			r, g, q, c := kernelCQ(t, 8)
			c.ring(0, arm)
			r.settle()
			_ = q.complete(hostverbs.WC{WRID: 1, Solicited: true})
			if got := g.notifier.events(); len(got) != 1 {
				t.Errorf("events %v, want one", got)
			}
			c.ring(0, arm)
			r.settle()
			if got := g.notifier.events(); len(got) != 0 {
				t.Errorf("events %v for an entry that was announced", got)
			}
			c.poll()
			_ = q.complete(hostverbs.WC{WRID: 2, Solicited: true})
			if got := g.notifier.events(); len(got) != 1 {
				t.Errorf("events %v for the next entry, want one", got)
			}
		})
	}
}

func TestASolicitedArmLooksForAnUnreadSolicitedEntry(t *testing.T) {
	r, g, q, c := kernelCQ(t, 8)
	arm := func() int {
		c.ring(0, abi.UARCQArmSol)
		r.settle()
		return len(g.notifier.events())
	}
	_ = q.complete(hostverbs.WC{WRID: 1})
	if arm() != 0 {
		t.Error("an event for an entry that is not solicited")
	}
	_ = q.complete(hostverbs.WC{WRID: 2, Solicited: true}) // uses the arm up
	g.notifier.events()
	c.poll()
	_ = q.complete(hostverbs.WC{WRID: 3})
	_ = q.complete(hostverbs.WC{WRID: 4, Solicited: true})
	_ = q.complete(hostverbs.WC{WRID: 5})
	c.take()
	if arm() != 1 {
		t.Error("no event although a solicited entry is unread behind one that was read")
	}
	c.take()
	if arm() != 0 {
		t.Error("an event although the solicited entry was read")
	}
}

func TestAnUnarmedQueueTouchesNoEventRing(t *testing.T) {
	r, g, q, c := kernelCQ(t, 8192)
	for id := range uint64(5000) {
		if err := q.complete(hostverbs.WC{WRID: id, Solicited: true}); err != nil {
			t.Fatal(err)
		}
	}
	r.settle()
	if got := g.notifier.events(); len(got) != 0 || g.notifier.flushes != 0 {
		t.Errorf("%d events on a queue that was never armed", len(got))
	}
	if got := c.poll(); len(got) != 5000 || got[4999].WRID != 4999 {
		t.Errorf("%d entries", len(got))
	}
}

func TestPollRingsNothing(t *testing.T) {
	r, g, _, c := kernelCQ(t, 8)
	for range 5000 {
		c.ring(0, abi.UARCQPoll)
	}
	if g.dev.trapped.waiting.Load() != 0 {
		t.Error("POLL is queued")
	}
	r.settle()
	if n := g.dev.Counters().Doorbells; n != 0 {
		t.Errorf("%d doorbells are counted", n)
	}
}

// TestOnlyCompletionsThatAreWrittenAreCounted: those that come after a queue's end are nobody's.
func TestOnlyCompletionsThatAreWrittenAreCounted(t *testing.T) {
	g := newRig(t).newGuest()
	c := g.createCQ(0, 4)
	q := g.createQP(g.createPD(0), c, c)
	for id := range uint64(20) {
		_ = q.complete(hostverbs.WC{WRID: id, Status: hostverbs.WCWRFlushErr})
	}
	if n := g.dev.Counters(); n.CQEs != 4 || n.CQEErrors != 4 {
		t.Errorf("%d completions are counted, %d of them in error; the queue has room for 4", n.CQEs, n.CQEErrors)
	}
}

func TestAnOverflowEndsTheQueueAndItsQueuePairsOnce(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	pd := g.createPD(0)
	full, other := g.createCQ(0, 4), g.createCQ(0, 4)
	send, recv := g.createQP(pd, full, other), g.createQP(pd, other, full)
	both, bystander := g.createQP(pd, full, full), g.createQP(pd, other, other)
	for _, q := range []*guestQP{send, recv, both, bystander} {
		q.modify(hostverbs.StateRTS)
	}
	for id := range uint64(7) {
		if err := send.complete(hostverbs.WC{WRID: id}); err != nil {
			t.Fatal(err)
		}
	}
	r.settle()
	for q, want := range map[*guestQP]int{send: 1, recv: 1, both: 1, bystander: 0} {
		if got := q.engine.failed(); got != want {
			t.Errorf("queue pair %d failed %d times, want %d", q.handle, got, want)
		}
	}
	if diff := cmp.Diff([]asyncRecord{{abi.EventCQErr, full.handle}}, g.notifier.asyncs()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if n := g.seen.violations()[CQOverflow]; n != 1 {
		t.Errorf("%d overflows are reported, want 1", n)
	}
	for i, e := range full.poll() {
		if e.WRID != uint64(i) {
			t.Errorf("entry %d was overwritten by %d", i, e.WRID)
		}
	}
	// Room does not bring the queue back, and nobody is notified for it.
	full.ring(0, abi.UARCQArm)
	r.settle()
	_ = send.complete(hostverbs.WC{WRID: 9})
	if full.unread() != 0 || len(g.notifier.events()) != 0 {
		t.Error("a queue that has ended takes completions")
	}
}

func TestAFullQueueIsLookedAtOnceMoreBeforeItOverflows(t *testing.T) {
	_, g, q, c := kernelCQ(t, 4)
	for id := range uint64(50) {
		_ = q.complete(hostverbs.WC{WRID: id})
		if c.unread() == 4 {
			c.take()
		}
	}
	if len(g.seen.violations()) != 0 || q.engine.failed() != 0 {
		t.Errorf("violations %v", g.seen.violations())
	}
}

func TestAnInvalidIndexOfTheGuestEndsTheQueue(t *testing.T) {
	const n = 8
	looks := map[string]func(r *rig, q *guestQP, c *guestCQ){
		"when it is full": func(_ *rig, q *guestQP, _ *guestCQ) { _ = q.complete(hostverbs.WC{}) },
		"when it is armed": func(r *rig, _ *guestQP, c *guestCQ) {
			c.ring(0, abi.UARCQArm)
			r.step()
		},
	}
	for name, look := range looks {
		for _, bad := range []uint32{2 * n, 1 << 31, 0xffffffff, ^uint32(n - 1), 9, 15} {
			r, g, q, c := kernelCQ(t, n)
			for range n {
				_ = q.complete(hostverbs.WC{})
			}
			c.store32(c.at(rxConsHead), bad)
			look(r, q, c)
			r.settle()
			want := []asyncRecord{{abi.EventCQErr, c.handle}}
			if diff := cmp.Diff(want, g.notifier.asyncs()); diff != "" || q.engine.failed() != 1 {
				t.Errorf("%s, index %#x: failed %d times, events (-want +got):\n%s", name, bad, q.engine.failed(), diff)
			}
			if n := g.seen.violations()[BadRing]; n != 1 || len(g.notifier.failures()) != 0 {
				t.Errorf("%s, index %#x: %d violations", name, bad, n)
			}
		}
	}
}

func TestAQueueWhoseMemoryIsUnmappedEnds(t *testing.T) {
	looks := map[string]func(q *guestQP, c *guestCQ){
		"when an entry is written": func(q *guestQP, _ *guestCQ) {
			if err := q.complete(hostverbs.WC{}); err != nil {
				t.Errorf("the engine is to drop the queue pair: %v", err)
			}
		},
		"when a full one is looked at once more": func(q *guestQP, c *guestCQ) {
			for range c.n {
				_ = c.dev().push(&abi.CQE{}, false)
			}
		},
		"when it is armed": func(_ *guestQP, c *guestCQ) { c.ring(0, abi.UARCQArm) },
	}
	for name, look := range looks {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			g := r.newGuest()
			pd := g.createPD(0)
			var c *guestCQ
			g.inUpperHalf(func() { c = g.createCQ(0, 8) })
			q := g.createQP(pd, c, c)
			q.modify(hostverbs.StateRTS)
			g.unplug()
			look(q, c)
			r.settle()
			if diff := cmp.Diff([]asyncRecord{{abi.EventCQErr, c.handle}}, g.notifier.asyncs()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if v := g.seen.violations(); v[BadMemory] != 1 || q.engine.failed() != 1 || len(g.notifier.failures()) != 0 {
				t.Errorf("violations %v, %d queue pairs failed, failures %v", v, q.engine.failed(), g.notifier.failures())
			}
			if err := q.complete(hostverbs.WC{}); err != nil {
				t.Errorf("a completion for a queue that has ended: %v", err)
			}
		})
	}
}
