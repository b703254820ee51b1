// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// flushCases are about queue pairs in ERR, and about those that are reset or destroyed.
func flushCases() []Case {
	return []Case{
		{"a queue pair in ERR flushes what is posted, in order, signalled or not", flushesInOrder},
		{"a queue pair in ERR flushes what is posted later, for as long as it is", flushesLater},
		{"the completion that says why comes before the flushed ones", reasonFirst},
		{"a device can fail a queue pair", failedByTheDevice},
		{"a device can fail a queue pair in its own callback", failedInACallback},
		{"a device may post from its own callback", postInACallback},
		{"RESET forgets everything silently", resetIsSilent},
		{"a queue pair that was reset works again", worksAfterReset},
		{"a destroyed queue pair completes nothing", destroyIsSilent},
	}
}

// flushed are the completions of n flushed requests from a first number on.
func flushed(first, n uint64) []hostverbs.WC {
	var out []hostverbs.WC
	for i := range n {
		out = append(out, failed(first+i, hostverbs.WCWRFlushErr))
	}
	return out
}

// waiting returns a connection whose requests 1 to n wait for a receive, and which has m receives 101 and up.
func (w *world) waiting(a, b *guest, n, m uint64) (*end, *end) {
	ea, eb := w.pair(a, b, func(la, _ *link) { la.rnrRetry = 7 })
	for i := range m {
		ea.recv(rwr(101 + i))
	}
	for i := range n {
		r := wr(1+i, hostverbs.OpSend)
		if i%2 == 0 {
			r.Flags = 0
		}
		ea.send(r)
	}
	w.elapse(code12 * 3)
	ea.sends("waiting")
	return ea, eb
}

func flushesInOrder(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, _ := w.waiting(a, b, 200, 200)
	ea.to(hostverbs.StateErr)
	ea.send(wr(201, hostverbs.OpSend)) // its doorbell may be served before the flush begins
	w.settle()
	ea.sends("ERR", flushed(1, 201)...)
	ea.recvs("ERR", flushed(101, 200)...)
	ea.events("ERR")
	ea.to(hostverbs.StateErr)
	w.settle()
	ea.sends("ERR again")
	ea.recvs("ERR again")
}

func flushesLater(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, _ := w.pair(a, b, nil)
	ea.to(hostverbs.StateErr)
	w.settle()
	for i := range uint64(3) {
		// What the kernel drains a queue with: a WRITE without entries, unsignalled.
		drain := hostverbs.SendWR{WRID: 50 + i, Opcode: hostverbs.OpRDMAWrite}
		ea.send(wr(1+i, hostverbs.OpSend), drain)
		ea.recv(rwr(9 + i))
		w.settle()
		ea.sends("after ERR", failed(1+i, hostverbs.WCWRFlushErr), failed(50+i, hostverbs.WCWRFlushErr))
		ea.recvs("after ERR", failed(9+i, hostverbs.WCWRFlushErr))
	}
	init := w.guests[0].newEnd(hostverbs.QPTypeRC, false)
	init.up(init.linkTo(ea), hostverbs.StateInit)
	init.recv(rwr(1))
	w.settle()
	init.recvs("in INIT")
	init.to(hostverbs.StateErr)
	w.settle()
	init.recvs("from INIT to ERR", failed(1, hostverbs.WCWRFlushErr))
}

func reasonFirst(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := w.pair(a, b, nil)
	ea.recv(rwr(1), rwr(2))
	eb.recv(rwr(3), rwr(4))
	ea.send(wr(10, hostverbs.OpSend), wr(11, hostverbs.OpInvalid), wr(12, hostverbs.OpSend), wr(13, hostverbs.OpSend))
	w.settle()
	ea.sends("the second is wrong", append([]hostverbs.WC{
		done(10, hostverbs.WCOpSend), failed(11, hostverbs.WCLocQPOpErr),
	}, flushed(12, 2)...)...)
	ea.recvs("the second is wrong", flushed(1, 2)...)
	eb.recvs("the second is wrong", hostverbs.WC{WRID: 3, Opcode: hostverbs.WCOpRecv, SrcQP: ea.qp.QPN()})
}

func failedByTheDevice(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, _ := w.waiting(a, b, 3, 2)
	ea.do(ea.qp.Fail)
	w.settle()
	ea.in("Fail", hostverbs.StateErr)
	ea.sends("Fail", flushed(1, 3)...)
	ea.recvs("Fail", flushed(101, 2)...)

	fresh := a.newEnd(hostverbs.QPTypeRC, false)
	fresh.do(fresh.qp.Fail)
	fresh.in("Fail in RESET", hostverbs.StateReset)
}

