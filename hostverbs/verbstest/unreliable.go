// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"fmt"
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// unreliableCases are about UC queue pairs.
func unreliableCases() []Case {
	return []Case{
		{"an unreliable connection moves every size exactly", everySizeUnreliably},
		{"what an unreliable peer does not receive is lost without a trace", unreliableLoss},
		{"what an unreliable peer does not permit is lost without a trace", unreliableRefusal},
		{"the rest of a message that is lost half-way is lost too", lostHalfWay},
		{"an unreliable responder begins anew after a loss", afterALoss},
		{"an unreliable receive into memory that its key does not give fails at the receiver alone", badUnreliableReceive},
		{"what is wrong with an unreliable request stops the send queue only", unreliableErrors},
	}
}

// unreliable connects two guests by UC queue pairs in RTS.
func (w *world) unreliable(a, b *guest) (*end, *end) {
	w.t.Helper()
	return w.pairOf(hostverbs.QPTypeUC, a, b, nil)
}

func everySizeUnreliably(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := w.unreliable(a, b)
	w.exercise(ea, eb)
	ea, eb = w.unreliable(a, a)
	w.exercise(ea, eb)
}

func unreliableLoss(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	w.guest()
	near, far := a.buffer(64), b.buffer(64)
	all := append(silences(), silence{
		name: "no receive", tune: func(*world, *link, *link) {}, state: hostverbs.StateRTS,
		then: func(eb *end) { eb.do(func() { eb.dev.rq = nil }) },
	})
	for _, s := range all {
		if s.order {
			continue // an unreliable responder takes any number
		}
		for _, m := range []hostverbs.WROpcode{hostverbs.OpSend, hostverbs.OpRDMAWriteWithImm} {
			what := fmt.Sprintf("%s, %s", s.name, m)
			ea, eb := w.silenced(hostverbs.QPTypeUC, a, b, s, 0, far)
			since := w.env.Clock.Now()
			length := near.sge(0, 64)
			if s.name == "no receive" {
				length.Length = 0 // a WRITE's bytes may arrive all the same
			}
			ea.send(rdma(1, m, far, 0, length))
			w.settle()
			ea.sends(what, done(1, sendCompletion(m)))
			ea.in(what, hostverbs.StateRTS)
			eb.recvs(what)
			eb.events(what)
			if waited := ea.dev.sentAt - since; waited != 0 {
				t.Errorf("%s: the sender waited %d ns", what, waited)
			}
			w.verify(what)
		}
	}
}

// sendCompletion is what a request completes as.
func sendCompletion(op hostverbs.WROpcode) hostverbs.WCOpcode {
	for _, m := range moves() {
		if m.op == op {
			return m.wc
		}
	}
	return hostverbs.WCOpSend
}

func unreliableRefusal(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near, far := a.buffer(3*page), b.buffer(4096)
	near.fill(1, 1, 3*page)
	// nothing sends a request that the peer drops; one that is right then uses the same receive.
	nothing := func(what string, ea, eb *end, req hostverbs.SendWR) {
		t.Helper()
		ea.send(req)
		w.settle()
		ea.sends(what, done(req.WRID, sendCompletion(req.Opcode)))
		eb.recvs(what)
		eb.events(what)
		eb.in(what, hostverbs.StateRTS)
		w.verify(what)
		ea.send(wr(5, hostverbs.OpSend))
		w.settle()
		ea.sends("after "+what, done(5, hostverbs.WCOpSend))
		eb.recvs("after "+what, hostverbs.WC{WRID: 9, Opcode: hostverbs.WCOpRecv, SrcQP: ea.qp.QPN()})
		ea.destroy()
		eb.destroy()
	}
	for _, op := range []hostverbs.WROpcode{hostverbs.OpRDMAWrite, hostverbs.OpRDMAWriteWithImm} {
		for _, c := range b.badKeys(op) {
			ea, eb := w.unreliable(a, b)
			eb.recv(rwr(9))
			req := wr(1, op, near.sge(0, uint64(c.n)))
			req.RemoteAddr, req.RKey = c.addr, c.rkey
			nothing(fmt.Sprintf("%s, %s", op, c.name), ea, eb, req)
		}
		ea, eb := w.pairOf(hostverbs.QPTypeUC, a, b, func(_, lb *link) { lb.access = 0 })
		eb.recv(rwr(9))
		nothing(op.String()+" without the right", ea, eb, rdma(1, op, far, 0, near.sge(0, 8)))
	}
	for _, n := range []uint64{65, 4096, 3 * page} {
		ea, eb := w.unreliable(a, b)
		eb.recv(rwr(9, far.sge(0, 64)))
		nothing(fmt.Sprintf("%d bytes into 64", n), ea, eb, wr(1, hostverbs.OpSend, near.sge(0, n)))
	}
}

