// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// progressCases are about what happens when: in PostSend, in Progress, and in between.
func progressCases() []Case {
	return []Case{
		{"one call moves no more bytes and ends no more requests than a visit has", visitsAreBounded},
		{"a call of Progress is one visit, however many queue pairs of however many guests wait", oneVisit},
		{"a timer starts when Progress tells the time", timersStartInProgress},
		{"a flush waits for Progress", flushesInProgress},
		{"a device that was sent away is told to come again, and is then welcome", comeAgain},
		{"an owner is woken for what has come from another", wokenForOthers},
		{"a requester that goes away moves nothing afterwards", requesterGoesAway},
		{"the data path allocates nothing", noAllocation},
	}
}

// call runs one call into the engine on an owner's thread and checks it against a visit's bounds: targets are the guests
// whose memory messages of ones arrive in, ends the queue pairs whose requests end. It returns how many were completed.
func (w *world) call(what string, s *site, targets []*guest, ends []*end, fn func()) (sent uint64) {
	w.t.Helper()
	s.owner.Do(func() {
		for _, g := range targets {
			clear(g.ram)
		}
		for _, e := range ends {
			e.dev.sent, e.dev.received = nil, nil
		}
		fn()
	})
	ended, moved := 0, 0
	for _, e := range ends {
		ended += max(len(e.dev.sent), len(e.dev.received))
		sent += uint64(len(e.dev.sent))
	}
	for _, g := range targets {
		moved += bytes.Count(g.ram, []byte{1})
	}
	if moved > hostverbs.VisitBytes || ended > hostverbs.VisitWRs {
		w.t.Fatalf("%s: one call moved %d bytes and ended %d requests, a visit has %d and %d", what, moved, ended,
			hostverbs.VisitBytes, hostverbs.VisitWRs)
	}
	return sent
}

// progress calls Progress at each owner within a visit's bounds, and says whether there was anything to do and how many
// requests were completed.
func (w *world) progress(what string, targets []*guest, ends []*end) (worked bool, sent uint64) {
	w.t.Helper()
	for _, s := range w.sites {
		sent += w.call(what, s, targets, ends, func() {
			did, _ := s.poller.Progress(w.env.Clock.Now())
			worked = worked || did
		})
	}
	return worked, sent
}

// finish is progress until there is nothing to do.
func (w *world) finish(what string, targets []*guest, ends []*end) {
	w.t.Helper()
	for range maxVisits {
		if worked, _ := w.progress(what, targets, ends); !worked {
			return
		}
	}
	w.t.Fatalf("%s: the engine does not come to rest", what)
}

func visitsAreBounded(t testing.TB, env Env) {
	w := newWorld(t, env)
	for _, c := range []struct{ size, n uint64 }{{longMessage, 1}, {hostverbs.VisitBytes/4 + 1, 12}, {1, 300}, {0, 300}} {
		for _, m := range moves() {
			what := fmt.Sprintf("%d times %s of %d bytes", c.n, m.op, c.size)
			a, b := w.guest(), w.guest()
			near, far := a.buffer(longMessage), b.buffer(longMessage)
			ea, _ := w.pair(a, b, func(la, _ *link) { la.rnrRetry = 7 })
			source, target := near, far
			if m.op == hostverbs.OpRDMARead {
				source, target = far, near
			}
			source.put(0, bytes.Repeat([]byte{1}, longMessage))
			var wrs []hostverbs.SendWR
			eb := w.ends[len(w.ends)-1]
			for i := range c.n {
				wrs = append(wrs, rdma(i, m.op, far, 0, near.sge(0, c.size)))
				if m.recv {
					eb.dev.rq = append(eb.dev.rq, rwr(i, far.sge(0, c.size)))
				}
			}
			done := uint64(0)
			for calls := 0; done < c.n; calls++ {
				if calls > maxVisits {
					t.Fatalf("%s: %d ended in %d calls", what, done, calls)
				}
				done += w.call(what, a.site, []*guest{target.g}, []*end{ea}, func() { wrs = wrs[ea.qp.PostSend(wrs):] })
				_, sent := w.progress(what, []*guest{target.g}, []*end{ea})
				done += sent
			}
			a.depart()
			b.depart()
		}
	}
}