func failedInACallback(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := w.pair(a, b, nil)
	eb.dev.onRecv = func() { eb.qp.Fail() }
	eb.recv(rwr(1), rwr(2))
	ea.send(wr(10, hostverbs.OpSend), wr(11, hostverbs.OpSend))
	w.settle()
	ea.sends("the peer fails at its first receive", done(10, hostverbs.WCOpSend), failed(11, hostverbs.WCRetryExcErr))
	eb.recvs("the peer fails at its first receive",
		hostverbs.WC{WRID: 1, Opcode: hostverbs.WCOpRecv, SrcQP: ea.qp.QPN()}, failed(2, hostverbs.WCWRFlushErr))

	// Before a byte has moved, the message is lost.
	for name, at := range map[string]func(d *device, fail func()){
		"pull":  func(d *device, fail func()) { d.onPull = fail },
		"event": func(d *device, fail func()) { d.onEvent = fail },
	} {
		ea, eb := a.newEnd(hostverbs.QPTypeRC, false), b.newEnd(hostverbs.QPTypeRC, false)
		ea.up(ea.linkTo(eb), hostverbs.StateRTS)
		eb.up(eb.linkTo(ea), hostverbs.StateRTR)
		at(eb.dev, eb.qp.Fail)
		eb.recv(rwr(1), rwr(2))
		ea.send(wr(10, hostverbs.OpSend), wr(11, hostverbs.OpSend))
		w.settle()
		ea.sends("the peer fails in "+name, failed(10, hostverbs.WCRetryExcErr), failed(11, hostverbs.WCWRFlushErr))
		eb.recvs("the peer fails in "+name, flushed(1, 2)...)
	}

	// Both ends at once, as when they share a completion queue that overflows.
	ea, eb = w.pair(a, a, nil)
	eb.dev.onRecv = func() {
		eb.qp.Fail()
		ea.qp.Fail()
	}
	eb.recv(rwr(1))
	ea.send(wr(10, hostverbs.OpSend), wr(11, hostverbs.OpSend))
	w.settle()
	if n := len(ea.dev.sent); n != 2 || ea.dev.sent[1].Status != hostverbs.WCWRFlushErr {
		t.Errorf("both ends fail: send completions %+v, want two, the second flushed", ea.dev.sent)
	}
}

func postInACallback(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, _ := w.pair(a, b, nil)
	next := uint64(0)
	var want []hostverbs.WC
	ea.dev.onSend = func() {
		if next < 10 {
			next++
			ea.dev.sq = append(ea.dev.sq, wr(next, hostverbs.OpRDMAWrite))
			ea.dev.sq = ea.dev.sq[ea.qp.PostSend(ea.dev.sq):]
		}
	}
	for i := range uint64(11) {
		want = append(want, done(i, hostverbs.WCOpRDMAWrite))
	}
	ea.do(func() {
		first := wr(0, hostverbs.OpRDMAWrite)
		ea.qp.PostSend([]hostverbs.SendWR{first})
	})
	w.settle()
	ea.sends("each completion posts the next request", want...)
}

func resetIsSilent(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, _ := w.waiting(a, b, 5, 5)
	ea.to(hostverbs.StateReset)
	ea.do(func() { ea.dev.sq, ea.dev.rq = nil, nil })
	w.settle()
	ea.sends("RESET")
	ea.recvs("RESET")
	ea.in("RESET", hostverbs.StateReset)

	ea, _ = w.waiting(a, b, 5, 5)
	ea.to(hostverbs.StateErr)
	ea.to(hostverbs.StateReset)
	ea.do(func() { ea.dev.sq, ea.dev.rq = nil, nil })
	ea.dev.sent, ea.dev.received = nil, nil
	w.settle()
	ea.sends("RESET before the flush")
	ea.recvs("RESET before the flush")
}

func worksAfterReset(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := w.pair(a, b, nil)
	near, far := a.buffer(64), b.buffer(64)
	for i := range uint64(3) {
		eb.recv(rwr(i, far.sge(0, 64)))
		far.expect(0, near.fill(i, 1, 64))
		ea.send(wr(i, hostverbs.OpSend, near.sge(0, 64)))
		w.settle()
		ea.sends("before", done(i, hostverbs.WCOpSend))
		ea.send(wr(99, hostverbs.OpInvalid))
		w.settle()
		for _, e := range []*end{ea, eb} {
			e.to(hostverbs.StateReset)
			e.dev.sent, e.dev.received = nil, nil
		}
		ea.up(ea.linkTo(eb), hostverbs.StateRTS)
		eb.up(eb.linkTo(ea), hostverbs.StateRTS)
	}
	w.verify("after three resets")
}

func destroyIsSilent(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, _ := w.waiting(a, b, 5, 5)
	ea.destroy()
	w.settle()
	ea.sends("destroyed")
	ea.recvs("destroyed")

	ea, _ = w.waiting(a, b, 5, 5)
	ea.to(hostverbs.StateErr)
	ea.destroy()
	ea.dev.sent, ea.dev.received = nil, nil
	w.settle()
	ea.sends("destroyed before the flush")
	ea.recvs("destroyed before the flush")
}
