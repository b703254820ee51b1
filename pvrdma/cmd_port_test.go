// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

func TestTheCapabilitiesAreThoseOfTheEngineAndTheConfiguration(t *testing.T) {
	r := newRig(t)
	cfg := defaultConfig()
	cfg.Limits = hostverbs.Limits{MaxQP: 10, MaxCQ: 1 << 20, MaxMR: 3, MaxSRQ: 5}
	g := r.idleGuest(cfg, false)
	guid := [8]byte{0x50, 0x54, 0, 0xff, 0xfe, 1, 2, 3}
	want := abi.DeviceCaps{
		FWVer: 7 << 32, NodeGUID: guid, SysImageGUID: guid, MaxMRSize: 1 << 30, PageSizeCap: 4096, VendorID: 0x15ad,
		VendorPartID: 0x820, HWVer: 1, MaxQP: 10, MaxQPWR: 256, MaxSGE: 4, MaxSGERd: 4, MaxCQ: 32, MaxCQE: 8192, MaxMR: 3,
		MaxPD: 16, MaxQPRdAtom: 16, MaxQPInitRdAtom: 16, MaxAH: 1024, MaxUAR: 8, GIDTblLen: 256, MaxPKeys: 1,
		MaxSRQ: 5, MaxSRQWR: 64, MaxSRQSGE: 3,
		LocalCAAckDelay: 15, PhysPortCnt: 1, GIDTypes: abi.GIDTypeRoCEv2,
		AtomicOps: abi.AtomicOpCompSwap | abi.AtomicOpFetchAdd, MaxFastRegPageListLen: 16,
		BMMEFlags: abi.BMMEFlagLocalInv | abi.BMMEFlagRemoteInv | abi.BMMEFlagFastRegWR,
	}
	if diff := cmp.Diff(want, g.dev.Caps()); diff != "" {
		t.Errorf("capabilities (-want +got):\n%s", diff)
	}
}

func TestTheDriverAcceptsTheCapabilities(t *testing.T) {
	r := newRig(t)
	r.engine.attr.MaxQP, r.engine.attr.MaxCQ = 1<<20, 1<<20
	c := r.idleGuest(defaultConfig(), false).dev.Caps()
	if !abi.AcceptCaps(abi.VersionMax, c.Mode, c.GIDTypes) {
		t.Error("the driver refuses mode or gid types")
	}
	// User space keeps 16 bits of a queue pair's handle and allocates as many slots as the low 16 bits of max_qp say.
	if c.MaxQP != 65535 {
		t.Errorf("%d queue pairs are offered, want 65535", c.MaxQP)
	}
	if c.NodeGUID == ([8]byte{}) || c.SysImageGUID == ([8]byte{}) {
		t.Error("a GUID is 0")
	}
	if c.AtomicOps != abi.AtomicOpCompSwap|abi.AtomicOpFetchAdd {
		t.Errorf("atomic operations %v are offered, want the two that are not masked", c.AtomicOps)
	}
}

