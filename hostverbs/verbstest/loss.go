// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// lossCases are about peers that do not answer.
func lossCases() []Case {
	return []Case{
		{"a peer that does not answer ends in a retry error after all timeouts", noAnswer},
		{"a peer that becomes ready is found by the next retry", readyLater},
		{"without a timeout a request waits for ever", noTimeout},
		{"a peer that goes away under a message ends it", goesAwayUnderAMessage},
		{"a peer that started anew does not get the rest of a message", startedAnew},
		{"a peer that lets another message in does not get the rest of the one before", movedAddress},
	}
}

// ackTimeout is the tests' retry timeout in ns.
const ackTimeout = 4096 << timeoutCode

// silence is a way not to answer: how the peer is brought up.
type silence struct {
	name string
	tune func(w *world, la, lb *link)
	// state is how far the peer gets, after which then may happen.
	state hostverbs.QPState
	then  func(eb *end)
	// order: it is the sequence number that is not the expected one.
	order bool
}

// silences are all ways.
func silences() []silence {
	none := func(*world, *link, *link) {}
	rts := hostverbs.StateRTS
	return []silence{
		{name: "address of nobody", tune: func(_ *world, la, _ *link) { la.dgid[14] = 99 }, state: rts},
		{name: "QP number of nobody", tune: func(_ *world, la, _ *link) { la.dest = 0xabcdef }, state: rts},
		{name: "QP number 0", tune: func(_ *world, la, _ *link) { la.dest = 0 }, state: rts},
		{name: "address of another guest", tune: func(w *world, la, _ *link) { la.dgid = w.guests[2].gid }, state: rts},
		{name: "peer means another QP", tune: func(_ *world, _, lb *link) { lb.dest++ }, state: rts},
		{name: "peer means another guest", tune: func(w *world, _, lb *link) { lb.dgid = w.guests[2].gid }, state: rts},
		{name: "sequence number ahead", tune: func(_ *world, la, _ *link) { la.sqPSN += 5 }, state: rts, order: true},
		{name: "sequence number behind", tune: func(_ *world, la, _ *link) { la.sqPSN -= 5 }, state: rts, order: true},
		{name: "peer in RESET", tune: none, state: hostverbs.StateReset},
		{name: "peer in INIT", tune: none, state: hostverbs.StateInit},
		{name: "peer in ERR", tune: none, state: rts, then: func(eb *end) { eb.to(hostverbs.StateErr) }},
		{name: "peer destroyed", tune: none, state: rts, then: (*end).destroy},
		{name: "peer reset", tune: none, state: rts, then: func(eb *end) { eb.to(hostverbs.StateReset) }},
	}
}

// silenced returns the two ends of a connection of a type, whose peer does not answer in a way. Of what it may receive there is
// one, into far.
func (w *world) silenced(typ hostverbs.QPType, a, b *guest, s silence, retries uint8, far *region) (ea, eb *end) {
	ea, eb = a.newEnd(typ, false), b.newEnd(typ, false)
	la, lb := ea.linkTo(eb), eb.linkTo(ea)
	s.tune(w, &la, &lb)
	la.retry = retries
	eb.up(lb, s.state)
	ea.up(la, hostverbs.StateRTS)
	if s.state != hostverbs.StateReset {
		eb.recv(rwr(9, far.sge(0, 64)))
	}
	if s.then != nil {
		s.then(eb)
		w.spin()
		eb.dev.received = nil
	}
	return ea, eb
}

func noAnswer(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	w.guest()
	near, far := a.buffer(64), b.buffer(64)
	for i, s := range silences() {
		retries := uint8(i % 8)
		ea, eb := w.silenced(hostverbs.QPTypeRC, a, b, s, retries, far)
		since := w.env.Clock.Now()
		ea.send(rdma(1, moves()[i%5].op, far, 0, near.sge(0, 64)), wr(2, hostverbs.OpSend))
		w.settle()
		ea.sends(s.name, failed(1, hostverbs.WCRetryExcErr), failed(2, hostverbs.WCWRFlushErr))
		ea.in(s.name, hostverbs.StateErr)
		eb.recvs(s.name)
		w.within(fmt.Sprintf("%s, %d retries", s.name, retries), ea.dev.sentAt-since, ackTimeout*int64(retries+1))
		w.verify(s.name)
	}
}

func readyLater(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near, far := a.buffer(64), b.buffer(64)
	ea, eb := a.newEnd(hostverbs.QPTypeRC, false), b.newEnd(hostverbs.QPTypeRC, false)
	lb := eb.linkTo(ea)
	eb.up(lb, hostverbs.StateInit)
	ea.up(ea.linkTo(eb), hostverbs.StateRTS)
	far.expect(0, near.fill(1, 1, 64))
	since := w.env.Clock.Now()
	ea.send(rdma(1, hostverbs.OpRDMAWrite, far, 0, near.sge(0, 64)))
	w.elapse(ackTimeout / 2)
	eb.modify(lb.attr(hostverbs.StateRTR), maskRTR)
	w.spin()
	ea.sends("before the retry")
	w.settle()
	ea.sends("after the retry", done(1, hostverbs.WCOpRDMAWrite))
	w.within("the wait for the peer", ea.dev.sentAt-since, ackTimeout)
	w.verify("after the retry")
}

