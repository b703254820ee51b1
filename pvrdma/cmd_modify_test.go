// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// fullAttrs has another value in every attribute.
func fullAttrs() abi.QPAttr {
	ah := func(n uint8) abi.AHAttr {
		return abi.AHAttr{
			GRH:  abi.GlobalRoute{DGID: abi.GID{0: 0xfe, 15: n}, FlowLabel: 0xabcd0 + uint32(n), SGIDIndex: n + 1, HopLimit: n + 2, TrafficClass: n + 3},
			DLID: 0x111, VLANID: 0x222, SL: n + 4, SrcPathBits: n + 5, StaticRate: abi.Rate(n + 6), AHFlags: abi.AHFlagGRH,
			PortNum: 1, DMAC: [6]byte{2, 3, 4, 5, 6, n},
		}
	}
	return abi.QPAttr{
		QPState: abi.QPState(hostverbs.StateRTR), CurQPState: 1, PathMTU: 3, PathMigState: 2, QKey: 0x80010000, RQPSN: 0x111111,
		SQPSN: 0x222222, DestQPNum: 0x333333, QPAccessFlags: 6, PKeyIndex: 0x44, AltPKeyIndex: 0x55, EnSQDAsyncNotify: 1,
		SQDraining: 1, MaxRdAtomic: 7, MaxDestRdAtomic: 8, MinRNRTimer: 9, PortNum: 1, Timeout: 14, RetryCnt: 6, RNRRetry: 5,
		AltPortNum: 2, AltTimeout: 15, AHAttr: ah(0x10), AltAHAttr: ah(0x20),
		Cap: abi.QPCap{MaxSendWR: 1, MaxRecvWR: 2, MaxSendSGE: 3, MaxRecvSGE: 4, MaxInlineData: 5},
	}
}

func TestModifyPassesEveryAttributeOn(t *testing.T) {
	g := newRig(t).newGuest()
	q, _ := g.kernelQP(8)
	g.must(&abi.CmdModifyQPReq{
		Hdr: hdr(abi.CmdModifyQP), QPHandle: q.handle, AttrMask: 0x1fffff, Attrs: fullAttrs(),
	}, nil)
	ah := func(n uint8) hostverbs.AHAttr {
		return hostverbs.AHAttr{
			DGID: hostverbs.GID{0: 0xfe, 15: n}, FlowLabel: 0xabcd0 + uint32(n), SGIDIndex: n + 1, HopLimit: n + 2,
			TrafficClass: n + 3, SL: n + 4, SrcPathBits: n + 5, StaticRate: n + 6, GRH: true, PortNum: 1,
			DMAC: [6]byte{2, 3, 4, 5, 6, n},
		}
	}
	want := hostverbs.QPAttr{
		QPState: hostverbs.StateRTR, CurQPState: 1, PathMTU: hostverbs.MTU1024, PathMigState: 2, QKey: 0x80010000,
		RQPSN: 0x111111, SQPSN: 0x222222, DestQPNum: 0x333333, QPAccessFlags: 6, PKeyIndex: 0x44, AltPKeyIndex: 0x55,
		EnSQDAsyncNotify: true, MaxRdAtomic: 7, MaxDestRdAtomic: 8, MinRNRTimer: 9, PortNum: 1, Timeout: 14, RetryCnt: 6,
		RNRRetry: 5, AltPortNum: 2, AltTimeout: 15, AHAttr: ah(0x10), AltAHAttr: ah(0x20),
		Cap: q.engine.attr.Cap, // the fake engine's own
	}
	if diff := cmp.Diff(want, q.engine.attr); diff != "" {
		t.Errorf("the engine got (-want +got):\n%s", diff)
	}
	if q.engine.mask != 0x1fffff {
		t.Errorf("mask %v", q.engine.mask)
	}
}

func TestEnumeratorsThatDoNotFitAreNoEnumerators(t *testing.T) {
	a := abi.QPAttr{QPState: 0x103, CurQPState: 0x80000000, PathMTU: 0x101, PathMigState: 0x100}
	got := qpAttrFromGuest(&a)
	if got.QPState <= hostverbs.StateErr || got.CurQPState <= hostverbs.StateErr || got.PathMTU.Bytes() != 0 ||
		got.PathMigState != 0xff {
		t.Errorf("%+v looks like values that are good", got)
	}
}

func TestQueryReturnsTheEnginesAttributes(t *testing.T) {
	g := newRig(t).newGuest()
	q, _ := g.kernelQP(8)
	want := fullAttrs()
	// RoCE has no second path, and none of what belongs to InfiniBand's addresses.
	want.AltAHAttr, want.AltPKeyIndex, want.AltPortNum, want.AltTimeout = abi.AHAttr{}, 0, 0, 0
	want.AHAttr.DLID, want.AHAttr.VLANID = 0, 0
	want.CurQPState = want.QPState
	attr := qpAttrFromGuest(&want)
	attr.SQDraining = true
	q.engine.attr = attr
	var got abi.CmdQueryQPResp
	g.must(&abi.CmdQueryQPReq{Hdr: hdr(abi.CmdQueryQP), QPHandle: q.handle}, &got)
	if diff := cmp.Diff(want, got.Attrs); diff != "" {
		t.Errorf("query (-want +got):\n%s", diff)
	}
	q.engine.attr = hostverbs.QPAttr{}
	g.must(&abi.CmdQueryQPReq{Hdr: hdr(abi.CmdQueryQP), QPHandle: q.handle, AttrMask: 0x1fffff}, &got)
	if diff := cmp.Diff(abi.QPAttr{}, got.Attrs); diff != "" {
		t.Errorf("query of nothing (-want +got):\n%s", diff)
	}
}

