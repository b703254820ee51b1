// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

func TestAQueuePairIsCreatedAsAskedFor(t *testing.T) {
	g := newRig(t).newGuest()
	ctx, pd := g.user(1)
	send, recv := g.createCQ(ctx, 8), g.createCQ(ctx, 16)
	q := g.createQP(pd, send, recv, func(r *abi.CmdCreateQPReq) {
		r.MaxSendWR, r.MaxRecvWR, r.MaxSendSGE, r.MaxRecvSGE, r.SQSigAll = 64, 128, 3, 4, 1
	})
	d := q.dev()
	want := hostverbs.QPInitAttr{
		SendCQ: send.dev().engine, RecvCQ: recv.dev().engine, Type: hostverbs.QPTypeRC, SQSigAll: true,
		Cap: hostverbs.QPCap{MaxSendWR: 64, MaxRecvWR: 128, MaxSendSGE: 3, MaxRecvSGE: 4},
	}
	if diff := cmp.Diff(want, q.engine.init, cmpopts.EquateComparable(&fakeCQ{})); diff != "" {
		t.Errorf("the engine got (-want +got):\n%s", diff)
	}
	if q.handle == 0 || q.qpn != q.engine.num || q.engine.h != d {
		t.Errorf("handle %d, number %#x", q.handle, q.qpn)
	}
	// 64 requests of 128 bytes, 128 of 128 bytes (16 + 4 * 16 rounded up).
	if d.sq.base != 4096 || d.sq.stride != 128 || d.rq.base != 3*4096 || d.rq.stride != 128 {
		t.Errorf("send queue at %d by %d, receive queue at %d by %d", d.sq.base, d.sq.stride, d.rq.base, d.rq.stride)
	}
}

func TestTheResponseNamesNumberAndHandle(t *testing.T) {
	g := newRig(t).newGuest()
	pd, c := g.createPD(0), g.createCQ(0, 8)
	b, err := g.exec(g.qpReq(pd, c, c))
	if err != nil {
		t.Fatal(err)
	}
	var got abi.CmdCreateQPRespV2
	if err := got.Decode(b[:]); err != nil {
		t.Fatal(err)
	}
	want := abi.CmdCreateQPRespV2{
		Hdr: abi.RespHeader{Ack: 0x80000009}, QPN: g.eng.qps()[0].num, QPHandle: 1, MaxSendWR: 8, MaxRecvWR: 8,
		MaxSendSGE: 2, MaxRecvSGE: 2,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("response (-want +got):\n%s", diff)
	}
}

