// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"errors"
	"slices"
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/hostverbs/soft"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// The way of a MODIFY_QP command from the guest's bytes to the state table and back: with an engine that is the table and
// nothing else, for every type and state, and with the embedded one, for all that a guest can reach in it.

// tableQP is a queue pair that does what CheckModify says, of any type and in any state.
type tableQP struct {
	*fakeQP
	typ  hostverbs.QPType
	port hostverbs.PortLimits
	now  hostverbs.QPAttr
	own  error // what the engine itself fails with, once all that was asked for is right
}

func (q *tableQP) Modify(attr *hostverbs.QPAttr, mask hostverbs.AttrMask) error {
	next, err := hostverbs.CheckModify(q.typ, q.now.QPState, attr, mask, &q.port)
	if err == nil {
		err = q.own
	}
	if err == nil {
		q.now.QPState = next
	}
	return err
}

func (q *tableQP) Query() (hostverbs.QPAttr, error) { return q.now, nil }

// subject is a queue pair that commands are tried on.
type subject struct {
	*guest
	q    *queuePair
	typ  hostverbs.QPType
	port hostverbs.PortLimits
}

// whole is all that there is of a queue pair. Two of them are the same if pointers are, and all else is equal.
type whole struct {
	Engine hostverbs.QPAttr
	Answer Response
	Device queuePair
}

func (s *subject) whole() whole {
	s.t.Helper()
	attr, err := s.q.engine.Query()
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := s.exec(&abi.CmdQueryQPReq{Hdr: hdr(abi.CmdQueryQP), QPHandle: s.q.handle})
	if err != nil {
		s.t.Fatal(err)
	}
	return whole{attr, *resp, *s.q}
}

// heard returns what the observer was told since the last call.
func (r *recorder) heard() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.events
	r.events = nil
	return e
}

// limits are those of the port that the device describes to its guest.
func (g *guest) limits() hostverbs.PortLimits {
	return hostverbs.PortLimits{
		Ports: g.dev.caps.PhysPortCnt, ActiveMTU: g.dev.provider.QueryPort().ActiveMTU, PKeys: g.dev.caps.MaxPKeys,
		GIDs: int(g.dev.caps.GIDTblLen), MaxRdAtomic: g.dev.caps.MaxQPInitRdAtom, MaxDestRdAtomic: g.dev.caps.MaxQPRdAtom,
		GRHRequired: true,
	}
}

// tableSubject returns a queue pair whose engine is the state table.
func tableSubject(t *testing.T, typ hostverbs.QPType, state hostverbs.QPState) *subject {
	t.Helper()
	g := newRig(t).newGuest()
	made, _ := g.kernelQP(8)
	s := &subject{guest: g, q: made.dev(), typ: typ, port: g.limits()}
	s.q.engine = &tableQP{fakeQP: made.engine, typ: typ, port: s.port, now: hostverbs.QPAttr{QPState: state}}
	return s
}

// softSubject returns a queue pair of the embedded engine.
func softSubject(t *testing.T, typ hostverbs.QPType) *subject {
	t.Helper()
	r := newRigOn(t, soft.New(nil))
	g := r.idleGuest(defaultConfig(), true)
	g.restart()
	pd, c := g.createPD(0), g.createCQ(0, 8)
	made := g.createQP(pd, c, c, func(req *abi.CmdCreateQPReq) { req.QPType = abi.QPType(typ) })
	return &subject{guest: g, q: made.dev(), typ: typ, port: g.limits()}
}

// restart switches the device of a guest of the embedded engine on, and gives it an address.
func (g *guest) restart() {
	g.t.Helper()
	g.driver = abi.VersionMax
	if err := g.dev.Activate(g.driver, uarPFN); err != nil {
		g.t.Fatal(err)
	}
	g.eng = &fakeContext{e: g.rig.engine} // it has no part in this
	g.must(&abi.CmdCreateBindReq{
		Hdr: hdr(abi.CmdCreateBind), NewGID: abi.GID{0: 0xfe, 1: 0x80, 15: 1}, GIDType: abi.GIDTypes(hostverbs.GIDTypeRoCEv2),
	}, nil)
}

