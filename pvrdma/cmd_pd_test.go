// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

func TestAContextHasADoorbellPageOfItsOwn(t *testing.T) {
	g := newRig(t).newGuest()
	first := g.createUC(1)
	if first == 0 {
		t.Error("a process has the guest kernel's handle")
	}
	for _, c := range []struct {
		name string
		pfn  uint64
	}{
		{"the kernel's page", uarPFN},
		{"below the first", uarPFN - 1},
		{"behind the last", uarPFN + 8},
		{"frame 0", 0},
		{"the last frame", 1<<64 - 1},
	} {
		t.Run(c.name, func(*testing.T) {
			g.refused(&abi.CmdCreateUCReq{Hdr: hdr(abi.CmdCreateUC), PFN64: c.pfn}, unix.EINVAL)
		})
	}
	g.must(&abi.CmdDestroyUCReq{Hdr: hdr(abi.CmdDestroyUC), CtxHandle: first}, nil)
	g.createUC(1)
}

func TestAllDoorbellPagesButTheKernelsCanBeInUse(t *testing.T) {
	g := newRig(t).newGuest()
	for page := range uint64(7) {
		g.createUC(page + 1)
	}
	if n := g.dev.contexts.live; n != 7 {
		t.Errorf("%d contexts, want 7", n)
	}
}

// A guest kernel whose process is killed in the middle of CREATE_UC frees the page, and gives it to the next process.
func TestADoorbellPageThatTheGuestGivesAwayAgainTakesItsForgottenContextAlong(t *testing.T) {
	g := newRig(t).newGuest()
	g.createUC(2)
	before := g.books()
	forgotten := g.createUC(1)
	cq := g.createCQ(forgotten, 8)
	g.createQP(g.createPD(forgotten), cq, cq)

	next := g.createUC(1)

	g.refused(&abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD), CtxHandle: forgotten}, unix.EINVAL)
	if n := len(g.dev.polled); n != 2 {
		t.Errorf("%d polled pages, want 2", n)
	}
	g.must(&abi.CmdDestroyUCReq{Hdr: hdr(abi.CmdDestroyUC), CtxHandle: next}, nil)
	g.sameBooks(before)
}

func TestHandlesThatNameNothingAreRefused(t *testing.T) {
	g := newRig(t).newGuest()
	ctx, pd := g.user(1)
	cq := g.createCQ(ctx, 8)
	for _, h := range []uint32{2, 999, 1 << 24, 0xffffffff} {
		for _, req := range []request{
			&abi.CmdDestroyUCReq{Hdr: hdr(abi.CmdDestroyUC), CtxHandle: h},
			&abi.CmdDestroyUCReq{Hdr: hdr(abi.CmdDestroyUC), CtxHandle: 0}, // the kernel's cannot be destroyed
			&abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD), CtxHandle: h},
			&abi.CmdDestroyPDReq{Hdr: hdr(abi.CmdDestroyPD), PDHandle: h},
			&abi.CmdDestroyPDReq{Hdr: hdr(abi.CmdDestroyPD), PDHandle: 0},
			g.userMR(h, 1),
			&abi.CmdDestroyMRReq{Hdr: hdr(abi.CmdDestroyMR), MRHandle: h},
			g.cqReq(h, 8),
			&abi.CmdDestroyCQReq{Hdr: hdr(abi.CmdDestroyCQ), CQHandle: h},
			&abi.CmdDestroyQPReq{Hdr: hdr(abi.CmdDestroyQP), QPHandle: h},
			&abi.CmdModifyQPReq{Hdr: hdr(abi.CmdModifyQP), QPHandle: h},
			&abi.CmdQueryQPReq{Hdr: hdr(abi.CmdQueryQP), QPHandle: h},
			g.qpReq(h, cq, cq),
			g.qpReq(pd, &guestCQ{handle: h}, cq),
			g.qpReq(pd, cq, &guestCQ{handle: h}),
		} {
			g.refused(req, unix.EINVAL)
		}
	}
}

func TestAProtectionDomainInUseStays(t *testing.T) {
	g := newRig(t).newGuest()
	pd := g.createPD(0)
	mr := g.createMR(pd, 1)
	destroy := &abi.CmdDestroyPDReq{Hdr: hdr(abi.CmdDestroyPD), PDHandle: pd}
	g.refused(destroy, unix.EBUSY)
	g.must(&abi.CmdDestroyMRReq{Hdr: hdr(abi.CmdDestroyMR), MRHandle: mr.MRHandle}, nil)
	g.must(destroy, nil)
	g.refused(destroy, unix.EINVAL)
}