func TestWhatNotEveryEngineHasIsOfferedOnlyIfItIsThere(t *testing.T) {
	const all = abi.BMMEFlagLocalInv | abi.BMMEFlagRemoteInv | abi.BMMEFlagFastRegWR
	for name, c := range map[string]struct {
		spoil  func(*hostverbs.DeviceAttr)
		atomic abi.AtomicOps
		bmme   abi.BMMEFlags
		pages  uint32
	}{
		"everything":             {func(*hostverbs.DeviceAttr) {}, 3, all, 16},
		"more than the driver":   {func(a *hostverbs.DeviceAttr) { a.MaxFastRegPageLen = 1000 }, 3, all, maxFastRegPages},
		"no swaps":               {func(a *hostverbs.DeviceAttr) { a.AtomicCmpSwap = false }, abi.AtomicOpFetchAdd, all, 16},
		"no additions":           {func(a *hostverbs.DeviceAttr) { a.AtomicFetchAdd = false }, abi.AtomicOpCompSwap, all, 16},
		"no fast registration":   {func(a *hostverbs.DeviceAttr) { a.FastRegistration = false }, 3, 0, 0},
		"no local invalidation":  {func(a *hostverbs.DeviceAttr) { a.LocalInvalidate = false }, 3, 0, 0},
		"no remote invalidation": {func(a *hostverbs.DeviceAttr) { a.RemoteInvalidate = false }, 3, 0, 0},
	} {
		r := newRig(t)
		c.spoil(&r.engine.attr)
		got := r.newGuest().dev.Caps()
		if got.AtomicOps != c.atomic || got.BMMEFlags != c.bmme || got.MaxFastRegPageListLen != c.pages {
			t.Errorf("%s: atomics %v, extensions %v, %d pages", name, got.AtomicOps, got.BMMEFlags, got.MaxFastRegPageListLen)
		}
	}
}

func TestADeviceNeedsAPowerOfTwoOfDoorbellPages(t *testing.T) {
	r := newRig(t)
	for _, n := range []uint32{0, 1, 3, 6, 0xffffffff} {
		cfg := defaultConfig()
		cfg.MaxUAR = n
		_, err := r.worker.NewDevice(cfg, r.domain.NewSpace("vm1"), nil, &fakeNotifier{}, nil)
		wantErrno(t, err, unix.EINVAL)
	}
}

func TestQueryPortTellsTheEnginesPort(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	q := &abi.CmdQueryPortReq{Hdr: hdr(abi.CmdQueryPort), PortNum: 1}
	var got abi.CmdQueryPortResp
	g.must(q, &got)
	want := abi.PortAttr{
		State: abi.PortActive, MaxMTU: abi.MTU4096, ActiveMTU: abi.MTU2048, GIDTblLen: 256, PortCapFlags: abi.PortCapIPBasedGIDs,
		MaxMsgSz: 1 << 30, PKeyTblLen: 1, MaxVLNum: 1, ActiveWidth: 2, ActiveSpeed: 32, PhysState: 5,
	}
	if diff := cmp.Diff(want, got.Attrs); diff != "" {
		t.Errorf("port (-want +got):\n%s", diff)
	}
	// The core sizes its table by the port's length and the driver's table by the device's.
	if got.Attrs.GIDTblLen > g.dev.Caps().GIDTblLen {
		t.Error("the port's gid table is longer than the device's")
	}
	r.engine.port.Active = false
	g.must(q, &got)
	if got.Attrs.State != abi.PortDown || got.Attrs.PhysState != 3 {
		t.Errorf("a port that is down is reported as %v, %d", got.Attrs.State, got.Attrs.PhysState)
	}
}

func TestQueriesOfWhatIsNotThereAreRefused(t *testing.T) {
	g := newRig(t).newGuest()
	for _, c := range []struct {
		name string
		req  request
	}{
		{"port 0", &abi.CmdQueryPortReq{Hdr: hdr(abi.CmdQueryPort)}},
		{"port 2", &abi.CmdQueryPortReq{Hdr: hdr(abi.CmdQueryPort), PortNum: 2}},
		{"pkey of port 0", &abi.CmdQueryPKeyReq{Hdr: hdr(abi.CmdQueryPKey)}},
		{"pkey 1", &abi.CmdQueryPKeyReq{Hdr: hdr(abi.CmdQueryPKey), PortNum: 1, Index: 1}},
		{"pkey 255", &abi.CmdQueryPKeyReq{Hdr: hdr(abi.CmdQueryPKey), PortNum: 1, Index: 255}},
	} {
		t.Run(c.name, func(*testing.T) { g.refused(c.req, unix.EINVAL) })
	}
}

