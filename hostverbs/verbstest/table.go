// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// tableCases are about the state table.
func tableCases() []Case {
	return []Case{
		{"every attribute mask is judged as the state table says, in every state", masksOfRC},
		{"the GSI queue pair's attribute masks are judged as the state table says", masksOfGSI},
		{"attribute masks of UC queue pairs are judged as the state table says", masksOfUC},
		{"attribute masks of UD queue pairs are judged as the state table says", masksOfUD},
	}
}

func masksOfRC(t testing.TB, env Env)  { masks(t, env, hostverbs.QPTypeRC) }
func masksOfGSI(t testing.TB, env Env) { masks(t, env, hostverbs.QPTypeGSI) }
func masksOfUC(t testing.TB, env Env)  { masks(t, env, hostverbs.QPTypeUC) }
func masksOfUD(t testing.TB, env Env)  { masks(t, env, hostverbs.QPTypeUD) }

// roads lead from RESET to the states that a queue pair can be moved to.
func roads() [][]hostverbs.QPState {
	toRTS := []hostverbs.QPState{hostverbs.StateInit, hostverbs.StateRTR, hostverbs.StateRTS}
	return [][]hostverbs.QPState{
		{},
		toRTS[:1], toRTS[:2], toRTS,
		{hostverbs.StateInit, hostverbs.StateRTR, hostverbs.StateRTS, hostverbs.StateSQD},
		{hostverbs.StateInit, hostverbs.StateErr},
	}
}

// anyAttr are attributes whose values every transition accepts.
func (e *end) anyAttr(from, to hostverbs.QPState) *hostverbs.QPAttr {
	l := e.linkTo(e)
	a := l.attr(to)
	a.CurQPState, a.QKey = from, 0x80010000
	return a
}

// walk moves a queue pair from RESET through states, each time with what it must be told, and returns the last.
func (e *end) walk(road []hostverbs.QPState) (at hostverbs.QPState) {
	e.g.w.t.Helper()
	e.to(hostverbs.StateReset)
	for _, to := range road {
		required, _, _ := hostverbs.Transition(e.typ, at, to)
		e.modify(e.anyAttr(at, to), required|hostverbs.QPStateMask)
		e.g.w.settle()
		at = to
	}
	return at
}

// limitsOf are those of the engine's port.
func limitsOf(env Env) *hostverbs.PortLimits {
	a := env.Provider.QueryDevice()
	return &hostverbs.PortLimits{
		Ports: 1, ActiveMTU: env.Provider.QueryPort().ActiveMTU, PKeys: a.MaxPKeys, GIDs: gidTableLen,
		MaxRdAtomic: a.MaxQPInitRdAtom, MaxDestRdAtomic: a.MaxQPRdAtom, GRHRequired: true,
	}
}

// masks tries, from every state to every state, the least and the largest mask of the state table and all that differ
// from one of them in one bit.
func masks(t testing.TB, env Env, typ hostverbs.QPType) {
	w := newWorld(t, env)
	e := w.guest().newEnd(typ, false)
	port := limitsOf(env)
	for _, road := range roads() {
		from := e.walk(road)
		for to := hostverbs.StateReset; to <= hostverbs.StateErr; to++ {
			required, optional, _ := hostverbs.Transition(typ, from, to)
			least := required | hostverbs.QPStateMask
			for _, mask := range []hostverbs.AttrMask{least, least | optional&^(hostverbs.QPAltPath|hostverbs.QPRateLimit)} {
				e.tryMask(port, road, from, to, mask)
				for bit := range 32 {
					if b := hostverbs.AttrMask(1) << bit; b != hostverbs.QPRateLimit { // an engine may have it or not
						e.tryMask(port, road, from, to, mask^b)
					}
				}
			}
		}
	}
}

// tryMask compares the engine's verdict with CheckModify's, and the queue pair with what it should be then.
func (e *end) tryMask(port *hostverbs.PortLimits, road []hostverbs.QPState, from, to hostverbs.QPState, mask hostverbs.AttrMask) {
	t := e.g.w.t
	t.Helper()
	attr, before := e.anyAttr(from, to), e.query()
	next, verdict := hostverbs.CheckModify(e.typ, from, attr, mask, port)
	err := e.qp.Modify(attr, mask)
	e.g.w.settle()
	what := e.typ.String() + " " + from.String() + " to " + to.String() + " with " + mask.String()
	switch {
	case verdict == nil && err == nil:
		e.in(what, next)
		e.walk(road)
	case verdict == nil || err == nil:
		t.Fatalf("%s: got %v, the table says %v", what, err, verdict)
	default:
		var want unix.Errno
		if !errors.As(verdict, &want) || !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", what, err, verdict)
		}
		e.same(what, before)
	}
}
