// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// fairnessCases are about queue pairs that share an engine.
func fairnessCases() []Case {
	return []Case{
		{"a short message does not wait for the end of long ones", shortAmongLong},
		{"a queue pair that always has work starves nobody", endlessWork},
	}
}

func shortAmongLong(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	const n = longMessage
	near, far := a.buffer(n), b.buffer(n)
	far.expect(0, near.fill(1, 1, n))
	var long []*end
	for range 20 {
		ea, _ := w.pair(a, b, nil)
		ea.send(rdma(1, hostverbs.OpRDMAWrite, far, 0, near.sge(0, n)))
		long = append(long, ea)
	}
	w.visit()
	ea, _ := w.pair(a, b, nil)
	ea.send(rdma(2, hostverbs.OpRDMAWrite, far, 0, near.sge(0, 1)))
	w.round()
	ea.sends("one byte", done(2, hostverbs.WCOpRDMAWrite))
	w.settle()
	for _, e := range long {
		e.sends("3 MiB", done(1, hostverbs.WCOpRDMAWrite))
	}
	w.verify("all messages")
}

func endlessWork(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near, far := a.buffer(64<<10), b.buffer(64<<10)
	var ends []*end
	for range 4 {
		ea, _ := w.pair(a, b, nil)
		ends = append(ends, ea)
	}
	const rounds = 50
	for range rounds {
		for _, e := range ends {
			for len(e.dev.sq) < 200 {
				r := rdma(1, hostverbs.OpRDMAWrite, far, 0, near.sge(0, 64<<10))
				e.dev.sq = append(e.dev.sq, r)
			}
			e.dev.ring = true
		}
		w.round()
	}
	for i, e := range ends {
		if n := len(e.dev.sent); n < rounds {
			t.Errorf("queue pair %d of 4 completed %d requests in %d rounds", i, n, rounds)
		}
		e.do(func() { e.dev.sq = nil })
	}
}
