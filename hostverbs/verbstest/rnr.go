// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"fmt"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// rnrCases are about messages that find no receive.
func rnrCases() []Case {
	return []Case{
		{"a message without a receive waits the responder's time, as often as the requester tries", rnrExhausted},
		{"seven RNR retries are for ever", rnrForever},
		{"while a message waits for a receive, nothing restarts it early", rnrNotEarly},
		{"every message has all its RNR retries", rnrRetriesRenewed},
	}
}

// code12 is min_rnr_timer 12: 0.64 ms.
const code12 = int64(640 * time.Microsecond)

// within expects that something took want nanoseconds, or later by what the engine's timers may be late.
func (w *world) within(what string, got, want int64) {
	w.t.Helper()
	latest := want + want*w.env.LatePercent/100 + int64(100*time.Microsecond)
	if got < want || got > latest {
		w.t.Errorf("%s took %v, want %v to %v", what, time.Duration(got), time.Duration(want), time.Duration(latest))
	}
}

func rnrExhausted(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	cases := []struct {
		code    uint8
		retries uint8
		want    time.Duration
	}{
		{12, 3, 3 * 640 * time.Microsecond},
		{12, 0, 0},
		{12, 6, 6 * 640 * time.Microsecond},
		{1, 6, 6 * 10 * time.Microsecond},
		{31, 1, 491520 * time.Microsecond},
		{0, 1, 655360 * time.Microsecond},
	}
	for _, op := range []hostverbs.WROpcode{hostverbs.OpSend, hostverbs.OpRDMAWriteWithImm} {
		for _, c := range cases {
			what := fmt.Sprintf("%s, %d retries of timer code %d", op, c.retries, c.code)
			ea, eb := w.pair(a, b, func(la, lb *link) {
				la.rnrRetry, lb.minRNR = c.retries, c.code
				la.minRNR, lb.rnrRetry = 31, 7 // these are for the other direction
			})
			since := w.env.Clock.Now()
			ea.send(wr(1, op), wr(2, op))
			w.settle()
			ea.sends(what, failed(1, hostverbs.WCRNRRetryExcErr), failed(2, hostverbs.WCWRFlushErr))
			ea.in(what, hostverbs.StateErr)
			eb.in(what, hostverbs.StateRTS)
			eb.recvs(what)
			w.within(what, ea.dev.sentAt-since, int64(c.want))
			ea.destroy()
			eb.destroy()
		}
	}
}

func rnrForever(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := w.pair(a, b, func(la, _ *link) { la.rnrRetry = 7 })
	ea.send(wr(1, hostverbs.OpSend))
	w.elapse(int64(200 * time.Millisecond))
	ea.sends("200 ms without a receive")
	ea.in("200 ms without a receive", hostverbs.StateRTS)
	eb.recv(rwr(9))
	w.settle()
	ea.sends("with a receive", done(1, hostverbs.WCOpSend))
	eb.recvs("with a receive", hostverbs.WC{WRID: 9, Opcode: hostverbs.WCOpRecv, SrcQP: ea.qp.QPN()})
}

func rnrNotEarly(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	const wait = int64(491520 * time.Microsecond)
	ea, eb := w.pair(a, b, func(la, lb *link) { la.rnrRetry, lb.minRNR = 1, 31 })
	since := w.env.Clock.Now()
	ea.send(wr(1, hostverbs.OpSend))
	w.elapse(int64(time.Millisecond))
	eb.recv(rwr(8), rwr(9))
	ea.send(wr(2, hostverbs.OpSend))
	w.elapse(wait - int64(20*time.Millisecond))
	ea.sends("before the timer")
	eb.recvs("before the timer")
	w.settle()
	ea.sends("after the timer", done(1, hostverbs.WCOpSend), done(2, hostverbs.WCOpSend))
	w.within("the wait for a receive", ea.dev.sentAt-since, wait)
}

func rnrRetriesRenewed(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := w.pair(a, b, func(la, _ *link) { la.rnrRetry = 2 })
	for i := range uint64(5) {
		ea.send(wr(i, hostverbs.OpSend))
		w.elapse(code12 + code12/2) // one retry is used up
		eb.recv(rwr(i))
		w.settle()
		ea.sends(fmt.Sprintf("message %d", i), done(i, hostverbs.WCOpSend))
	}
}
