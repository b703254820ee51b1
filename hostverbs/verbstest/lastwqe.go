// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

func sharedLast(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	p := b.newPool(b.pd, poolAttr())
	ea, eb := w.sharing(a, b, p)
	const n = 1 << 20
	near, far := a.buffer(n), b.buffer(n)
	p.post(rwr(7, far.sge(0, n)), rwr(8))
	eb.dev.onEvent = func() {
		if n := len(eb.dev.received); n != 1 {
			t.Errorf("the event comes with %d completions, want it behind the last one", n)
		}
	}
	ea.send(wr(1, hostverbs.OpSend, near.sge(0, n)))
	w.visit() // a part of the message has moved
	eb.events("under way")
	eb.to(hostverbs.StateErr)
	w.settle()
	eb.recvs("in ERR", failed(7, hostverbs.WCWRFlushErr))
	eb.events("in ERR", hostverbs.EventQPLastWQEReached)
	eb.dev.onEvent = nil
	eb.do(eb.qp.RecvPosted)
	eb.send(wr(2, hostverbs.OpSend))
	eb.to(hostverbs.StateErr)
	w.settle()
	eb.events("still in ERR")
	ea.events("a queue pair with receives of its own")
	w.believe()

	// What failed by itself says so too, and says so again after it was reset.
	for range 2 {
		eb.to(hostverbs.StateReset)
		eb.up(eb.linkTo(ea), hostverbs.StateRTS)
		eb.dev.sent = nil
		eb.send(wr(3, hostverbs.OpInvalid))
		w.settle()
		eb.events("failed by a request", hostverbs.EventQPLastWQEReached)
	}
	p.left("all", 1)
}
