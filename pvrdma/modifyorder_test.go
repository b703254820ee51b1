// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// fault is what is wrong with a command, in the order in which it has to be found.
type fault int

const (
	faultHandle fault = iota // the queue pair does not exist
	faultBits                // bits that no device knows
	faultMask                // the state table refuses the mask
	faultValue               // a value is out of range
	faultEngine              // the engine cannot
	noFault
)

// badValue spoils an attribute that a mask may select.
type badValue struct {
	bit   hostverbs.AttrMask
	spoil func(*abi.QPAttr)
	says  string
}

// badValues are those of every attribute that has a range.
func badValues() []badValue {
	return []badValue{
		{hostverbs.QPCurState, func(a *abi.QPAttr) { a.CurQPState = 99 }, "cur_qp_state"},
		{hostverbs.QPPKeyIndex, func(a *abi.QPAttr) { a.PKeyIndex = 1 }, "pkey_index"},
		{hostverbs.QPPort, func(a *abi.QPAttr) { a.PortNum = 2 }, "port_num"},
		{hostverbs.QPAV, func(a *abi.QPAttr) { a.AHAttr.AHFlags = 0 }, "no GRH"},
		{hostverbs.QPAV, func(a *abi.QPAttr) { a.AHAttr.PortNum = 0 }, "ah_attr: port_num"},
		{hostverbs.QPPathMTU, func(a *abi.QPAttr) { a.PathMTU = 5 }, "path_mtu"}, // the port has 2048
		{hostverbs.QPTimeout, func(a *abi.QPAttr) { a.Timeout = 32 }, "timeout"},
		{hostverbs.QPRetryCnt, func(a *abi.QPAttr) { a.RetryCnt = 8 }, "retry_cnt"},
		{hostverbs.QPRNRRetry, func(a *abi.QPAttr) { a.RNRRetry = 255 }, "rnr_retry"},
		{hostverbs.QPMaxQPRdAtomic, func(a *abi.QPAttr) { a.MaxRdAtomic = 17 }, "max_rd_atomic"},
		{hostverbs.QPMaxDestRdAtomic, func(a *abi.QPAttr) { a.MaxDestRdAtomic = 255 }, "max_dest_rd_atomic"},
		{hostverbs.QPMinRNRTimer, func(a *abi.QPAttr) { a.MinRNRTimer = 32 }, "min_rnr_timer"},
		{hostverbs.QPDestQPN, func(a *abi.QPAttr) { a.DestQPNum = 1 << 24 }, "dest_qp_num"},
		{hostverbs.QPPathMigState, func(a *abi.QPAttr) { a.PathMigState = 2 }, "path_mig_state"},
		{hostverbs.QPAltPath, func(*abi.QPAttr) {}, "no alternate paths"},
	}
}

// faulty is a command with the faults that were chosen for it.
type faulty struct {
	handle uint32
	attrs  abi.QPAttr
	mask   hostverbs.AttrMask
	first  fault
	says   string // by the first fault
}

// add notes a fault. They come in order.
func (f *faulty) add(what fault, says string) {
	if f.first == noFault {
		f.first, f.says = what, says
	}
}

// subset draws some bits of a mask.
func subset(t *rapid.T, label string, of hostverbs.AttrMask) hostverbs.AttrMask {
	return hostverbs.AttrMask(rapid.Uint32().Draw(t, label)) & of
}

// oneBit draws a bit of a mask.
func oneBit(t *rapid.T, label string, of hostverbs.AttrMask) hostverbs.AttrMask {
	var all []hostverbs.AttrMask
	for rest := of; rest != 0; rest &= rest - 1 {
		all = append(all, rest&-rest)
	}
	return rapid.SampledFrom(all).Draw(t, label)
}

// drawFaulty makes a command for a transition that exists and spoils it: with the fault first, if it can be, and with some
// of those behind it.
func drawFaulty(t *rapid.T, s *subject, first fault, from, to hostverbs.QPState) faulty {
	required, optional, _ := hostverbs.Transition(s.typ, from, to)
	has := func(f fault) bool { return f == first || (f > first && rapid.Bool().Draw(t, fmt.Sprint("fault ", f))) }
	f := faulty{handle: s.q.handle, attrs: goodAttrs(from, to), first: noFault}
	f.mask = hostverbs.QPStateMask | required | subset(t, "optional", optional&hostverbs.QPAttrStandardBits&^hostverbs.QPAltPath)
	if has(faultHandle) {
		f.handle += uint32(rapid.IntRange(1, 1<<20).Draw(t, "other handle"))
		f.add(faultHandle, "does not exist")
	}
	if has(faultBits) {
		f.mask |= oneBit(t, "unknown bit", ^hostverbs.QPAttrStandardBits) | subset(t, "more", ^hostverbs.QPAttrStandardBits)
		f.add(faultBits, "attribute mask")
	}
	if has(faultMask) {
		switch kind := rapid.IntRange(0, 2).Draw(t, "kind"); {
		case kind == 0 && required != 0:
			f.mask &^= oneBit(t, "missing", required)
			f.add(faultMask, "are missing")
		case kind == 1:
			f.attrs.QPState = 7
			f.add(faultMask, "no such transition")
		default:
			f.mask |= oneBit(t, "foreign", hostverbs.QPAttrStandardBits&^(required|optional|hostverbs.QPStateMask))
			f.add(faultMask, "are not allowed")
		}
	}
	if has(faultValue) {
		f.spoil(t, required, optional)
	}
	return f
}