func TestAQueuePairThatCannotBeIsRefused(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	ctx, pd := g.user(1)
	c := g.createCQ(ctx, 8)
	kc, kpd := g.createCQ(0, 8), g.createPD(0)
	ctx2, pd2 := g.user(2)
	other := g.createCQ(ctx2, 8)
	mine, theirs := g.createSRQ(pd, 8), g.createSRQ(pd2, 8)
	type req = abi.CmdCreateQPReq
	cases := []struct {
		name  string
		spoil func(*req)
		want  unix.Errno
	}{
		{"send queue of another context", func(q *req) { q.SendCQHandle = other.handle }, unix.EINVAL},
		{"receive queue of another context", func(q *req) { q.RecvCQHandle = other.handle }, unix.EINVAL},
		{"the kernel's queue for a user", func(q *req) { q.SendCQHandle = kc.handle }, unix.EINVAL},
		{"a user's queue for the kernel", func(q *req) { q.PDHandle = kpd }, unix.EINVAL},
		{"SMI", func(q *req) { q.QPType = abi.QPTypeSMI }, unix.EOPNOTSUPP},
		{"UC", func(q *req) { q.QPType = 3 }, unix.EOPNOTSUPP},
		{"no type at all", func(q *req) { q.QPType = 0xff }, unix.EOPNOTSUPP},
		{"GSI for a user", func(q *req) { q.QPType = abi.QPTypeGSI }, unix.EOPNOTSUPP},
		{"a shared receive queue that is none", func(q *req) { q.IsSRQ, q.SRQHandle = 1, 99 }, unix.EINVAL},
		{"a shared receive queue of another context", func(q *req) { q.IsSRQ, q.SRQHandle = 1, theirs.handle }, unix.EINVAL},
		{"one page too few beside a shared receive queue", func(q *req) {
			q.IsSRQ, q.SRQHandle, q.TotalChunks = 1, mine.handle, q.SendChunks
		}, unix.EINVAL},
		{"inline data", func(q *req) { q.MaxInlineData = 1 }, unix.EINVAL},
		{"no send requests", func(q *req) { q.MaxSendWR = 0 }, unix.EINVAL},
		{"no receive requests", func(q *req) { q.MaxRecvWR = 0 }, unix.EINVAL},
		{"7 send requests", func(q *req) { q.MaxSendWR = 7 }, unix.EINVAL},
		{"9 receive requests", func(q *req) { q.MaxRecvWR = 9 }, unix.EINVAL},
		{"a million send requests in a page", func(q *req) { q.MaxSendWR = 1 << 20 }, unix.EINVAL},
		{"send requests beyond the capability", func(q *req) { q.MaxSendWR = 512 }, unix.EINVAL},
		{"receive requests beyond the capability", func(q *req) { q.MaxRecvWR = 512 }, unix.EINVAL},
		{"2^31 send requests", func(q *req) { q.MaxSendWR = 1 << 31 }, unix.EINVAL},
		{"send elements beyond the capability", func(q *req) { q.MaxSendSGE = 5 }, unix.EINVAL},
		{"receive elements beyond the capability", func(q *req) { q.MaxRecvSGE = 5 }, unix.EINVAL},
		{"send elements beyond a page", func(q *req) { q.MaxSendSGE = 252 }, unix.EINVAL},
		{"receive elements beyond a page", func(q *req) { q.MaxRecvSGE = 256 }, unix.EINVAL},
		{"send elements that wrap", func(q *req) { q.MaxSendSGE = 0xffffffff }, unix.EINVAL},
		{"receive elements that wrap", func(q *req) { q.MaxRecvSGE = 1 << 28 }, unix.EINVAL},
		{"no pages", func(q *req) { q.TotalChunks = 0 }, unix.EINVAL},
		{"one page", func(q *req) { q.TotalChunks = 1 }, unix.EINVAL},
		{"one page too few", func(q *req) { q.TotalChunks-- }, unix.EINVAL},
		{"no pages for sends", func(q *req) { q.SendChunks = 0 }, unix.EINVAL},
		{"all pages for sends", func(q *req) { q.SendChunks = q.TotalChunks }, unix.EINVAL},
		{"more pages for sends than there are", func(q *req) { q.SendChunks = 0xffff }, unix.EINVAL},
		{"as many pages as fit", func(q *req) { q.TotalChunks = 0xffff }, unix.EINVAL}, // entries of 0 follow
		{"no directory", func(q *req) { q.PDirDMA = 0 }, unix.EINVAL},
		{"directory in a hole", func(q *req) { q.PDirDMA = 0x1000 }, unix.EFAULT},
	}
	for _, cs := range cases {
		t.Run(cs.name, func(*testing.T) {
			q := g.qpReq(pd, c, c)
			cs.spoil(q)
			g.refused(q, cs.want)
		})
	}
	r.engine.refuseWith("CreateQP", unix.ENOMEM)
	g.refused(g.qpReq(pd, c, c), unix.ENOMEM)
}

func TestBothTypesOfUsersAreMade(t *testing.T) {
	g := newRig(t).newGuest()
	ctx, pd := g.user(1)
	c := g.createCQ(ctx, 8)
	for _, typ := range []abi.QPType{abi.QPTypeRC, abi.QPTypeUD} {
		q := g.createQP(pd, c, c, func(r *abi.CmdCreateQPReq) { r.QPType = typ })
		if got := q.engine.init.Type; got != hostverbs.QPType(typ) {
			t.Errorf("the engine is asked for %v, want %v", got, typ)
		}
	}
}

func TestTheKernelHasItsGSIQueuePair(t *testing.T) {
	g := newRig(t).newGuest()
	c := g.createCQ(0, 1024)
	q := g.createQP(g.createPD(0), c, c, func(r *abi.CmdCreateQPReq) {
		r.QPType, r.MaxSendWR, r.MaxRecvWR, r.MaxSendSGE, r.MaxRecvSGE, r.SQSigAll = 1, 128, 128, 2, 1, 1
	})
	if q.qpn != 1 || q.handle == 0 {
		t.Errorf("number %d, handle %d, want number 1", q.qpn, q.handle)
	}
}

