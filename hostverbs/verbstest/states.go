// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// stateCases are about ibv_modify_qp(3) and ibv_query_qp(3).
func stateCases() []Case {
	return []Case{
		{"a query tells what was set, and the state as it is", queryTellsTheTruth},
		{"a query tells the next sequence numbers", sequenceNumbers},
		{"a refused modify changes nothing", refusedModify},
		{"requests below RTS stay with the device", notBelowRTS},
		{"a responder in RTR reports its first packet once", communicationEstablished},
		{"rights can be taken away while a queue pair runs", rightsAreLive},
		{"an address number that nothing is bound to is refused", unboundAddress},
	}
}

// query is ibv_query_qp, which must succeed.
func (e *end) query() hostverbs.QPAttr {
	e.g.w.t.Helper()
	a, err := e.qp.Query()
	if err != nil {
		e.g.w.t.Fatalf("query: %v", err)
	}
	return a
}

// same compares attributes.
func (e *end) same(what string, want hostverbs.QPAttr) {
	e.g.w.t.Helper()
	if got := e.query(); got != want {
		e.g.w.t.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

func queryTellsTheTruth(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	e, p := a.newEnd(hostverbs.QPTypeRC, false), b.newEnd(hostverbs.QPTypeRC, false)
	l := e.linkTo(p)
	l.sqPSN |= 0xff00_0000 // more than 24 bits are cut, not refused
	l.rqPSN |= 0xff00_0000
	want := hostverbs.QPAttr{Cap: qpCap()}
	e.same("RESET", want)

	e.up(l, hostverbs.StateInit)
	want.QPState, want.CurQPState = hostverbs.StateInit, hostverbs.StateInit
	want.PortNum, want.QPAccessFlags = 1, l.access
	e.same("INIT", want)

	full := l.attr(hostverbs.StateRTR)
	e.modify(full, maskRTR)
	want.QPState, want.CurQPState = hostverbs.StateRTR, hostverbs.StateRTR
	want.AHAttr, want.PathMTU, want.DestQPNum = full.AHAttr, l.mtu, l.dest
	want.RQPSN, want.MaxDestRdAtomic, want.MinRNRTimer = l.rqPSN&0xffffff, l.destRdAtomic, l.minRNR
	e.same("RTR", want)

	e.modify(l.attr(hostverbs.StateRTS), maskRTS)
	want.QPState, want.CurQPState = hostverbs.StateRTS, hostverbs.StateRTS
	want.SQPSN, want.MaxRdAtomic = l.sqPSN&0xffffff, l.rdAtomic
	want.Timeout, want.RetryCnt, want.RNRRetry = l.timeout, l.retry, l.rnrRetry
	e.same("RTS", want)

	e.to(hostverbs.StateErr)
	want.QPState, want.CurQPState = hostverbs.StateErr, hostverbs.StateErr
	e.same("ERR", want)
	e.to(hostverbs.StateReset)
	e.same("RESET again", hostverbs.QPAttr{Cap: qpCap()})
}

func sequenceNumbers(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := w.pair(a, b, func(la, lb *link) { la.sqPSN, lb.rqPSN = 0xffffff, 0xffffff })
	near, far := a.buffer(4097), b.buffer(4097)
	want := uint32(0xffffff)
	for _, c := range []struct{ bytes, packets uint32 }{{0, 1}, {1, 1}, {1024, 1}, {1025, 2}, {4096, 4}, {4097, 5}} {
		for _, op := range []hostverbs.WROpcode{hostverbs.OpRDMAWrite, hostverbs.OpRDMARead} {
			ea.send(rdma(1, op, far, 0, near.sge(0, uint64(c.bytes))))
			w.settle()
			want = (want + c.packets) & 0xffffff
			if got := ea.query().SQPSN; got != want {
				t.Errorf("%s of %d bytes: sq_psn %#x, want %#x", op, c.bytes, got, want)
			}
			if got := eb.query().RQPSN; got != want {
				t.Errorf("%s of %d bytes: the peer's rq_psn %#x, want %#x", op, c.bytes, got, want)
			}
		}
	}
}

func refusedModify(t testing.TB, env Env) {
	w := newWorld(t, env)
	a := w.guest()
	e := a.newEnd(hostverbs.QPTypeRC, false)
	l := e.linkTo(e)
	refuse := func(what string, want error, next hostverbs.QPState, mask hostverbs.AttrMask, spoil func(*hostverbs.QPAttr)) {
		t.Helper()
		before := e.query()
		attr := l.attr(next)
		attr.QPAccessFlags, attr.MinRNRTimer = 0, 1
		spoil(attr)
		if err := e.qp.Modify(attr, mask); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", what, err, want)
		}
		e.same(what, before)
	}
	none := func(*hostverbs.QPAttr) {}
	refuse("RESET to RTS", unix.EINVAL, hostverbs.StateRTS, maskRTS, none)
	refuse("RESET to ERR", unix.EINVAL, hostverbs.StateErr, hostverbs.QPStateMask, none)
	refuse("port 2", unix.EINVAL, hostverbs.StateInit, maskInit, func(a *hostverbs.QPAttr) { a.PortNum = 2 })
	refuse("missing port", unix.EINVAL, hostverbs.StateInit, maskInit&^hostverbs.QPPort, none)
	refuse("unknown bit", unix.EOPNOTSUPP, hostverbs.StateInit, maskInit|1<<22, none)
	e.up(l, hostverbs.StateInit)
	refuse("no GRH", unix.EINVAL, hostverbs.StateRTR, maskRTR, func(a *hostverbs.QPAttr) { a.AHAttr.GRH = false })
	refuse("path MTU 0", unix.EINVAL, hostverbs.StateRTR, maskRTR, func(a *hostverbs.QPAttr) { a.PathMTU = 0 })
	refuse("alternate path", unix.EINVAL, hostverbs.StateRTR, maskRTR|hostverbs.QPAltPath, none)
	refuse("resize", unix.EINVAL, hostverbs.StateRTR, maskRTR|hostverbs.QPCapMask, none)
	refuse("too many resources", unix.EINVAL, hostverbs.StateRTR, maskRTR, func(a *hostverbs.QPAttr) { a.MaxDestRdAtomic = 255 })
	e.modify(l.attr(hostverbs.StateRTR), maskRTR)
	refuse("timeout 32", unix.EINVAL, hostverbs.StateRTS, maskRTS, func(a *hostverbs.QPAttr) { a.Timeout = 32 })
	e.modify(l.attr(hostverbs.StateRTS), maskRTS)
	refuse("back to INIT", unix.EINVAL, hostverbs.StateInit, maskInit, none)
	refuse("wrong current state", unix.EINVAL, hostverbs.StateRTS,
		hostverbs.QPStateMask|hostverbs.QPCurState|hostverbs.QPAccessFlagsMask,
		func(a *hostverbs.QPAttr) { a.CurQPState = hostverbs.StateSQE })
	refuse("attributes that RTS has no place for", unix.EINVAL, hostverbs.StateRTS, hostverbs.QPTimeout, none)
}

func notBelowRTS(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := a.newEnd(hostverbs.QPTypeRC, false), b.newEnd(hostverbs.QPTypeRC, false)
	la := ea.linkTo(eb)
	eb.up(eb.linkTo(ea), hostverbs.StateRTS)
	eb.recv(rwr(1), rwr(2), rwr(3))
	for i, step := range []func(){
		func() {},
		func() { ea.up(la, hostverbs.StateInit) },
		func() { ea.modify(la.attr(hostverbs.StateRTR), maskRTR) },
	} {
		step()
		ea.send(wr(uint64(i), hostverbs.OpSend))
		w.settle()
		if n := len(ea.dev.sq); n != i+1 {
			t.Errorf("in %s the engine left %d of %d requests with the device", ea.state(), n, i+1)
		}
	}
	ea.sends("below RTS")
	ea.modify(la.attr(hostverbs.StateRTS), maskRTS)
	w.settle()
	ea.sends("RTS", done(0, hostverbs.WCOpSend), done(1, hostverbs.WCOpSend), done(2, hostverbs.WCOpSend))
}

func communicationEstablished(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := a.newEnd(hostverbs.QPTypeRC, false), b.newEnd(hostverbs.QPTypeRC, false)
	ea.up(ea.linkTo(eb), hostverbs.StateRTS)
	lb := eb.linkTo(ea)
	eb.up(lb, hostverbs.StateRTR)
	eb.events("before")
	eb.recv(rwr(1), rwr(2))
	ea.send(wr(1, hostverbs.OpSend), wr(2, hostverbs.OpSend))
	w.settle()
	ea.sends("two messages", done(1, hostverbs.WCOpSend), done(2, hostverbs.WCOpSend))
	eb.events("two messages", hostverbs.EventCommEst)
	eb.modify(lb.attr(hostverbs.StateRTS), maskRTS)
	ea.send(wr(3, hostverbs.OpRDMAWrite))
	w.settle()
	eb.events("in RTS")
	ea.events("the sender")
}

func rightsAreLive(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := w.pair(a, b, nil)
	ea.send(wr(1, hostverbs.OpRDMAWrite))
	w.settle()
	ea.sends("with the right", done(1, hostverbs.WCOpRDMAWrite))
	eb.modify(&hostverbs.QPAttr{}, hostverbs.QPAccessFlagsMask)
	ea.send(wr(2, hostverbs.OpRDMAWrite))
	w.settle()
	ea.sends("without it", failed(2, hostverbs.WCRemInvReqErr))
}

func unboundAddress(t testing.TB, env Env) {
	w := newWorld(t, env)
	a := w.guest()
	e := a.newEnd(hostverbs.QPTypeRC, false)
	l := e.linkTo(e)
	e.up(l, hostverbs.StateInit)
	for _, index := range []uint8{1, 3, 4, 255} {
		l.sgidIndex = index
		if err := e.qp.Modify(l.attr(hostverbs.StateRTR), maskRTR); !errors.Is(err, unix.EINVAL) {
			t.Errorf("address number %d: got %v, want EINVAL", index, err)
		}
	}
	e.in("refused", hostverbs.StateInit)
}