// goodAttrs are attributes that every transition to a state accepts on a RoCE port.
func goodAttrs(from, to hostverbs.QPState) abi.QPAttr {
	a := abi.QPAttr{
		QPState: abi.QPState(to), CurQPState: abi.QPState(from), PathMTU: 3, QKey: 0x80010000, RQPSN: 0x111111, SQPSN: 0x222222,
		DestQPNum: 0x333333, QPAccessFlags: 6, EnSQDAsyncNotify: 1, MaxRdAtomic: 7, MaxDestRdAtomic: 8, MinRNRTimer: 9,
		PortNum: 1, Timeout: 14, RetryCnt: 6, RNRRetry: 5, AltPortNum: 1, AltTimeout: 15,
	}
	a.AHAttr = abi.AHAttr{PortNum: 1, AHFlags: abi.AHFlagGRH, GRH: abi.GlobalRoute{DGID: abi.GID{0: 0xfe, 15: 9}, HopLimit: 64}}
	a.AltAHAttr = a.AHAttr
	return a
}

// command is a MODIFY_QP for the subject.
func (s *subject) command(attrs abi.QPAttr, mask hostverbs.AttrMask) *abi.CmdModifyQPReq {
	return &abi.CmdModifyQPReq{
		Hdr: hdr(abi.CmdModifyQP), QPHandle: s.q.handle, AttrMask: abi.QPAttrMask(mask), Attrs: attrs,
	}
}

// tried counts what was tried.
type tried struct{ accepted, refused int }

// try sends a command and compares what becomes of it with CheckModify's verdict.
func (s *subject) try(from hostverbs.QPState, attrs abi.QPAttr, mask hostverbs.AttrMask, n *tried) (moved bool) {
	s.t.Helper()
	attr := qpAttrFromGuest(&attrs)
	next, verdict := hostverbs.CheckModify(s.typ, from, &attr, mask, &s.port)
	s.rig.settle() // what commands before have left to the worker is no change of this one
	before := s.whole()
	s.seen.heard()
	_, err := s.exec(s.command(attrs, mask))
	events := s.seen.heard()
	if errnoIn(err) != errnoIn(verdict) {
		s.t.Fatalf("%s %s>%s with %s: %v; CheckModify says %v", s.typ, from, attr.QPState, mask, err, verdict)
	}
	s.rig.step() // a queue pair that was kept from its rings for the command's sake is looked at again
	after := s.whole()
	if err == nil {
		n.accepted++
		if after.Engine.QPState != next {
			s.t.Fatalf("%s %s>%s with %s: is in %s now", s.typ, from, next, mask, after.Engine.QPState)
		}
		return next != from
	}
	n.refused++
	if after != before {
		s.t.Fatalf("%s %s>%s with %s was refused, and changed something:\nwas %+v\nis  %+v", s.typ, from, attr.QPState, mask,
			before, after)
	}
	if done, ok := events[0].(CommandDone); len(events) != 1 || !ok || done.Cmd != abi.CmdModifyQP || errnoIn(done.Err) != errnoIn(err) {
		s.t.Fatalf("%s %s>%s with %s: the observer heard %+v", s.typ, from, attr.QPState, mask, events)
	}
	return false
}

// errnoIn returns the errno that an error wraps.
func errnoIn(err error) unix.Errno {
	var errno unix.Errno
	if err != nil && !errors.As(err, &errno) {
		return unix.EIO
	}
	return errno
}

