// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

const userPage = 1

// polledCQ returns a queue pair of a process, whose doorbell page is polled.
func polledCQ(t *testing.T, cqe uint32) (*rig, *guest, *guestQP, *guestCQ) {
	t.Helper()
	r := newRig(t)
	g := r.newGuest()
	q, c := g.rcQP(userPage, cqe)
	return r, g, q, c
}

// events steps once and returns how often the guest was notified.
func (g *guest) events() int {
	g.rig.step()
	return len(g.notifier.events())
}

func TestAnEntryThatLiesUnreadIsNotifiedOnceAfterTheGraceTime(t *testing.T) {
	r, g, q, c := polledCQ(t, 64)
	c.ring(userPage, abi.UARCQArm)
	r.step()
	_ = q.complete(hostverbs.WC{})
	if n := g.events(); n != 0 {
		t.Error("an event before the grace time")
	}
	r.after(DefaultCQGrace - 1)
	if n := g.events(); n != 0 {
		t.Error("an event 1 ns before the end of the grace time")
	}
	r.after(1)
	if n := g.events(); n != 1 {
		t.Errorf("%d events after the grace time, want 1", n)
	}
	r.after(time.Second)
	_ = q.complete(hostverbs.WC{})
	g.events()
	r.after(time.Second)
	if n := g.events(); n != 0 {
		t.Errorf("%d events after the one that was asked for", n)
	}
}

// TestAnEntryOfAPolledPageIsAnnouncedOnce: a program that was woken arms, loses its processor for longer than the grace
// time, and takes the entry then.
func TestAnEntryOfAPolledPageIsAnnouncedOnce(t *testing.T) {
	r, g, q, c := polledCQ(t, 64)
	c.ring(userPage, abi.UARCQArm)
	r.step()
	_ = q.complete(hostverbs.WC{WRID: 1})
	r.after(DefaultCQGrace)
	if n := g.events(); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
	c.ring(userPage, abi.UARCQArm)
	r.step()
	r.after(time.Second)
	if n := g.events(); n != 0 {
		t.Errorf("%d events for an entry that was announced", n)
	}
	_ = q.complete(hostverbs.WC{WRID: 2}) // the first is not taken yet
	r.after(DefaultCQGrace)
	if n := g.events(); n != 1 {
		t.Errorf("%d events for the next entry, want 1", n)
	}
}

func TestAWorkerComesBackWhenAGraceTimeEnds(t *testing.T) {
	r, _, q, c := polledCQ(t, 64)
	c.ring(userPage, abi.UARCQArm)
	r.step()
	_ = q.complete(hostverbs.WC{})
	from := r.now
	r.after(5 * time.Microsecond)
	if _, next := r.step(); next != from+DefaultCQGrace.Nanoseconds() {
		t.Errorf("the worker comes again after %v", time.Duration(next-from))
	}
}

func TestEntriesThatAreReadInTimeCostNothing(t *testing.T) {
	r, g, q, c := polledCQ(t, 64)
	events := 0
	for range 1000 {
		c.ring(userPage, abi.UARCQPoll)
		r.step()
		_ = q.complete(hostverbs.WC{})
		events += g.events()
		r.after(DefaultCQGrace - 1)
		c.poll()
		events += g.events()
		r.after(3)
		events += g.events()
	}
	if events != 0 {
		t.Errorf("%d events for a program that reads everything in time", events)
	}
	if !c.dev().maybe() {
		t.Error("reading entries has disarmed the queue")
	}
	// The program goes to sleep without another word: the last one, POLL, may have overwritten its arm.
	_ = q.complete(hostverbs.WC{})
	events += g.events()
	r.after(DefaultCQGrace)
	if events += g.events(); events != 1 {
		t.Errorf("%d events for a program that sleeps, want 1", events)
	}
}

func TestAQueueWithoutAWordIsNeverNotified(t *testing.T) {
	r, g, q, _ := polledCQ(t, 64)
	for range 10 {
		_ = q.complete(hostverbs.WC{Solicited: true})
		r.after(time.Second)
		if n := g.events(); n != 0 {
			t.Fatal("an event for a queue that nobody waits for")
		}
	}
}

func TestAWordSpeaksForAllQueuesOfItsContext(t *testing.T) {
	r, g, q, c := polledCQ(t, 8)
	c2 := g.createCQ(q.dev().ctx.handle, 8)
	q2 := g.createQP(q.req.PDHandle, c2, c2)
	q3, _ := g.rcQP(userPage+1, 8)
	for _, x := range []*guestQP{q, q2, q3} {
		_ = x.complete(hostverbs.WC{})
	}
	c.ring(userPage, abi.UARCQPoll)
	r.step()
	r.after(DefaultCQGrace)
	r.step()
	got := g.notifier.events()
	if len(got) != 2 || got[0] != c.handle || got[1] != c2.handle {
		t.Errorf("events %v, want those of %d and %d", got, c.handle, c2.handle)
	}
}

func TestASolicitedArmOfAPolledPageCountsAsAnArm(t *testing.T) {
	r, g, q, c := polledCQ(t, 8)
	c.ring(userPage, abi.UARCQArmSol)
	r.step()
	_ = q.complete(hostverbs.WC{})
	r.after(DefaultCQGrace)
	if n := g.events(); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}