func TestARefusedModifyChangesNothing(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	q, _ := g.kernelQP(8)
	q.postSends(1, 2, 3)
	q.ring(0, abi.UARQPSend)
	r.settle()
	for _, to := range []hostverbs.QPState{hostverbs.StateReset, hostverbs.StateErr} {
		r.engine.refuseWith("Modify", unix.EINVAL)
		g.refused(q.modifyReq(to), unix.EINVAL)
		r.engine.refuseWith("Modify", nil)
	}
	q.postSends(4)
	q.ring(0, abi.UARQPSend)
	r.settle()
	if diff := cmp.Diff([]uint64{1, 2, 3, 4}, ids(q.engine.taken())); diff != "" {
		t.Errorf("the engine took (-want +got):\n%s", diff)
	}
	r.engine.refuseWith("Query", unix.EIO)
	g.refused(&abi.CmdQueryQPReq{Hdr: hdr(abi.CmdQueryQP), QPHandle: q.handle}, unix.EIO)
}

func TestAModifyWithoutAStateLeavesItAlone(t *testing.T) {
	g := newRig(t).newGuest()
	q, _ := g.kernelQP(8)
	states := len(seen[QPStateChanged](g.seen))
	g.must(&abi.CmdModifyQPReq{Hdr: hdr(abi.CmdModifyQP), QPHandle: q.handle, AttrMask: abi.QPMaskMinRNRTimer}, nil)
	if n := len(seen[QPStateChanged](g.seen)); n != states || q.engine.state() != hostverbs.StateRTS {
		t.Errorf("%d new states are reported, the engine is in %v", n-states, q.engine.state())
	}
}

func TestStatesAreReportedWithThePeerOnceThereIsOne(t *testing.T) {
	g := newRig(t).newGuest()
	pd, c := g.createPD(0), g.createCQ(0, 8)
	q := g.createQP(pd, c, c)
	q.modify(hostverbs.StateInit)
	g.must(&abi.CmdModifyQPReq{
		Hdr: hdr(abi.CmdModifyQP), QPHandle: q.handle, AttrMask: 0x1fffff, Attrs: fullAttrs(),
	}, nil)
	want := []QPStateChanged{
		{Guest: Guest{"vm1"}, Handle: q.handle, QPN: q.qpn, Type: hostverbs.QPTypeRC, To: hostverbs.StateInit},
		{
			Guest: Guest{"vm1"}, Handle: q.handle, QPN: q.qpn, Type: hostverbs.QPTypeRC, From: hostverbs.StateInit,
			To: hostverbs.StateRTR, DestQPN: 0x333333, DGID: hostverbs.GID{0: 0xfe, 15: 0x10},
		},
	}
	if diff := cmp.Diff(want, seen[QPStateChanged](g.seen)); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
}

func TestAPeerThatTheMaskDoesNotSelectIsNotReported(t *testing.T) {
	g := newRig(t).newGuest()
	q, _ := g.kernelQP(8)
	states := len(seen[QPStateChanged](g.seen))
	g.must(&abi.CmdModifyQPReq{
		Hdr: hdr(abi.CmdModifyQP), QPHandle: q.handle, AttrMask: abi.QPMaskState, Attrs: fullAttrs(),
	}, nil)
	e := seen[QPStateChanged](g.seen)[states]
	if e.DestQPN != 0 || e.DGID != (hostverbs.GID{}) {
		t.Errorf("reported peer %#x of %v, which are stack garbage of the guest", e.DestQPN, e.DGID)
	}
}

func TestCompletionsKeepTheirOperation(t *testing.T) {
	want := map[hostverbs.WCOpcode]abi.WCOpcode{
		hostverbs.WCOpSend: 0, hostverbs.WCOpRDMAWrite: 1, hostverbs.WCOpRDMARead: 2, hostverbs.WCOpCompSwap: 3,
		hostverbs.WCOpFetchAdd: 4, hostverbs.WCOpLocalInv: 7, hostverbs.WCOpRegMR: 8, hostverbs.WCOpRecv: 128,
		hostverbs.WCOpRecvRDMAWithImm: 129,
	}
	for op, w := range want {
		if got := wcOpcode(op); got != w {
			t.Errorf("%v becomes %v, want %v", op, got, w)
		}
	}
}

func TestEventsKeepTheirType(t *testing.T) {
	want := map[hostverbs.EventType]abi.EventType{
		hostverbs.EventQPFatal: 1, hostverbs.EventQPReqErr: 2, hostverbs.EventQPAccessErr: 3, hostverbs.EventCommEst: 4,
		hostverbs.EventSQDrained: 5, hostverbs.EventQPLastWQEReached: 16,
	}
	g := newRig(t).newGuest()
	q, _ := g.kernelQP(8)
	for e, w := range want {
		q.engine.h.Event(e)
		if diff := cmp.Diff([]asyncRecord{{w, q.handle}}, g.notifier.asyncs()); diff != "" {
			t.Errorf("%v (-want +got):\n%s", e, diff)
		}
	}
	q.engine.h.Event(99)
	if a := g.notifier.asyncs(); len(a) != 0 {
		t.Errorf("an event that is none is reported as %v", a)
	}
	g.notifier.noAsync = true
	q.engine.h.Event(hostverbs.EventCommEst)
	sent := seen[AsyncEventSent](g.seen)
	if len(sent) != 7 || !sent[6].Lost || sent[0].Lost {
		t.Errorf("reported: %+v", sent)
	}
}