// neighbours calls fn for every legal mask of a transition and for every illegal one that differs from it in a standard bit,
// and in one of the bits that no device knows. A transition that does not exist has the mask with the state alone for its
// only one.
func neighbours(typ hostverbs.QPType, from, to hostverbs.QPState, fn func(hostverbs.AttrMask)) {
	required, optional, _ := hostverbs.Transition(typ, from, to)
	optional &= hostverbs.QPAttrStandardBits
	if from == to {
		optional |= hostverbs.QPStateMask
	} else {
		required |= hostverbs.QPStateMask
	}
	unknown := hostverbs.QPAttrStandardBits + 1
	for chosen := optional; ; chosen = (chosen - 1) & optional {
		mask := required | chosen
		fn(mask)
		for rest := hostverbs.QPAttrStandardBits &^ optional; rest != 0; rest &= rest - 1 {
			fn(mask ^ rest&-rest)
		}
		fn(mask | unknown)
		if unknown <<= 1; unknown == 0 {
			unknown = hostverbs.QPAttrStandardBits + 1
		}
		if chosen == 0 {
			return
		}
	}
}

func states() (all []hostverbs.QPState) {
	for s := hostverbs.StateReset; s <= hostverbs.StateErr; s++ {
		all = append(all, s)
	}
	return all
}

func TestEveryLegalMaskAndItsNeighboursAreJudgedAsTheTableSays(t *testing.T) {
	var n tried
	for _, typ := range []hostverbs.QPType{
		hostverbs.QPTypeSMI, hostverbs.QPTypeGSI, hostverbs.QPTypeRC, hostverbs.QPTypeUC, hostverbs.QPTypeUD, hostverbs.QPTypeRawPacket,
	} {
		for _, from := range states() {
			if _, reached := roads[from]; reached && slices.Contains(softTypes, typ) {
				continue // the embedded engine is asked
			}
			s := tableSubject(t, typ, from)
			for _, to := range states() {
				attrs, before := goodAttrs(from, to), s.books()
				neighbours(typ, from, to, func(mask hostverbs.AttrMask) {
					if s.try(from, attrs, mask, &n) {
						s.q.engine.(*tableQP).now.QPState = from
					}
				})
				s.sameBooks(before)
			}
		}
	}
	t.Logf("%d commands were accepted, %d refused", n.accepted, n.refused)
}

// softTypes are the types of queue pairs that the embedded engine has.
var softTypes = []hostverbs.QPType{hostverbs.QPTypeRC, hostverbs.QPTypeUD, hostverbs.QPTypeGSI}

// roads lead from RESET to the states that a guest can bring a queue pair to.
var roads = map[hostverbs.QPState][]hostverbs.QPState{
	hostverbs.StateReset: {},
	hostverbs.StateInit:  {hostverbs.StateInit},
	hostverbs.StateRTR:   {hostverbs.StateInit, hostverbs.StateRTR},
	hostverbs.StateRTS:   {hostverbs.StateInit, hostverbs.StateRTR, hostverbs.StateRTS},
	hostverbs.StateSQD:   {hostverbs.StateInit, hostverbs.StateRTR, hostverbs.StateRTS, hostverbs.StateSQD},
	hostverbs.StateErr:   {hostverbs.StateInit, hostverbs.StateErr},
}

// bring brings the queue pair to a state by commands.
func (s *subject) bring(state hostverbs.QPState) {
	s.t.Helper()
	at := hostverbs.StateReset
	s.must(s.command(goodAttrs(at, at), hostverbs.QPStateMask), nil)
	for _, to := range roads[state] {
		required, _, _ := hostverbs.Transition(s.typ, at, to)
		s.must(s.command(goodAttrs(at, to), required|hostverbs.QPStateMask), nil)
		at = to
	}
}

func TestTheEmbeddedEngineJudgesEveryLegalMaskAndItsNeighboursAsTheTableSays(t *testing.T) {
	for _, typ := range softTypes {
		t.Run(typ.String(), func(t *testing.T) {
			var n tried
			s := softSubject(t, typ)
			for from := range roads {
				s.bring(from)
				for _, to := range states() {
					attrs, before := goodAttrs(from, to), s.books()
					neighbours(typ, from, to, func(mask hostverbs.AttrMask) {
						if s.try(from, attrs, mask, &n) {
							s.bring(from)
						}
					})
					s.sameBooks(before)
				}
			}
			t.Logf("%d commands were accepted, %d refused", n.accepted, n.refused)
		})
	}
}