func TestDestroyingAQueuePairGivesAllBack(t *testing.T) {
	g := newRig(t).newGuest()
	pd, c := g.createPD(0), g.createCQ(0, 8)
	before := g.books()
	q := g.createQP(pd, c, c)
	q.modify(hostverbs.StateRTS)
	g.must(q.destroyReq(), nil)
	g.sameBooks(before)
	g.refused(q.destroyReq(), unix.EINVAL)
}

func TestAQueuePairThatIsBeingDestroyedIsNotServed(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	q, _ := g.kernelQP(8)
	q.engine.setRoom(0)
	q.postSends(1)
	q.ring(0, abi.UARQPSend)
	r.settle()
	q.engine.offered = nil
	q.engine.onDestroy = func() { // what the engine may still do until it has let go
		q.engine.setRoom(-1)
		q.engine.h.SendReady()
		q.engine.h.Event(hostverbs.EventCommEst)
		r.settle()
	}
	g.must(q.destroyReq(), nil)
	if len(q.engine.offered) != 0 || len(g.notifier.asyncs()) != 0 {
		t.Errorf("batches %v were offered", q.engine.offered)
	}
}

func TestADestroyedQueuePairIsGoneEvenIfTheEngineKeepsIt(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	q, _ := g.kernelQP(8)
	r.engine.refuseWith("QP.Destroy", unix.EBUSY)
	_, err := g.exec(q.destroyReq())
	wantErrno(t, err, unix.EBUSY)
	// The guest frees the memory whatever the answer was.
	if q.dev() != nil || g.space.Stats().Pinned != 2 {
		t.Errorf("it is still there, with %d pages pinned", g.space.Stats().Pinned)
	}
}

func TestACompletionQueueOutlivesItsDestructionInTheEngineOnly(t *testing.T) {
	g := newRig(t).newGuest()
	pd := g.createPD(0)
	before := g.books()
	send, recv := g.createCQ(0, 8), g.createCQ(0, 8)
	q1, q2 := g.createQP(pd, send, recv), g.createQP(pd, send, send)
	for _, c := range []*guestCQ{send, recv} {
		g.must(&abi.CmdDestroyCQReq{Hdr: hdr(abi.CmdDestroyCQ), CQHandle: c.handle}, nil)
	}
	if n := g.eng.count()["cq"]; n != 2 {
		t.Errorf("the engine has %d completion queues, want 2 that are in use", n)
	}
	g.must(q1.destroyReq(), nil)
	if n := g.eng.count()["cq"]; n != 1 {
		t.Errorf("the engine has %d completion queues, want 1 that is in use", n)
	}
	g.must(q2.destroyReq(), nil)
	g.sameBooks(before)
}

func TestQueuePairsOfADestroyedCompletionQueueFail(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	pd := g.createPD(0)
	send, recv := g.createCQ(0, 8), g.createCQ(0, 8)
	q, bystander := g.createQP(pd, send, recv), g.createQP(pd, send, send)
	q.modify(hostverbs.StateRTS)
	bystander.modify(hostverbs.StateRTS)
	g.must(&abi.CmdDestroyCQReq{Hdr: hdr(abi.CmdDestroyCQ), CQHandle: recv.handle}, nil)
	r.settle()
	if q.engine.failed() != 1 || bystander.engine.failed() != 0 {
		t.Errorf("failed %d times, the other one %d times", q.engine.failed(), bystander.engine.failed())
	}
	if a := g.notifier.asyncs(); len(a) != 0 {
		t.Errorf("events %v of something that the guest did itself", a)
	}
	// What completes there is written nowhere.
	before := recv.read(recv.at(abi.PageSize), 512)
	if err := q.engine.h.CompleteRecv(&hostverbs.WC{WRID: 1}); err != nil {
		t.Error(err)
	}
	g.rig.worker.show()
	if diff := cmp.Diff(before, recv.read(recv.at(abi.PageSize), 512)); diff != "" || recv.unread() != 0 {
		t.Error("a completion was written into a destroyed queue")
	}
}