func oneVisit(t testing.TB, env Env) {
	const many = 20
	w := newWorld(t, env)
	var targets []*guest
	var all []*end
	for range 2 {
		a, b := w.guest(), w.guest()
		near, far := a.buffer(longMessage), b.buffer(longMessage)
		near.put(0, bytes.Repeat([]byte{1}, longMessage))
		targets = append(targets, b)
		for range many {
			ea, _ := w.pair(a, b, nil)
			all = append(all, ea)
			ea.do(func() {
				ea.qp.PostSend([]hostverbs.SendWR{rdma(1, hostverbs.OpRDMAWrite, far, 0, near.sge(0, longMessage))})
			})
		}
	}
	w.finish("long messages", targets, all)
	for _, e := range all {
		e.do(func() {
			for i := range uint64(50) {
				e.dev.rq = append(e.dev.rq, rwr(i))
			}
		})
		e.to(hostverbs.StateErr)
	}
	w.finish("receives to flush", targets, all)
	for i, e := range all {
		if left := len(e.dev.rq); left != 0 {
			t.Errorf("queue pair %d has %d receives left", i, left)
		}
	}
	w.believe()
}

func timersStartInProgress(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := a.newEnd(hostverbs.QPTypeRC, false), b.newEnd(hostverbs.QPTypeRC, false)
	ea.up(ea.linkTo(eb), hostverbs.StateRTS)
	eb.up(eb.linkTo(ea), hostverbs.StateInit) // does not answer
	w.spin()
	ea.send(wr(1, hostverbs.OpRDMAWrite))
	ea.do(func() { ea.dev.pump() })
	env.Clock.Until(env.Clock.Now() + 20*ackTimeout)
	told := env.Clock.Now()
	w.settle()
	ea.sends("no answer", failed(1, hostverbs.WCRetryExcErr))
	if waited, want := ea.dev.sentAt-told, int64(4*ackTimeout); waited < want { // three retries
		t.Errorf("the request failed %d ns after Progress learned of it, want %d at least", waited, want)
	}
}

func flushesInProgress(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, _ := w.waiting(a, b, 3, 2)
	ea.to(hostverbs.StateErr)
	ea.sends("before Progress")
	ea.recvs("before Progress")
	w.settle()
	ea.sends("after it", flushed(1, 3)...)
	ea.recvs("after it", flushed(101, 2)...)
}

func comeAgain(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := w.waiting(a, b, 1, 0)
	ea.send(wr(2, hostverbs.OpSend), wr(3, hostverbs.OpSend))
	w.visit()
	if n := len(ea.dev.sq); n != 2 {
		t.Fatalf("the engine took %d of 2 requests while one waits", 2-n)
	}
	ea.dev.readies = 0
	eb.recv(rwr(7), rwr(8), rwr(9))
	for range maxVisits {
		next := int64(0)
		for _, s := range w.sites {
			_, again := s.progress(env.Clock.Now())
			next = earlier(next, again)
		}
		if ea.dev.readies > 0 {
			break
		}
		env.Clock.Until(max(next, env.Clock.Now()+1))
	}
	if ea.dev.readies == 0 {
		t.Fatal("the device is not told that it may come again")
	}
	took := false
	ea.do(func() { took = ea.dev.pump() })
	if !took {
		t.Error("the device came again, and was sent away")
	}
	w.settle()
	ea.sends("all", done(2, hostverbs.WCOpSend), done(3, hostverbs.WCOpSend)) // the first was not signalled
}

func wokenForOthers(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, _ := w.pair(a, b, nil)
	w.settle()
	for _, s := range w.sites {
		s.owner.wakes.Store(0)
	}
	ea.send(wr(1, hostverbs.OpRDMAWrite))
	ea.do(func() { ea.dev.pump() })
	if a.site != b.site && b.site.owner.wakes.Load() == 0 {
		t.Error("the responder's owner is not woken for a message")
	}
	b.site.progress(env.Clock.Now())
	if a.site != b.site && a.site.owner.wakes.Load() == 0 {
		t.Error("the requester's owner is not woken for the answer")
	}
	a.site.progress(env.Clock.Now())
	ea.sends("there and back", done(1, hostverbs.WCOpRDMAWrite))
}

