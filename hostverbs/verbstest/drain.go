// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// drainCases are about SQD.
func drainCases() []Case {
	return []Case{
		{"SQD stops new requests until RTS", drainStops},
		{"SQD says once that the queue is drained, if asked", drainedEvent},
		{"SQD lets the request under way finish first", drainFinishes},
		{"a queue pair that drains can fail or be reset", drainEnds},
	}
}

// drain moves the queue pair to SQD.
func (e *end) drain(notify bool) {
	e.g.w.t.Helper()
	e.modify(&hostverbs.QPAttr{QPState: hostverbs.StateSQD, EnSQDAsyncNotify: notify},
		hostverbs.QPStateMask|hostverbs.QPEnSQDAsyncNotify)
}

func drainStops(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := w.pair(a, b, nil)
	ea.drain(false)
	ea.send(wr(1, hostverbs.OpRDMAWrite))
	eb.send(wr(2, hostverbs.OpRDMAWrite)) // the other direction goes on
	w.settle()
	ea.sends("in SQD")
	eb.sends("to a peer in SQD", done(2, hostverbs.WCOpRDMAWrite))
	ea.events("not asked for")
	ea.to(hostverbs.StateRTS)
	w.settle()
	ea.sends("back in RTS", done(1, hostverbs.WCOpRDMAWrite))
}

func drainedEvent(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, _ := w.pair(a, b, nil)
	for range 2 {
		ea.drain(true)
		w.settle()
		ea.events("drained", hostverbs.EventSQDrained)
		if a := ea.query(); a.SQDraining || !a.EnSQDAsyncNotify {
			t.Errorf("drained: sq_draining %t, en_sqd_async_notify %t", a.SQDraining, a.EnSQDAsyncNotify)
		}
		// SQD is where the attributes of a running connection can be changed.
		l := ea.query()
		l.Timeout, l.RetryCnt = 9, 1
		ea.modify(&l, hostverbs.QPTimeout|hostverbs.QPRetryCnt)
		w.settle()
		ea.events("still drained")
		ea.to(hostverbs.StateRTS)
	}
	ea.to(hostverbs.StateSQD)
	w.settle()
	ea.events("drained, and not asked for this time")
	if ea.query().EnSQDAsyncNotify {
		t.Error("drained: en_sqd_async_notify is of the time before")
	}
	ea.to(hostverbs.StateRTS)
	if a := ea.query(); a.Timeout != 9 || a.RetryCnt != 1 {
		t.Errorf("timeout %d and retry_cnt %d after SQD, want 9 and 1", a.Timeout, a.RetryCnt)
	}
}

func drainFinishes(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := w.waiting(a, b, 1, 0)
	ea.send(wr(2, hostverbs.OpSend))
	ea.drain(true)
	w.elapse(code12 * 2)
	ea.events("a request waits")
	if !ea.query().SQDraining {
		t.Error("a request waits: sq_draining is not set")
	}
	if err := ea.qp.Modify(&hostverbs.QPAttr{QPState: hostverbs.StateRTS}, hostverbs.QPStateMask); !errors.Is(err, unix.EINVAL) {
		t.Errorf("to RTS before the queue is drained: got %v, want EINVAL", err)
	}
	eb.recv(rwr(8), rwr(9))
	w.settle()
	ea.events("the request is through", hostverbs.EventSQDrained)
	ea.sends("the request is through") // it was not signalled
	eb.recvs("the request is through", hostverbs.WC{WRID: 8, Opcode: hostverbs.WCOpRecv, SrcQP: ea.qp.QPN()})
	ea.to(hostverbs.StateRTS)
	w.settle()
	ea.sends("back in RTS", done(2, hostverbs.WCOpSend))
}

func drainEnds(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, _ := w.waiting(a, b, 2, 0)
	ea.drain(true)
	ea.to(hostverbs.StateErr)
	w.settle()
	ea.sends("SQD to ERR", flushed(1, 2)...)
	ea.events("SQD to ERR")

	ea, _ = w.waiting(a, b, 1, 0)
	ea.drain(true)
	ea.to(hostverbs.StateReset)
	w.settle()
	ea.sends("SQD to RESET")
	ea.events("SQD to RESET")
}