func TestDestroyingAContextDestroysWhatItLeftBehind(t *testing.T) {
	g := newRig(t).newGuest()
	kq, _ := g.kernelQP(8)
	before := g.books()
	q, c := g.rcQP(1, 8)
	ctx := q.dev().ctx.handle
	g.createCQ(ctx, 16)
	g.createQP(g.createPD(ctx), c, c)
	g.createMR(q.req.PDHandle, 3)
	g.must(&abi.CmdDestroyUCReq{Hdr: hdr(abi.CmdDestroyUC), CtxHandle: ctx}, nil)
	g.sameBooks(before)
	if kq.dev() == nil {
		t.Error("the kernel's queue pair is gone, too")
	}
}

func TestDestroyingAContextGoesOnWhenTheEngineRefuses(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	for _, method := range []string{"QP.Destroy", "CQ.Destroy", "Dereg", "Dealloc"} {
		t.Run(method, func(t *testing.T) {
			q, _ := g.rcQP(1, 8)
			g.createMR(q.req.PDHandle, 3)
			ctx := q.dev().ctx.handle
			r.engine.refuseWith(method, unix.EIO)
			_, err := g.exec(&abi.CmdDestroyUCReq{Hdr: hdr(abi.CmdDestroyUC), CtxHandle: ctx})
			r.engine.refuseWith(method, nil)
			wantErrno(t, err, unix.EIO)
			// The guest kernel gives the page to the next process whatever the answer was.
			if g.dev.contexts.live != 0 || g.dev.qps.live != 0 || g.dev.cqs.live != 0 || len(g.dev.polled) != 0 {
				t.Errorf("%d contexts, %d queue pairs, %d completion queues, %d polled pages are left",
					g.dev.contexts.live, g.dev.qps.live, g.dev.cqs.live, len(g.dev.polled))
			}
			g.must(&abi.CmdDestroyUCReq{Hdr: hdr(abi.CmdDestroyUC), CtxHandle: g.createUC(1)}, nil)
		})
	}
}

func TestAUserRegionCoversItsBytes(t *testing.T) {
	g := newRig(t).newGuest()
	pd := g.createPD(0)
	o := g.object(2)
	req := &abi.CmdCreateMRReq{
		Hdr: hdr(abi.CmdCreateMR), Start: 0x7f00_0000_0800, Length: 4096, PDirDMA: o.pdir, PDHandle: pd,
		AccessFlags: abi.AccessLocalWrite | abi.AccessRemoteRead | 1<<20, NChunks: 2,
	}
	var r abi.CmdCreateMRResp
	g.must(req, &r)
	m := g.dev.mrs.get(r.MRHandle).engine.(*fakeMR)
	if m.attr.Start != 0x7f00_0000_0800 || m.attr.Length != 4096 || m.attr.Offset != 0x800 || m.attr.DMA {
		t.Errorf("the engine got %+v", m.attr)
	}
	// Optional flags, relaxed ordering here, are ignored.
	if m.attr.Access != 5 {
		t.Errorf("access flags %v, want local write and remote read", m.attr.Access)
	}
	if r.LKey != m.lkey || r.RKey != m.rkey || r.LKey == 0 {
		t.Errorf("keys %#x, %#x, want %#x, %#x", r.LKey, r.RKey, m.lkey, m.rkey)
	}
	if g.dev.pinned != 2 || g.space.Stats().Pinned != 2 {
		t.Errorf("%d pages are counted, %d pinned, want 2", g.dev.pinned, g.space.Stats().Pinned)
	}
}

func TestARegistrationThatCannotBeIsRefused(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	kernel, user := g.createPD(0), g.createPD(g.createUC(1))
	cases := []struct {
		name  string
		spoil func(*abi.CmdCreateMRReq)
		want  unix.Errno
	}{
		{"no bytes", func(q *abi.CmdCreateMRReq) { q.Length = 0 }, unix.EINVAL},
		{"more than the capability", func(q *abi.CmdCreateMRReq) { q.Length = 1<<30 + 1 }, unix.EINVAL},
		{"all bytes there are", func(q *abi.CmdCreateMRReq) { q.Length = 1<<64 - 1 }, unix.EINVAL},
		{"wraps around", func(q *abi.CmdCreateMRReq) { q.Start = 1<<64 - 4096 }, unix.EINVAL},
		{"one page too few", func(q *abi.CmdCreateMRReq) { q.NChunks = 2 }, unix.EINVAL},
		{"an offset that needs one page more", func(q *abi.CmdCreateMRReq) { q.Start++ }, unix.EINVAL},
		{"no pages", func(q *abi.CmdCreateMRReq) { q.NChunks = 0 }, unix.EINVAL},
		{"pages whose bytes wrap in 32 bits", func(q *abi.CmdCreateMRReq) { q.NChunks, q.Length = 0x100001, 4096 }, unix.EINVAL},
		{"no directory", func(q *abi.CmdCreateMRReq) { q.PDirDMA = 0 }, unix.EINVAL},
		{"directory in a hole", func(q *abi.CmdCreateMRReq) { q.PDirDMA = 0x1000 }, unix.EFAULT},
		{"unknown flag", func(q *abi.CmdCreateMRReq) { q.Flags = 4 }, unix.EINVAL},
		{"two flags", func(q *abi.CmdCreateMRReq) { q.Flags = 3 }, unix.EINVAL},
		{"all memory for a user", func(q *abi.CmdCreateMRReq) { q.Flags, q.PDHandle = abi.MRFlagDMA, user }, unix.EPERM},
	}
	for _, c := range cases {
		t.Run(c.name, func(*testing.T) {
			q := g.userMR(kernel, 3)
			c.spoil(q)
			g.refused(q, c.want)
		})
	}
	r.engine.refuseWith("RegMR", unix.ENOMEM)
	g.refused(g.userMR(kernel, 3), unix.ENOMEM)
	g.refused(&abi.CmdCreateMRReq{Hdr: hdr(abi.CmdCreateMR), PDHandle: kernel, Flags: abi.MRFlagDMA}, unix.ENOMEM)
}

