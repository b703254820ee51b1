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
}

func newBetween(n int) *between {
	guestmem.PrepareGoroutine()
	e := soft.New(nil)
	w := &between{
		here: must(e.NewPoller(inline{})), there: must(e.NewPoller(inline{})), now: int64(time.Hour), dom: guestmem.NewDomain(),
		wr: []hostverbs.SendWR{{Opcode: hostverbs.OpRDMAWrite, Flags: hostverbs.SendSignaled}},
	}
	a, b := join(w.here, w.dom, 1, guestmem.PageSize), join(w.there, w.dom, 2, guestmem.PageSize)
	for range n {
		d, e := &sink{}, &sink{}
		q, peer := a.create(d), b.create(e)
		connect(q, peer, b)
		connect(peer, q, a)
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