func requesterGoesAway(t testing.TB, env Env) {
	const n = 4 * hostverbs.VisitBytes
	ways := map[string]func(ea *end){
		"destroyed": (*end).destroy,
		"reset":     func(ea *end) { ea.to(hostverbs.StateReset) },
		"failed":    func(ea *end) { ea.to(hostverbs.StateErr) },
		"closed":    func(ea *end) { ea.g.leave() },
	}
	w := newWorld(t, env)
	for name, way := range ways {
		for _, m := range moves() {
			a, b := w.guest(), w.guest()
			near, far := a.buffer(n), b.buffer(n)
			near.fill(1, 1, n)
			far.fill(2, 1, n)
			ea, eb := w.pair(a, b, nil)
			eb.recv(rwr(9, far.sge(0, n)))
			ea.send(rdma(1, m.op, far, 0, near.sge(0, n)))
			w.visit()
			way(ea)
			w.believe()
			w.settle()
			w.verify(fmt.Sprintf("%s, the requester %s", m.op, name))
			a.depart()
			b.depart()
		}
	}
}

// still is a device that keeps nothing, so that it allocates nothing.
type still struct{ recv hostverbs.RecvWR }

func (d *still) PullRecv(wr *hostverbs.RecvWR) (bool, error) { *wr = d.recv; return true, nil }
func (d *still) CompleteSend(*hostverbs.WC) error            { return nil }
func (d *still) CompleteRecv(*hostverbs.WC) error            { return nil }
func (d *still) SendReady()                                  {}
func (d *still) Event(hostverbs.EventType)                   {}

// still creates a queue pair whose device keeps nothing and has the same receive for ever.
func (g *guest) still(typ hostverbs.QPType, recv hostverbs.RecvWR) *end {
	g.w.t.Helper()
	e := &end{g: g, pd: g.pd, typ: typ}
	init := &hostverbs.QPInitAttr{Type: typ, Cap: qpCap(), SendCQ: g.mustCQ()}
	init.RecvCQ = init.SendCQ
	var err error
	if e.qp, err = g.ctx.CreateQP(g.pd, init, &still{recv: recv}); err != nil {
		g.w.t.Fatalf("create QP: %v", err)
	}
	return e
}

// allocates posts requests again and again.
func (e *end) allocates(what string, wrs ...hostverbs.SendWR) {
	w := e.g.w
	w.t.Helper()
	var n float64
	// One thread in the place of all owners: to ask one of them allocates.
	e.do(func() {
		n = testing.AllocsPerRun(100, func() {
			e.qp.PostSend(wrs)
			for range w.sites { // there and back
				for _, s := range w.sites {
					s.poller.Progress(w.env.Clock.Now())
				}
			}
		})
	})
	if n != 0 {
		w.t.Errorf("%d %s allocate %v times", len(wrs), what, n)
	}
	e.in(what, hostverbs.StateRTS)
}

func noAllocation(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near, far := a.buffer(100_000), b.buffer(100_000)
	all := rwr(1, far.sge(0, 100_000))
	e, peer := a.still(hostverbs.QPTypeRC, all), b.still(hostverbs.QPTypeRC, all)
	e.up(e.linkTo(peer), hostverbs.StateRTS)
	peer.up(peer.linkTo(e), hostverbs.StateRTS)
	for _, size := range []uint64{0, 64, 100_000} {
		for _, m := range moves() {
			r := rdma(1, m.op, far, 0, near.sge(0, size))
			e.allocates(fmt.Sprintf("%s of %d bytes", m.op, size), r, r)
		}
	}
	e, peer = a.still(hostverbs.QPTypeUD, all), b.still(hostverbs.QPTypeUD, rwr(1, far.sge(0, 30), far.sge(30, 5000)))
	e.udUp(hostverbs.StateRTS)
	peer.udUp(hostverbs.StateRTS)
	for _, size := range []uint64{0, 64, 4096} {
		r := datagram(1, hostverbs.OpSendWithImm, peer, near.sge(0, size))
		lost := r
		lost.RemoteQKey++
		e.allocates(fmt.Sprintf("datagrams of %d bytes", size), r, lost)
	}
	short := rwr(1, far.sge(0, 10))
	e, peer = a.still(hostverbs.QPTypeUC, short), b.still(hostverbs.QPTypeUC, short)
	e.up(e.linkTo(peer), hostverbs.StateRTS)
	peer.up(peer.linkTo(e), hostverbs.StateRTS)
	e.allocates("messages that are lost", wr(1, hostverbs.OpSend, near.sge(0, 64)))
	w.believe()
}