func noTimeout(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	lost := func() *end {
		ea, eb := w.pair(a, b, func(la, _ *link) { la.timeout = 0 })
		eb.to(hostverbs.StateReset)
		ea.send(wr(1, hostverbs.OpSend), wr(2, hostverbs.OpSend))
		w.elapse(int64(10 * time.Second))
		ea.sends("10 s without a timeout")
		ea.in("10 s without a timeout", hostverbs.StateRTS)
		return ea
	}
	e := lost()
	e.to(hostverbs.StateErr)
	w.settle()
	e.sends("moved to ERR", failed(1, hostverbs.WCWRFlushErr), failed(2, hostverbs.WCWRFlushErr))

	e = lost()
	e.to(hostverbs.StateReset)
	e.do(func() { e.dev.sq = nil })
	w.settle()
	e.sends("moved to RESET")

	e = lost()
	e.destroy()
	w.settle()
	e.sends("destroyed")
}

// longMessage is the length of a message that an engine should not move in one go.
const longMessage = 3 << 20

// message posts a long write and lets the engine begin with it. It says whether the engine finished already.
func (w *world) message(ea *end, near, far *region, n uint64) (finished bool) {
	ea.send(rdma(1, hostverbs.OpRDMAWrite, far, 0, near.sge(0, n)))
	w.visit()
	return len(ea.dev.sent) > 0
}

func goesAwayUnderAMessage(t testing.TB, env Env) {
	const n = longMessage
	ways := map[string]func(eb *end){
		"destroyed": (*end).destroy,
		"reset":     func(eb *end) { eb.to(hostverbs.StateReset) },
		"failed":    func(eb *end) { eb.to(hostverbs.StateErr) },
		"address":   func(eb *end) { eb.g.unbind() },
		"closed":    func(eb *end) { eb.g.leave() },
	}
	w := newWorld(t, env)
	for name, way := range ways {
		a, b := w.guest(), w.guest()
		near, far := a.buffer(n), b.buffer(n)
		near.fill(1, 1, n)
		ea, eb := w.pair(a, b, nil)
		finished := w.message(ea, near, far, n)
		way(eb)
		w.believe()
		w.settle()
		w.verify(name)
		if !finished {
			ea.sends(name, failed(1, hostverbs.WCRetryExcErr))
			ea.in(name, hostverbs.StateErr)
		}
		a.leave()
		b.leave()
	}
}

// unbind gives the guest's address up.
func (g *guest) unbind() {
	if err := g.ctx.UnbindGID(0, g.gid); err != nil {
		g.w.t.Fatalf("unbind: %v", err)
	}
}

// leave closes the guest's context, if it is open.
func (g *guest) leave() {
	if g.ctx == nil {
		return
	}
	if err := g.ctx.Close(); err != nil {
		g.w.t.Fatalf("close the context: %v", err)
	}
	g.ctx = nil
	for i := 0; i < len(g.w.ends); i++ {
		if g.w.ends[i].g == g {
			g.w.ends = append(g.w.ends[:i], g.w.ends[i+1:]...)
			i--
		}
	}
}

// depart is leave for a guest whose memory nobody looks at any more.
func (g *guest) depart() {
	g.leave()
	if err := g.space.Close(); err != nil {
		g.w.t.Fatalf("close the memory: %v", err)
	}
	g.w.guests = slices.DeleteFunc(g.w.guests, func(x *guest) bool { return x == g })
}

func startedAnew(t testing.TB, env Env) {
	const n = longMessage
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near, far := a.buffer(n), b.buffer(n)
	near.fill(1, 1, n)
	ea, eb := w.pair(a, b, nil)
	if w.message(ea, near, far, n) {
		return // an engine that is faster has nothing to get wrong
	}
	eb.to(hostverbs.StateReset)
	eb.up(eb.linkTo(ea), hostverbs.StateRTS)
	w.believe()
	w.settle()
	w.verify("the rest")
	ea.sends("the rest", failed(1, hostverbs.WCRetryExcErr))
}

// movedAddress takes the address of a message's sender away after the first bytes, gives it to a guest whose queue pair has
// the same number and the same message, and gives it back.
func movedAddress(t testing.TB, env Env) {
	const n, number = longMessage, 7
	w := newWorld(t, env)
	a, b, c := w.guest(), w.guest(), w.guest()
	ea, eb, ec := a.numbered(number), b.numbered(number+1), c.numbered(number)
	la, lc := ea.linkTo(eb), ec.linkTo(eb)
	lc.sgidIndex = 1
	ea.up(la, hostverbs.StateRTS)
	eb.up(eb.linkTo(ea), hostverbs.StateRTS)
	send := func(e *end) {
		from := e.g.buffer(n)
		from.fill(1, number, n)
		e.send(wr(1, hostverbs.OpSend, from.sge(0, n)))
	}
	eb.recv(rwr(9, b.buffer(n).sge(0, n)))

	send(ea)
	w.visit()
	if len(ea.dev.sent) > 0 {
		return // an engine that is faster has nothing to get wrong
	}
	a.unbind()
	w.want("bind the address of another that is gone", c.ctx.BindGID(1, a.gid, v2), nil)
	ec.up(lc, hostverbs.StateRTS)
	send(ec)
	for range 3 * len(w.sites) { // further than the first
		w.visit()
	}
	w.want("give it back", c.ctx.UnbindGID(1, a.gid), nil)
	w.want("bind it again", a.ctx.BindGID(0, a.gid, v2), nil)
	w.believe()
	w.settle()

	w.verify("the rest")
	ea.sends("the first", failed(1, hostverbs.WCRetryExcErr))
	ec.sends("the second", failed(1, hostverbs.WCRetryExcErr))
	eb.recvs("neither")
	eb.in("neither", hostverbs.StateRTS)
}
