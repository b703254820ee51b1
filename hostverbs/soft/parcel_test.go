// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// fill fills a poller's inbox with what means nothing to it.
func fill(t *testing.T, pl *poller, like *parcel) {
	t.Helper()
	for n := 0; ; n++ {
		x := &parcel{home: like.home, q: like.q}
		x.from = like.from
		x.recall.Store(forsaken)
		if !pl.inbox.Push(x) {
			return
		}
		if n > inboxLen {
			t.Fatal("the inbox has no bound")
		}
	}
}

// runAll gives both owners as many turns as a full inbox takes.
func (l *lender) runAll() {
	for range inboxLen/hostverbs.VisitWRs + 2 {
		l.run(l.away)
		l.run(l.home)
	}
}

// arrived expects that so many messages have arrived at the other owner, and that the answers are back.
func (l *lender) arrived(want uint64) {
	l.t.Helper()
	if n := l.away.count.live[cntWrites]; n != want || l.near.sq.busy {
		l.t.Errorf("%d messages have arrived, busy %t; want %d, and the answers", n, l.near.sq.busy, want)
	}
}

func TestAMessageThatFindsTheInboxFullIsTriedAgainAndHasNothingMeanwhile(t *testing.T) {
	l := newLender(t)
	l.runAll()
	l.arrived(1)
	fill(t, l.away, l.near.sq.parcel)

	wr := hostverbs.SendWR{Opcode: hostverbs.OpRDMAWrite, NumSGE: 1}
	wr.SGE[0].LKey = l.key(1)
	if l.near.PostSend([]hostverbs.SendWR{wr}) != 1 {
		t.Fatal("the message was not taken")
	}
	l.run(l.home)

	if l.near.sq.away || l.near.ctx.away != 0 || l.mr.fast.away != 0 {
		t.Errorf("away %t, %d messages, %d with the region; want none", l.near.sq.away, l.near.ctx.away, l.mr.fast.away)
	}
	l.runAll()
	l.arrived(2)
}

func TestAnAnswerThatFindsTheInboxFullIsNotLost(t *testing.T) {
	l := newLender(t)
	fill(t, l.home, l.near.sq.parcel)

	l.run(l.away)

	if l.away.outbox.n != 1 || !l.near.sq.away {
		t.Fatalf("%d answers wait, away %t; want the one", l.away.outbox.n, l.near.sq.away)
	}
	l.runAll()
	l.arrived(1)
}

func TestAPollerThatIsClosedGivesBackWhatItHas(t *testing.T) {
	for name, c := range map[string]struct {
		before func(l *lender) error
		// wanted: the sender gets its message back, as one that was lost.
		wanted bool
	}{
		"a message":                        {func(*lender) error { return nil }, true},
		"one that waits for its turn":      {func(l *lender) error { l.away.drain(); return nil }, true},
		"one, although there is no room":   {func(l *lender) error { fill(l.t, l.home, l.near.sq.parcel); return nil }, true},
		"none that its sender has forgone": {func(l *lender) error { return l.near.Destroy() }, false},
		"none, although there is no room": {func(l *lender) error {
			fill(l.t, l.home, l.near.sq.parcel)
			return l.near.Destroy()
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLender(t)
			for c := range l.away.gids {
				if held := l.away.gids[c]; held.pl == l.away {
					ok(t, held.Close())
				}
			}
			ok(t, c.before(l))

			ok(t, l.away.Close())

			l.run(l.home)
			for range inboxLen / hostverbs.VisitWRs {
				l.run(l.home)
			}
			if c.wanted && (l.near.sq.away || l.near.sq.waiting != waitAck) {
				t.Errorf("away %t, waiting for %d; want a message that was lost", l.near.sq.away, l.near.sq.waiting)
			}
			if n := l.mr.fast.away; n != 0 {
				t.Errorf("%d messages have the region", n)
			}
		})
	}
}

// faulty is a device that panics when it is asked for the first receive.
type faulty struct {
	deaf
	asked int
}

func (d *faulty) PullRecv(wr *hostverbs.RecvWR) (bool, error) {
	d.asked++
	if d.asked == 1 {
		panic("no receive")
	}
	*wr = hostverbs.RecvWR{}
	return true, nil
}

func TestAMessageThatSomebodyPanickedOverIsLostAndSentAgain(t *testing.T) {
	// Arrange
	l := newLender(t)
	l.runAll()
	var far *qp
	for _, c := range l.away.gids {
		if q := c.reachable[5]; q != nil && c.pl == l.away {
			far = q
		}
	}
	d := &faulty{}
	far.h = d
	if l.near.PostSend([]hostverbs.SendWR{{Opcode: hostverbs.OpSend}}) != 1 || !l.near.sq.away {
		t.Fatal("the message is not away")
	}

	// Act
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the device did not panic")
			}
		}()
		l.run(l.away)
	}()

	// Assert
	if !l.near.sq.away {
		t.Fatal("the message is back already")
	}
	l.run(l.away)
	l.run(l.home)
	if l.near.sq.away || l.near.sq.waiting != waitAck {
		t.Fatalf("away %t, waiting for %d; want a message that was lost", l.near.sq.away, l.near.sq.waiting)
	}
	l.now += ackTimeout(l.near.attr.Timeout) * 2
	l.runAll()
	if n := l.away.count.live[cntSends]; n != 1 || l.near.sq.busy || d.told != 1 {
		t.Errorf("%d messages have arrived, busy %t, %d receives completed; want one", n, l.near.sq.busy, d.told)
	}
}