func TestNewEntriesStartANewGraceTime(t *testing.T) {
	r, g, q, c := polledCQ(t, 64)
	c.ring(userPage, abi.UARCQPoll)
	r.step()
	_ = q.complete(hostverbs.WC{})
	r.after(DefaultCQGrace / 2)
	_ = q.complete(hostverbs.WC{})
	c.take() // the first
	r.after(DefaultCQGrace / 2)
	if n := g.events(); n != 0 {
		t.Error("an event although the entry that waited was read")
	}
	r.after(DefaultCQGrace)
	if n := g.events(); n != 1 {
		t.Errorf("%d events for the second entry, want 1", n)
	}
}

func TestAProgramThatKeepsUpIsNotInterruptedHoweverSmallItsQueue(t *testing.T) {
	for _, n := range []uint32{1, 2, 4, 8} {
		r, g, q, c := polledCQ(t, n)
		c.ring(userPage, abi.UARCQPoll)
		r.step()
		events := 0
		// Within each grace time more entries are written and read than the queue's indices can count.
		for burst := range 50 {
			for range burst {
				_ = q.complete(hostverbs.WC{})
				c.take()
			}
			_ = q.complete(hostverbs.WC{})
			r.after(DefaultCQGrace)
			c.take()
			_ = q.complete(hostverbs.WC{})
			events += g.events()
			c.take()
		}
		if events != 0 {
			t.Errorf("%d events for a program that reads everything, with a queue of %d entries", events, n)
		}
	}
}

func TestAnEventForAnotherReasonEndsTheGraceTime(t *testing.T) {
	r, g, q, c := polledCQ(t, 64)
	c.ring(userPage, abi.UARCQPoll)
	r.step()
	_ = q.complete(hostverbs.WC{})
	g.events()
	c.ring(0, abi.UARCQArm) // older guest kernels arm for their processes
	if n := g.events(); n != 1 {
		t.Errorf("%d events for an exact arm, want 1", n)
	}
	r.after(time.Second)
	if n := g.events(); n != 0 {
		t.Errorf("%d events for one arm and no word since", n)
	}
}

func TestTheGraceTimeCanBeConfigured(t *testing.T) {
	r := newRig(t)
	cfg := defaultConfig()
	cfg.CQGrace = time.Millisecond
	g := r.idleGuest(cfg, true)
	g.activate()
	q, c := g.rcQP(userPage, 8)
	c.ring(userPage, abi.UARCQArm)
	_ = q.complete(hostverbs.WC{})
	g.events()
	r.after(time.Millisecond - 1)
	if n := g.events(); n != 0 {
		t.Error("an event before the grace time")
	}
	r.after(1)
	if n := g.events(); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}

func TestADestroyedQueueLeavesItsGraceTime(t *testing.T) {
	r, g, q, c := polledCQ(t, 8)
	c.ring(userPage, abi.UARCQArm)
	_ = q.complete(hostverbs.WC{})
	r.step()
	if g.dev.graced.len() != 1 {
		t.Fatalf("%d queues wait, want 1", g.dev.graced.len())
	}
	g.must(&abi.CmdDestroyCQReq{Hdr: hdr(abi.CmdDestroyCQ), CQHandle: c.handle}, nil)
	r.after(time.Second)
	if n := g.events(); n != 0 || g.dev.graced.len() != 0 {
		t.Errorf("%d events, %d queues wait", n, g.dev.graced.len())
	}
}

func TestAQueueThatEndsDuringItsGraceTimeIsForgotten(t *testing.T) {
	r, g, q, c := polledCQ(t, 8)
	c.ring(userPage, abi.UARCQArm)
	_ = q.complete(hostverbs.WC{})
	r.step()
	c.store32(c.at(rxConsHead), 0xffffffff)
	r.after(time.Second)
	if n := g.events(); n != 0 || g.dev.graced.len() != 0 {
		t.Errorf("%d events, %d queues wait", n, g.dev.graced.len())
	}
	c.ring(userPage, abi.UARCQArm)
	r.after(time.Second)
	if n := g.events(); n != 0 {
		t.Errorf("%d events of a queue that has ended", n)
	}
}

func TestEventsWithoutRoomAreFlushedLater(t *testing.T) {
	r, g, q, c := polledCQ(t, 8)
	g.notifier.setRoom(0)
	c.ring(0, abi.UARCQArm)
	r.step()
	_ = q.complete(hostverbs.WC{})
	_, next := r.step()
	if next <= r.now || next > r.now+(5*time.Millisecond).Nanoseconds() {
		t.Errorf("the worker looks again after %v", time.Duration(next-r.now))
	}
	if g.notifier.flushes != 1 {
		t.Errorf("%d attempts to flush, want 1", g.notifier.flushes)
	}
	g.notifier.setRoom(10)
	_, next = r.step()
	if got := g.notifier.events(); len(got) != 1 || got[0] != c.handle {
		t.Errorf("events %v, want one", got)
	}
	if next != 0 {
		t.Errorf("the worker looks again after %v, with nothing to flush", time.Duration(next-r.now))
	}
	r.step()
	if g.notifier.flushes != 2 {
		t.Errorf("%d attempts to flush, want 2", g.notifier.flushes)
	}
}
