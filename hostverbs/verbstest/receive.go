// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"fmt"
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// receiveCases are about what goes wrong with a posted receive.
func receiveCases() []Case {
	return []Case{
		{"a message that is longer than the receive fails on both sides", longerThanTheReceive},
		{"a receive into memory that its key does not give fails on both sides", receiveKeys},
		{"a receive that the device refused fails on both sides", refusedReceive},
		{"receives are taken one by one, when a message needs one", pulledWhenNeeded},
	}
}

func longerThanTheReceive(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near, far := a.buffer(9000), b.buffer(9000)
	near.fill(1, 1, 9000)
	far.fill(2, 1, 9000)
	for _, n := range []uint64{1, 1024, 8000} {
		what := fmt.Sprintf("%d bytes into %d", n, n-1)
		ea, eb := w.pair(a, b, nil)
		eb.recv(rwr(8, far.sge(0, n-1)), rwr(9, far.sge(0, 9000)))
		ea.send(wr(1, hostverbs.OpSend, near.sge(0, n)), wr(2, hostverbs.OpSend))
		w.settle()
		ea.sends(what, failed(1, hostverbs.WCRemInvReqErr), failed(2, hostverbs.WCWRFlushErr))
		eb.recvs(what, failed(8, hostverbs.WCLocLenErr), failed(9, hostverbs.WCWRFlushErr))
		ea.in(what, hostverbs.StateErr)
		eb.in(what, hostverbs.StateErr)
	}
	// What arrived before the end of the receive is not promised; these engines write none of it, others may.
	w.believe()

	ea, eb := w.pair(a, b, nil)
	eb.recv(rwr(8))
	ea.send(rdma(1, hostverbs.OpRDMAWriteWithImm, far, 0, near.sge(0, 9000)))
	far.expect(0, pattern(1, 1, 9000))
	w.settle()
	ea.sends("a write needs no room in the receive", done(1, hostverbs.WCOpRDMAWrite))
	w.verify("a write needs no room in the receive")
}

func receiveKeys(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near := a.buffer(8192)
	near.fill(1, 1, 8192)
	for _, c := range b.badSGEs() {
		ea, eb := w.pair(a, b, nil)
		eb.recv(rwr(8, c.sge), rwr(9))
		n := min(uint64(c.sge.Length), 4096)
		ea.send(wr(1, hostverbs.OpSend, near.sge(0, n)), wr(2, hostverbs.OpSend))
		w.settle()
		ea.sends(c.name, failed(1, hostverbs.WCRemOpErr), failed(2, hostverbs.WCWRFlushErr))
		eb.recvs(c.name, failed(8, hostverbs.WCLocProtErr), failed(9, hostverbs.WCWRFlushErr))
		ea.in(c.name, hostverbs.StateErr)
		eb.in(c.name, hostverbs.StateErr)
		w.verify(c.name)
		ea.destroy()
		eb.destroy()
	}
}

func refusedReceive(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	for _, op := range []hostverbs.WROpcode{hostverbs.OpSend, hostverbs.OpRDMAWriteWithImm} {
		ea, eb := w.pair(a, b, nil)
		bad := rwr(8)
		bad.Status = hostverbs.WCLocProtErr
		eb.recv(bad)
		ea.send(wr(1, op))
		w.settle()
		ea.sends(op.String(), failed(1, hostverbs.WCRemOpErr))
		eb.recvs(op.String(), failed(8, hostverbs.WCLocProtErr))

		ea, eb = w.pair(a, b, nil)
		lying := rwr(8)
		lying.NumSGE = 255
		eb.recv(lying)
		ea.send(wr(1, op))
		w.settle()
		ea.sends("255 entries", failed(1, hostverbs.WCRemOpErr))
		eb.recvs("255 entries", failed(8, hostverbs.WCLocQPOpErr))
	}
}

func pulledWhenNeeded(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := w.pair(a, b, nil)
	for i := range uint64(10) {
		eb.recv(rwr(i))
	}
	ea.send(wr(1, hostverbs.OpRDMAWrite), wr(2, hostverbs.OpSend), wr(3, hostverbs.OpRDMAWriteWithImm))
	w.settle()
	if left := len(eb.dev.rq); left != 8 {
		t.Errorf("%d of 10 receives are left after two messages that take one, want 8", left)
	}
}