func lostHalfWay(t testing.TB, env Env) {
	w := newWorld(t, env)
	const n = 1 << 20
	for name, leave := range map[string]func(eb *end){
		"destroyed": (*end).destroy, "reset": func(eb *end) { eb.to(hostverbs.StateReset) },
		"in ERR": func(eb *end) { eb.to(hostverbs.StateErr) },
	} {
		a, b := w.guest(), w.guest()
		near, far := a.buffer(n), b.buffer(n)
		near.fill(1, 1, n)
		ea, eb := w.unreliable(a, b)
		eb.recv(rwr(9, far.sge(0, n)))
		if w.message(ea, near, far, n) {
			t.Fatalf("%s: %d bytes take one visit", name, n)
		}
		leave(eb)
		w.settle()
		eb.dev.received = nil
		ea.sends(name, done(1, hostverbs.WCOpRDMAWrite))
		ea.in(name, hostverbs.StateRTS)
		w.believe()
		a.depart()
		b.depart()
	}
}

func afterALoss(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near := a.buffer(4096)
	ea, eb := w.pairOf(hostverbs.QPTypeUC, a, b, func(la, lb *link) { la.sqPSN, lb.rqPSN = 0xfffffe, 5 })
	psn := uint32(0xfffffe)
	for i := range uint64(4) {
		ea.send(wr(1, hostverbs.OpSend, near.sge(0, 4096))) // four packets for no receive
		w.settle()
		ea.sends("lost", done(1, hostverbs.WCOpSend))
		eb.recv(rwr(i))
		ea.send(wr(2, hostverbs.OpSend))
		w.settle()
		ea.sends("not lost", done(2, hostverbs.WCOpSend))
		eb.recvs("not lost", hostverbs.WC{WRID: i, Opcode: hostverbs.WCOpRecv, SrcQP: ea.qp.QPN()})
		psn = (psn + 5) & 0xffffff
		if got := ea.query().SQPSN; got != psn {
			t.Errorf("sq_psn %#x, want %#x", got, psn)
		}
		if got := eb.query().RQPSN; got != psn {
			t.Errorf("the peer's rq_psn %#x, want %#x", got, psn)
		}
	}
}

func badUnreliableReceive(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near := a.buffer(8192)
	near.fill(1, 1, 8192)
	for _, c := range b.badSGEs() {
		ea, eb := w.unreliable(a, b)
		eb.recv(rwr(8, c.sge), rwr(9))
		ea.send(wr(1, hostverbs.OpSend, near.sge(0, min(uint64(c.sge.Length), 4096))))
		w.settle()
		ea.sends(c.name, done(1, hostverbs.WCOpSend))
		ea.in(c.name, hostverbs.StateRTS)
		eb.recvs(c.name, failed(8, hostverbs.WCLocProtErr), failed(9, hostverbs.WCWRFlushErr))
		eb.in(c.name, hostverbs.StateErr)
		w.verify(c.name)
		ea.destroy()
		eb.destroy()
	}
}

func unreliableErrors(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := w.unreliable(a, b)
	near, far := a.buffer(4096), b.buffer(4096)
	var all []wrongRequest
	for _, op := range []hostverbs.WROpcode{
		hostverbs.OpInvalid, hostverbs.OpSendWithInv, hostverbs.OpRDMARead, hostverbs.OpAtomicCmpAndSwp, hostverbs.OpAtomicFetchAndAdd,
	} {
		all = append(all, wrongRequest{op.String(), rdma(1, op, far, 0, near.sge(0, 8)), hostverbs.WCLocQPOpErr})
	}
	for _, c := range a.badSGEs() {
		if !c.writes {
			all = append(all, wrongRequest{c.name, rdma(1, hostverbs.OpRDMAWrite, far, 0, c.sge), hostverbs.WCLocProtErr})
		}
	}
	for i := range all {
		all[i].req.SGE[0].Length = min(all[i].req.SGE[0].Length, 4096)
	}
	ea.stops(rdma(1, hostverbs.OpRDMAWrite, far, 0, near.sge(0, 8)), all, func(what string) {
		ea.recv(rwr(6))
		eb.send(wr(5, hostverbs.OpSend))
		w.settle()
		eb.sends("to a QP in SQE", done(5, hostverbs.WCOpSend))
		ea.recvs("in SQE", hostverbs.WC{WRID: 6, Opcode: hostverbs.WCOpRecv, SrcQP: eb.qp.QPN()})
		eb.events(what)
		w.verify(what)
	})
}
