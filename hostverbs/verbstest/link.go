// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"fmt"
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// linkCases are about ports that go down and come up.
func linkCases() []Case {
	return []Case{
		{"while a port is down nothing leaves the guest and nothing reaches it, and what waited goes on when it is up", portDown},
		{"a datagram from or to a port that is down is lost", portDownDatagrams},
	}
}

func portDown(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b, c := w.guest(), w.guest(), w.guest()
	near, far := a.buffer(64), b.buffer(64)
	for _, who := range []*guest{a, b} {
		what := "the port of " + who.name
		ea, eb := w.pair(a, b, func(la, _ *link) { la.retry = 7 })
		ec, ed := w.pair(c, c, nil)
		self, own := w.pair(who, who, func(la, _ *link) { la.retry = 0 })
		eb.recv(rwr(9))
		ed.recv(rwr(9))
		who.ctx.SetLink(false)
		ea.send(wr(1, hostverbs.OpSend), rdma(2, hostverbs.OpRDMAWrite, far, 0, near.sge(0, 64)))
		ec.send(wr(1, hostverbs.OpSend))
		self.send(wr(1, hostverbs.OpRDMAWrite))
		w.elapse(ackTimeout * 3)
		ea.sends(what + " is down")
		eb.recvs(what + " is down")
		ec.sends(what+" is down, others", done(1, hostverbs.WCOpSend))
		self.sends(what+" is down, a guest and itself", failed(1, hostverbs.WCRetryExcErr))
		own.in(what+" is down, a guest and itself", hostverbs.StateRTS)
		w.verify(what + " is down")

		who.ctx.SetLink(true)
		far.expect(0, near.fill(3, 1, 64))
		w.settle()
		ea.sends(what+" is up", done(1, hostverbs.WCOpSend), done(2, hostverbs.WCOpRDMAWrite))
		eb.recvs(what+" is up", hostverbs.WC{WRID: 9, Opcode: hostverbs.WCOpRecv, SrcQP: ea.qp.QPN()})
		w.verify(what + " is up")

		who.ctx.SetLink(false)
		if err := who.ctx.BindGID(1, hostverbs.GID{10: 0xff, 11: 0xff, 12: 10, 13: 9, 15: who.gid[15]}, v2); err != nil {
			t.Errorf("bind while the port is down: %v", err)
		}
		ea.send(wr(3, hostverbs.OpSend))
		w.settle()
		ea.sends(what+" stays down", failed(3, hostverbs.WCRetryExcErr))
		who.ctx.SetLink(true)
		ea.destroy()
		eb.destroy()
	}
}

func portDownDatagrams(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	far := b.buffer(1024)
	ea, eb := a.ud(), b.ud()
	for i := range uint64(3) {
		eb.recv(rwr(i, far.sge(0, 1024)))
	}
	for i, who := range []*guest{a, b} {
		who.ctx.SetLink(false)
		ea.send(datagram(uint64(i), hostverbs.OpSend, eb))
		w.settle()
		what := fmt.Sprintf("the port of %s is down", who.name)
		ea.sends(what, done(uint64(i), hostverbs.WCOpSend))
		eb.recvs(what)
		who.ctx.SetLink(true)
	}
	ea.send(datagram(9, hostverbs.OpSend, eb))
	w.settle()
	ea.sends("both are up", done(9, hostverbs.WCOpSend))
	eb.recvs("both are up", arrival(0, ea, 0, hostverbs.NetworkIPv4))
}