func TestMorePagesThanTheRegionNeedsAreNotPinned(t *testing.T) {
	g := newRig(t).newGuest()
	q := g.userMR(g.createPD(0), 1)
	q.NChunks = 5 // entries of 0, which nobody looks at
	g.must(q, nil)
	if g.dev.pinned != 1 {
		t.Errorf("%d pages are pinned, want 1", g.dev.pinned)
	}
}

func TestARegionWithoutWriteAccessMayLieInReadOnlyMemory(t *testing.T) {
	g := newRig(t).newGuest()
	rom := make([]byte, abi.PageSize)
	if err := g.space.MapBytes(0x8000_0000, rom, 1); err != nil {
		t.Fatal(err)
	}
	pdir := g.directory([]uint64{0x8000_0000})
	q := g.userMR(g.createPD(0), 1)
	q.PDirDMA = pdir
	for _, write := range []abi.AccessFlags{abi.AccessLocalWrite, abi.AccessRemoteWrite, abi.AccessRemoteAtomic} {
		q.AccessFlags = write
		g.refused(q, unix.EFAULT)
	}
	q.AccessFlags = abi.AccessRemoteRead
	g.must(q, nil)
}

func TestTheKernelsRegionOfAllMemoryIsALocalOne(t *testing.T) {
	g := newRig(t).newGuest()
	var r abi.CmdCreateMRResp
	before := g.books()
	g.must(&abi.CmdCreateMRReq{
		Hdr: hdr(abi.CmdCreateMR), PDHandle: g.createPD(0), AccessFlags: abi.AccessLocalWrite, Flags: abi.MRFlagDMA,
	}, &r)
	a := g.dev.mrs.get(r.MRHandle).engine.(*fakeMR).attr
	if !a.DMA || a.Access != 1 || a.Memory != g.space || a.Start != 0 || a.Offset != 0 {
		t.Errorf("the engine got %+v", a)
	}
	after := g.books()
	if after.Pinned != before.Pinned {
		t.Errorf("%d pages are pinned for it", after.Pinned)
	}
	g.must(&abi.CmdDestroyMRReq{Hdr: hdr(abi.CmdDestroyMR), MRHandle: r.MRHandle}, nil)
	g.must(&abi.CmdDestroyPDReq{Hdr: hdr(abi.CmdDestroyPD), PDHandle: 1}, nil)
	if diff := cmp.Diff(before, g.books()); diff != "" {
		t.Error(diff)
	}
}

func TestTheKernelsRegionOfAllMemoryAllowsWhatWasAskedForAndNoPeerAnything(t *testing.T) {
	g := newRig(t).newGuest()
	req := &abi.CmdCreateMRReq{Hdr: hdr(abi.CmdCreateMR), PDHandle: g.createPD(0), Flags: abi.MRFlagDMA}
	var r abi.CmdCreateMRResp
	g.must(req, &r)
	if a := g.dev.mrs.get(r.MRHandle).engine.(*fakeMR).attr; a.Access != 0 {
		t.Errorf("without a flag the engine got access %v", a.Access)
	}
	for _, f := range []abi.AccessFlags{abi.AccessRemoteRead, abi.AccessLocalWrite | abi.AccessRemoteWrite, 1 << 31} {
		req.AccessFlags = f
		g.refused(req, unix.EOPNOTSUPP)
	}
}

func TestARegionWhoseAddressesBeginAtZeroIsNotOffered(t *testing.T) {
	g := newRig(t).newGuest()
	req := g.userMR(g.createPD(0), 2)
	req.AccessFlags |= abi.AccessZeroBased
	g.refused(req, unix.EOPNOTSUPP)
}

func TestARegionThatTheEngineKeepsIsKept(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	mr := g.createMR(g.createPD(0), 2)
	r.engine.refuseWith("Dereg", unix.EBUSY)
	g.refused(&abi.CmdDestroyMRReq{Hdr: hdr(abi.CmdDestroyMR), MRHandle: mr.MRHandle}, unix.EBUSY)
}