// spoil makes a value of an attribute that is selected one that no port accepts.
func (f *faulty) spoil(t *rapid.T, required, optional hostverbs.AttrMask) {
	var candidates []badValue
	for _, v := range badValues() {
		if v.bit&(f.mask|hostverbs.QPAltPath)&(required|optional) != 0 {
			candidates = append(candidates, v)
		}
	}
	if len(candidates) == 0 {
		return
	}
	v := rapid.SampledFrom(candidates).Draw(t, "bad value")
	f.mask |= v.bit
	v.spoil(&f.attrs)
	f.add(faultValue, v.says)
}

// errnoOfFault is what each fault is told as.
func errnoOfFault(f fault, engine unix.Errno) unix.Errno {
	switch f {
	case faultBits:
		return unix.EOPNOTSUPP
	case faultEngine:
		return engine
	case noFault:
		return 0
	}
	return unix.EINVAL
}

func TestOfManyFaultsOfAModifyTheFirstDecidesAndNothingChanges(t *testing.T) {
	// Arrange: a queue pair of each type, whose engine is the state table with an errno of its own.
	subjects := map[hostverbs.QPType]*subject{}
	types := []hostverbs.QPType{hostverbs.QPTypeGSI, hostverbs.QPTypeRC, hostverbs.QPTypeUC, hostverbs.QPTypeUD, hostverbs.QPTypeRawPacket}
	for _, typ := range types {
		subjects[typ] = tableSubject(t, typ, hostverbs.StateReset)
	}
	won := map[fault]int{}
	one := func(t *rapid.T, first fault) {
		s := subjects[rapid.SampledFrom(types).Draw(t, "type")]
		engine := s.q.engine.(*tableQP)
		from, to := drawTransition(t, s.typ)
		f := drawFaulty(t, s, first, from, to)
		engine.now, engine.own = hostverbs.QPAttr{QPState: from, RQPSN: 0x123, DestQPNum: 7}, nil
		if first == faultEngine || (first < faultEngine && rapid.Bool().Draw(t, "engine")) {
			engine.own = fmt.Errorf("the engine says no: %w", rapid.SampledFrom([]unix.Errno{unix.ENOMEM, unix.EIO}).Draw(t, "errno"))
			f.add(faultEngine, "the engine says no")
		}
		won[f.first]++
		s.rig.settle() // what commands before have left to the worker is no change of this one
		before, books := s.whole(), s.books()
		s.seen.heard()

		// Act
		req := s.command(f.attrs, f.mask)
		req.QPHandle = f.handle
		_, err := s.exec(req)

		// Assert
		events := s.seen.heard()
		if want := errnoOfFault(f.first, errnoIn(engine.own)); errnoIn(err) != want {
			t.Fatalf("%s %s>%s: got %v, want %v for %q", s.typ, from, to, err, want, f.says)
		}
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), f.says) {
			t.Fatalf("%s %s>%s: %v, want what is wrong first: %q", s.typ, from, to, err, f.says)
		}
		s.rig.step()
		if after := s.whole(); after != before {
			t.Fatalf("%s %s>%s: %v, and changed something:\nwas %+v\nis  %+v", s.typ, from, to, err, before, after)
		}
		s.sameBooks(books)
		if done, ok := events[0].(CommandDone); len(events) != 1 || !ok || errnoIn(done.Err) != errnoIn(err) {
			t.Fatalf("the observer heard %+v", events)
		}
	}
	for f := faultHandle; f <= noFault; f++ {
		rapid.Check(t, func(t *rapid.T) { one(t, f) })
		if won[f] == 0 {
			t.Errorf("fault %d was never the first: %v", f, won)
		}
	}
}

// drawTransition draws a transition that exists.
func drawTransition(t *rapid.T, typ hostverbs.QPType) (from, to hostverbs.QPState) {
	var all [][2]hostverbs.QPState
	for _, from := range states() {
		for _, to := range states() {
			if _, _, ok := hostverbs.Transition(typ, from, to); ok {
				all = append(all, [2]hostverbs.QPState{from, to})
			}
		}
	}
	p := rapid.SampledFrom(all).Draw(t, "transition")
	return p[0], p[1]
}