func TestEveryPKeyIndexBelowTheTablesLengthAnswers(t *testing.T) {
	g := newRig(t).newGuest()
	for i := range uint8(g.dev.Caps().MaxPKeys) {
		var r abi.CmdQueryPKeyResp
		g.must(&abi.CmdQueryPKeyReq{Hdr: hdr(abi.CmdQueryPKey), PortNum: 1, Index: i}, &r)
		if r.PKey != 0xffff {
			t.Errorf("pkey %d is %#x", i, r.PKey)
		}
	}
}

// bindReq is a good request for a binding.
func bindReq(index uint32, last byte) *abi.CmdCreateBindReq {
	return &abi.CmdCreateBindReq{
		Hdr: hdr(abi.CmdCreateBind), MTU: 1024, VLAN: 0xfff, Index: index,
		NewGID: abi.GID{10: 0xff, 11: 0xff, 12: 10, 15: last}, GIDType: abi.GIDTypeRoCEv2,
	}
}

func TestAGIDIsBoundReplacedAndUnbound(t *testing.T) {
	g := newRig(t).newGuest()
	g.must(bindReq(0, 1), nil)
	g.must(bindReq(255, 2), nil)
	g.must(bindReq(0, 3), nil)
	gid := func(last byte) hostverbs.GID { return hostverbs.GID{10: 0xff, 11: 0xff, 12: 10, 15: last} }
	want := map[int]hostverbs.GID{0: gid(3), 255: gid(2)}
	if diff := cmp.Diff(want, g.eng.boundGIDs()); diff != "" {
		t.Errorf("bound gids (-want +got):\n%s", diff)
	}
	unbind := &abi.CmdDestroyBindReq{Hdr: hdr(abi.CmdDestroyBind), Index: 0, DestGID: abi.GID(gid(1))}
	g.refused(unbind, unix.ENOENT)
	unbind.DestGID = abi.GID(gid(3))
	g.must(unbind, nil)
	if n := len(g.eng.boundGIDs()); n != 1 {
		t.Errorf("%d gids are bound, want 1", n)
	}
	unbind.Index = 256
	g.refused(unbind, unix.EINVAL)
}

func TestABindingThatCannotBeIsRefused(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	cases := []struct {
		name  string
		spoil func(*abi.CmdCreateBindReq)
		want  unix.Errno
	}{
		{"index beyond the table", func(q *abi.CmdCreateBindReq) { q.Index = 256 }, unix.EINVAL},
		{"index of 32 bits", func(q *abi.CmdCreateBindReq) { q.Index = 0xffffffff }, unix.EINVAL},
		{"no type", func(q *abi.CmdCreateBindReq) { q.GIDType = 0 }, unix.EINVAL},
		{"the other type", func(q *abi.CmdCreateBindReq) { q.GIDType = abi.GIDTypeRoCEv1 }, unix.EINVAL},
		{"both types", func(q *abi.CmdCreateBindReq) { q.GIDType = 3 }, unix.EINVAL},
		{"gid of a vlan", func(q *abi.CmdCreateBindReq) { q.VLAN = 7 }, unix.EOPNOTSUPP},
		{"gid of zeros", func(q *abi.CmdCreateBindReq) { q.NewGID = abi.GID{} }, unix.EINVAL},
	}
	for _, c := range cases {
		t.Run(c.name, func(*testing.T) {
			q := bindReq(1, 1)
			c.spoil(q)
			g.refused(q, c.want)
		})
	}
	r.engine.refuseWith("BindGID", unix.EADDRINUSE)
	g.refused(bindReq(1, 1), unix.EADDRINUSE)
}

func TestAConfiguredListIsAllThatAGuestMayBind(t *testing.T) {
	cfg := defaultConfig()
	cfg.GIDs = []hostverbs.GID{{10: 0xff, 11: 0xff, 12: 10, 15: 1}}
	g := newRig(t).idleGuest(cfg, false)
	g.activate()
	g.must(bindReq(0, 1), nil)
	g.refused(bindReq(1, 2), unix.EPERM)
}
