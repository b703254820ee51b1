// SPDX-License-Identifier: Apache-2.0

package soft_test

import (
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/hostverbs/soft"
)

// between are many queue pairs of a guest of one owner, each connected to one of a guest of another owner.
type between struct {
	here, there hostverbs.Poller
	now         int64
	dom         *guestmem.Domain
	qps         []hostverbs.QP
	devices     []*sink
	wr          []hostverbs.SendWR
	at          int
	a, b        *party
}

func newBetween(n int) *between {
	guestmem.PrepareGoroutine()
	e := soft.New(nil)
	w := &between{
		here: must(e.NewPoller(inline{})), there: must(e.NewPoller(inline{})), now: int64(time.Hour), dom: guestmem.NewDomain(),
		wr: []hostverbs.SendWR{{Opcode: hostverbs.OpRDMAWrite, Flags: hostverbs.SendSignaled}},
	}
	w.a, w.b = join(w.here, w.dom, 1, guestmem.PageSize), join(w.there, w.dom, 2, guestmem.PageSize)
	for range n {
		d, e := &sink{}, &sink{}
		q, peer := w.a.create(d), w.b.create(e)
		connect(q, peer, w.b)
		connect(peer, q, w.a)
		w.qps, w.devices = append(w.qps, q), append(w.devices, d)
	}
	return w
}

// post sends up to n messages, each of the next queue pair that takes one.
func (w *between) post(n int) {
	for range w.qps {
		if n == 0 {
			return
		}
		n -= w.qps[w.at].PostSend(w.wr)
		w.at = (w.at + 1) % len(w.qps)
	}
}

// TestAnswersFromElsewhereLeaveTurnsToTheOtherGuests: a guest has more messages with other owners than a visit takes answers.
func TestAnswersFromElsewhereLeaveTurnsToTheOtherGuests(t *testing.T) {
	const many, size = 4 * hostverbs.VisitWRs, 1 << 20
	w := newBetween(many)
	g, d := join(w.here, w.dom, 3, 2*size), &sink{}
	q := g.create(d)
	connect(q, q, g)
	long := hostverbs.SendWR{
		Opcode: hostverbs.OpRDMAWrite, Flags: hostverbs.SendSignaled, NumSGE: 1, RKey: g.mr.RKey(), RemoteAddr: size,
	}
	long.SGE[0] = hostverbs.SGE{Length: size, LKey: g.mr.LKey()}
	w.post(many)
	for range 2 * many / hostverbs.VisitWRs { // all are answered, and their owner has looked at none
		w.there.Progress(w.now)
	}
	if q.PostSend([]hostverbs.SendWR{long}) != 1 {
		t.Fatal("the message was not taken")
	}

	rounds := 0
	for ; d.sent == 0 && rounds < 1000; rounds++ {
		w.now += 1000
		w.here.Progress(w.now)
		w.post(hostverbs.VisitWRs)
		for range 2 {
			w.there.Progress(w.now)
		}
	}

	if most := 2 * size / soft.CrowdedBytes; d.sent != 1 || rounds > most {
		t.Errorf("a message of %d visits was there after %d rounds, want %d at most", size/soft.CrowdedBytes, rounds, most)
	}
	sent := 0
	for _, d := range w.devices {
		sent += d.sent
	}
	if sent < rounds*hostverbs.VisitWRs/2 {
		t.Errorf("%d messages were answered in %d rounds", sent, rounds)
	}
}

// TestNothingIsLostWhenAnInboxIsFull: neither messages that find no room nor answers.
func TestNothingIsLostWhenAnInboxIsFull(t *testing.T) {
	const many = soft.InboxLen + 200
	w := newBetween(many)
	rounds := 3
	for range rounds {
		w.post(many)
		for range 2 * many / hostverbs.VisitWRs { // what found no room is tried again, in vain
			w.here.Progress(w.now)
		}
		for range 4 * many / hostverbs.VisitWRs { // the same for answers, of which nobody takes any
			w.there.Progress(w.now)
		}
		for range 8 * many / hostverbs.VisitWRs {
			w.now += 1000
			w.here.Progress(w.now)
			w.there.Progress(w.now)
		}
	}
	for i, d := range w.devices {
		if d.sent != rounds || d.bad != hostverbs.WCSuccess {
			t.Fatalf("queue pair %d: %d completions of %d messages, with %v", i, d.sent, rounds, d.bad)
		}
	}
}

// TestNothingIsKeptOfMessagesWhenTheirGuestLeaves: most of them are in an inbox, some were looked at, and some have no room.
func TestNothingIsKeptOfMessagesWhenTheirGuestLeaves(t *testing.T) {
	const many = soft.InboxLen + 200
	for name, looks := range map[string]int{"before anybody has looked": 0, "among answers": 3, "all answered": many / 16} {
		t.Run(name, func(t *testing.T) {
			w := newBetween(many)
			w.post(many)
			for range looks {
				w.there.Progress(w.now)
			}
			check(w.a.ctx.Close())
			w.there.Progress(w.now)
			check(w.b.ctx.Close())
			for _, p := range []hostverbs.Poller{w.here, w.there} {
				for range many / hostverbs.VisitWRs { // answers that nobody waits for
					p.Progress(w.now)
				}
				w.now += int64(time.Hour)
				p.Progress(w.now)
				if worked, next := p.Progress(w.now); worked || next != 0 {
					t.Errorf("there is something left to do: %v, %d", worked, next)
				}
				check(p.Close())
			}
			for _, d := range w.devices {
				if d.sent != 0 {
					t.Fatal("a message completes after its guest has left")
				}
			}
		})
	}
}
