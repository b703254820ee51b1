// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

func TestReceivesOfASharedQueueAreTakenInOrderRoundTheRing(t *testing.T) {
	g := newRig(t).newGuest()
	s, _, _, _ := g.sharing(userPage)
	for id := uint64(1); id <= 40; id += 4 {
		for k := range uint64(4) {
			s.post(id+k, abi.SGE{Addr: 0x1000 + k, Length: 64, LKey: 7})
		}
		for k := range uint64(4) {
			wr, ok, err := s.pull()
			want := hostverbs.RecvWR{WRID: id + k, NumSGE: 1}
			want.SGE[0] = hostverbs.SGE{Addr: 0x1000 + k, Length: 64, LKey: 7}
			if err != nil || !ok || wr != want {
				t.Fatalf("got %+v, %t, %v, want %+v", wr, ok, err, want)
			}
			g.rig.worker.show()
			if cons := s.load32(s.at(rxConsHead)); cons != uint32(id+k)%16 {
				t.Fatalf("after %d receives the index is %d", id+k, cons)
			}
		}
		if _, ok, err := s.pull(); ok || err != nil {
			t.Fatalf("a receive of an empty queue: %t, %v", ok, err)
		}
	}
	if n := g.dev.Counters().RecvWQEs; n != 40 {
		t.Errorf("%d receives are counted, want 40", n)
	}
}

func TestTheEngineIsAskedForASharedQueueAndTheQueuePairHasNoOther(t *testing.T) {
	g := newRig(t).newGuest()
	s, one, _, _ := g.sharing(userPage)
	if s.engine.attr != (hostverbs.SRQAttr{MaxWR: 8, MaxSGE: srqSGE}) {
		t.Errorf("the engine's queue is %+v", s.engine.attr)
	}
	init := one.engine.init
	if init.SRQ != hostverbs.SRQ(s.engine) || init.Cap.MaxRecvWR != 0 || init.Cap.MaxRecvSGE != 0 {
		t.Errorf("the engine's queue pair is made with %+v", init)
	}
}

// TestWhatARequestSaysOfAReceiveQueueMeansNothingBesideASharedOne: see ibv_create_qp(3).
func TestWhatARequestSaysOfAReceiveQueueMeansNothingBesideASharedOne(t *testing.T) {
	g := newRig(t).newGuest()
	ctx, pd := g.user(userPage)
	c, s := g.createCQ(ctx, 8), g.createSRQ(pd, 8)
	q := g.qpReq(pd, c, c)
	withSRQ(s)(q)
	q.MaxRecvWR, q.MaxRecvSGE, q.TotalChunks = 7, 0xffffffff, 1+q.SendChunks
	var r abi.CmdCreateQPRespV2
	g.must(q, &r)
	if r.MaxRecvWR != 0 || r.MaxRecvSGE != 0 {
		t.Errorf("the response grants %d receives of %d elements", r.MaxRecvWR, r.MaxRecvSGE)
	}
}

func TestASharedQueueThatCannotBeIsRefused(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	_, pd := g.user(userPage)
	type req = abi.CmdCreateSRQReq
	for _, cs := range []struct {
		name  string
		spoil func(*req)
		want  unix.Errno
	}{
		{"a domain that is none", func(q *req) { q.PDHandle = 99 }, unix.EINVAL},
		{"no requests", func(q *req) { q.Attrs.MaxWR = 0 }, unix.EINVAL},
		{"7 requests", func(q *req) { q.Attrs.MaxWR = 7 }, unix.EINVAL},
		{"requests beyond the capability", func(q *req) { q.Attrs.MaxWR = 128 }, unix.EINVAL},
		{"2^31 requests", func(q *req) { q.Attrs.MaxWR = 1 << 31 }, unix.EINVAL},
		{"elements beyond the capability", func(q *req) { q.Attrs.MaxSGE = 4 }, unix.EINVAL},
		{"elements that wrap", func(q *req) { q.Attrs.MaxSGE = 1 << 28 }, unix.EINVAL},
		{"no pages", func(q *req) { q.NChunks = 0 }, unix.EINVAL},
		{"one page", func(q *req) { q.NChunks = 1 }, unix.EINVAL},
		{"too many pages", func(q *req) { q.NChunks = abi.MaxPages + 1 }, unix.EINVAL},
		{"another type", func(q *req) { q.SRQType = 1 }, unix.EOPNOTSUPP},
		{"no directory", func(q *req) { q.PDirDMA = 0 }, unix.EINVAL},
		{"directory in a hole", func(q *req) { q.PDirDMA = 0x1000 }, unix.EFAULT},
	} {
		t.Run(cs.name, func(*testing.T) {
			q := g.srqReq(pd, 8, 2)
			cs.spoil(q)
			g.refused(q, cs.want)
		})
	}
	r.engine.refuseWith("CreateSRQ", unix.ENOMEM)
	g.refused(g.srqReq(pd, 8, 2), unix.ENOMEM)
}

// TestASharedQueueMayHaveMorePagesThanItNeeds: the guest's library allocates twice as many.
func TestASharedQueueMayHaveMorePagesThanItNeeds(t *testing.T) {
	g := newRig(t).newGuest()
	_, pd := g.user(userPage)
	q := g.srqReq(pd, 64, 3)
	q.NChunks = abi.MaxPages
	g.must(q, nil)
}

func TestAnEngineWithoutSharedQueuesHasNone(t *testing.T) {
	r := newRig(t)
	r.engine.attr.MaxSRQ = 0
	g := r.newGuest()
	_, pd := g.user(userPage)
	g.refused(g.srqReq(pd, 8, 2), unix.EOPNOTSUPP)
	if g.dev.Caps().MaxSRQ != 0 {
		t.Error("they are offered")
	}
}

func TestALimitIsTheEnginesToKeep(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	_, pd := g.user(userPage)
	q := g.srqReq(pd, 8, 2)
	q.Attrs.SRQLimit = 5 // which ibv_create_srq does not look at
	var made abi.CmdCreateSRQResp
	g.must(q, &made)
	limit := func() abi.SRQAttr {
		var a abi.CmdQuerySRQResp
		g.must(&abi.CmdQuerySRQReq{Hdr: hdr(abi.CmdQuerySRQ), SRQHandle: made.SRQN}, &a)
		return a.Attrs
	}
	if a := limit(); a != (abi.SRQAttr{MaxWR: 8, MaxSGE: 2}) {
		t.Errorf("a new queue is %+v", a)
	}
	modify := func(mask abi.SRQAttrMask) *abi.CmdModifySRQReq {
		return &abi.CmdModifySRQReq{
			Hdr: hdr(abi.CmdModifySRQ), SRQHandle: made.SRQN, AttrMask: mask, Attrs: abi.SRQAttr{SRQLimit: 3},
		}
	}
	g.must(modify(abi.SRQAttrMask(hostverbs.SRQLimit)), nil)
	g.refused(modify(abi.SRQAttrMask(hostverbs.SRQLimit|hostverbs.SRQMaxWR)), unix.EOPNOTSUPP)
	if a := limit(); a != (abi.SRQAttr{MaxWR: 8, MaxSGE: 2, SRQLimit: 3}) {
		t.Errorf("after a limit of 3 the queue is %+v", a)
	}
	for _, req := range []request{
		&abi.CmdModifySRQReq{Hdr: hdr(abi.CmdModifySRQ), SRQHandle: 99, AttrMask: 2},
		&abi.CmdQuerySRQReq{Hdr: hdr(abi.CmdQuerySRQ), SRQHandle: 99},
		&abi.CmdDestroySRQReq{Hdr: hdr(abi.CmdDestroySRQ), SRQHandle: 99},
		&abi.CmdDestroySRQReq{Hdr: hdr(abi.CmdDestroySRQ)},
	} {
		g.refused(req, unix.EINVAL)
	}
	r.engine.refuseWith("SRQ.Query", unix.EIO)
	g.refused(&abi.CmdQuerySRQReq{Hdr: hdr(abi.CmdQuerySRQ), SRQHandle: made.SRQN}, unix.EIO)
}

func TestALimitEventNamesTheQueue(t *testing.T) {
	g := newRig(t).newGuest()
	s, _, _, _ := g.sharing(userPage)
	s.post(1)
	s.post(2)
	if n := s.engine.h.Posted(); n != 2 {
		t.Errorf("%d receives are posted, want 2", n)
	}
	s.engine.h.Event(hostverbs.EventSRQLimitReached)
	if diff := cmp.Diff([]asyncRecord{{abi.EventSRQLimitReached, s.handle}}, g.notifier.asyncs()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestAReceiveThatIsWrongIsTheEnginesToComplete(t *testing.T) {
	g := newRig(t).newGuest()
	s, _, _, _ := g.sharing(userPage)
	for _, n := range []uint32{srqSGE + 1, 0x80000000, 0xffffffff} {
		s.postHdr(abi.RecvWQEHdr{WRID: uint64(n), NumSGE: n})
		wr, ok, err := s.pull()
		if !ok || err != nil || wr.WRID != uint64(n) || wr.Status != hostverbs.WCLocQPOpErr || wr.NumSGE != 0 {
			t.Errorf("%d elements: %+v, %t, %v", n, wr, ok, err)
		}
	}
	if v := g.seen.violations(); v[BadWQE] != 3 || len(v) != 1 {
		t.Errorf("violations %v, want bad_wqe three times", v)
	}
	s.post(5)
	if wr, ok, _ := s.pull(); !ok || wr.Status != hostverbs.WCSuccess {
		t.Errorf("the queue does not go on: %+v", wr)
	}
}

func TestAnInvalidIndexOfASharedQueueEndsItAndItsQueuePairs(t *testing.T) {
	for _, index := range []uint32{16, 0xffffffff, 1 << 31, 9, math.MaxUint32 - 7} {
		for _, how := range []string{"a message", "a doorbell by message", "a word", "a question"} {
			t.Run(fmt.Sprintf("%#x, found by %s", index, how), func(t *testing.T) {
				r := newRig(t)
				g := r.newGuest()
				s, one, two, _ := g.sharing(userPage)
				other, _ := g.kernelQP(8)
				s.store32(s.at(rxProdTail), index)
				switch how {
				case "a message":
					if _, ok, err := s.pull(); ok || err != nil {
						t.Errorf("a receive: %t, %v", ok, err)
					}
				case "a doorbell by message":
					s.ring(0)
				case "a word":
					s.ring(userPage)
				case "a question":
					if n := s.engine.h.Posted(); n != math.MaxUint32 {
						t.Errorf("%d receives are posted", n)
					}
				}
				r.settle()
				s.ring(0)
				_, _, _ = s.pull()
				s.engine.h.Event(hostverbs.EventSRQLimitReached) // nothing after SRQ_ERR
				r.settle()
				if diff := cmp.Diff([]asyncRecord{{abi.EventSRQErr, s.handle}}, g.notifier.asyncs()); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
				if v := g.seen.violations(); v[BadRing] != 1 || len(v) != 1 {
					t.Errorf("violations %v, want one bad_ring", v)
				}
				if one.engine.failed() != 1 || two.engine.failed() != 1 || other.engine.failed() != 0 {
					t.Errorf("the queue pairs failed %d and %d times, another %d times", one.engine.failed(), two.engine.failed(),
						other.engine.failed())
				}
			})
		}
	}
}

func TestASharedQueueThatIsOverServesNoNewQueuePair(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	s, one, _, c := g.sharing(userPage)
	s.store32(s.at(rxProdTail), 99)
	s.ring(userPage)
	r.settle()
	q := g.qpReq(s.dev().pd.handle, c, c)
	withSRQ(s)(q)
	g.refused(q, unix.EIO)
	one.modify(hostverbs.StateReset)
	g.refused(one.modifyReq(hostverbs.StateInit), unix.EIO)
	one.modify(hostverbs.StateErr)
}

func TestASharedQueueWhoseMemoryIsTakenEndsWithItsQueuePairs(t *testing.T) {
	for _, w := range takings() {
		for _, unsettled := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, used before it is noticed: %t", w.name, unsettled), func(t *testing.T) {
				r := newRig(t)
				g := r.newGuest()
				ctx, pd := g.user(userPage)
				c := g.createCQ(ctx, 8)
				var s *guestSRQ
				w.placer(g)(func() { s = g.createSRQ(pd, 64) })
				q := g.createQP(pd, c, c, withSRQ(s))
				q.modify(hostverbs.StateRTS)
				s.post(1)
				h := s.engine.h
				if unsettled {
					g.unplug()
					var wr hostverbs.RecvWR
					if ok, err := h.PullRecv(&wr); ok || err != nil {
						t.Errorf("a receive: %t, %v", ok, err)
					}
					g.dev.EndRevoked()
				} else {
					w.from(g)
				}
				r.settle()
				if diff := cmp.Diff([]asyncRecord{{abi.EventSRQErr, s.handle}}, g.notifier.asyncs()); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
				if v := g.seen.violations(); v[BadMemory] != 1 || len(v) != 1 || len(g.notifier.failures()) != 0 {
					t.Errorf("violations %v, failures %v", v, g.notifier.failures())
				}
				if q.engine.failed() != 1 {
					t.Errorf("the queue pair failed %d times", q.engine.failed())
				}
				g.must(q.destroyReq(), nil)
				g.must(s.destroyReq(), nil)
			})
		}
	}
}

func TestMemoryOfASharedQueueThatFailsResetsItsGuest(t *testing.T) {
	for _, how := range []string{"a message", "a question"} {
		t.Run(how, func(t *testing.T) {
			r := newRig(t)
			g, fd := r.fileGuest("vm1")
			s, _, _, _ := g.sharing(userPage)
			s.post(1)
			if err := unix.Ftruncate(fd, 0); err != nil {
				t.Fatal(err)
			}
			switch how {
			case "a message":
				_, ok, err := s.pull()
				var fault *guestmem.FaultError
				if ok || !errors.As(err, &fault) {
					t.Errorf("a receive of memory that is gone: %t, %v", ok, err)
				}
			case "a question":
				s.engine.h.Posted()
			}
			if len(g.notifier.failures()) != 1 {
				t.Errorf("failures %v, want one", g.notifier.failures())
			}
		})
	}
}

// TestASharedQueueIsDestroyedWhateverUsesIt: the guest's driver frees its memory without a look at the answer.
func TestASharedQueueIsDestroyedWhateverUsesIt(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	s, one, two, _ := g.sharing(userPage)
	s.post(1)
	h := s.engine.h
	g.must(s.destroyReq(), nil)
	cons := s.load32(s.at(rxConsHead))
	var wr hostverbs.RecvWR
	if ok, err := h.PullRecv(&wr); ok || err != nil || s.load32(s.at(rxConsHead)) != cons {
		t.Errorf("a receive of a queue that is gone: %t, %v", ok, err)
	}
	r.settle()
	if one.engine.failed() != 1 || two.engine.failed() != 1 || len(g.notifier.asyncs()) != 0 {
		t.Errorf("the queue pairs failed %d and %d times", one.engine.failed(), two.engine.failed())
	}
	g.refused(s.destroyReq(), unix.EINVAL)
	g.must(one.destroyReq(), nil)
	if g.eng.count()["srq"] != 1 {
		t.Error("the engine's side has ended while a queue pair uses it")
	}
	g.must(two.destroyReq(), nil)
	if n := g.eng.count()["srq"]; n != 0 {
		t.Errorf("the engine has %d shared receive queues", n)
	}
}

func TestDestroyingAContextDestroysItsSharedQueues(t *testing.T) {
	g := newRig(t).newGuest()
	before := g.books()
	s, _, _, _ := g.sharing(userPage)
	g.must(&abi.CmdDestroyUCReq{Hdr: hdr(abi.CmdDestroyUC), CtxHandle: s.dev().ctx.handle}, nil)
	g.sameBooks(before)

	g.sharing(userPage)
	if err := g.dev.Reset(); err != nil {
		t.Fatal(err)
	}
	if n := g.space.Stats().Pinned; n != 0 {
		t.Errorf("%d pages are pinned after a reset", n)
	}
}

// TestAReceiveDoorbellOfAQueuePairWithASharedQueueReachesNoRing: it has none.
func TestAReceiveDoorbellOfAQueuePairWithASharedQueueReachesNoRing(t *testing.T) {
	for name, polled := range map[string]bool{"polled": true, "trapped": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			g := r.idleGuest(defaultConfig(), polled)
			g.activate()
			_, one, _, _ := g.sharing(userPage)
			one.store32(one.at(rxProdTail), 3) // where a receive ring would have its index
			before, bells := one.engine.rings(), g.dev.Counters().Doorbells
			one.ring(userPage, abi.UARQPRecv)
			r.settle()
			if n := one.engine.rings() - before; n != 0 {
				t.Errorf("the engine was told %d times", n)
			}
			if v := g.seen.violations(); v[BadDoorbell] != 1 || len(v) != 1 || g.dev.Counters().Doorbells != bells {
				t.Errorf("violations %v, %d doorbells more, want one bad_doorbell", v, g.dev.Counters().Doorbells-bells)
			}
			one.postSends(7)
			one.ring(userPage, abi.UARQPSend)
			r.settle()
			if len(one.engine.taken()) != 1 || one.engine.rings() != before || one.engine.failed() != 0 {
				t.Error("the queue pair does not send any more, or its receive ring was looked at")
			}
		})
	}
}

// TestReceivesOfASharedQueueNeedNoDoorbell: one that is lost or hidden by another is no loss.
func TestReceivesOfASharedQueueNeedNoDoorbell(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	s, _, _, _ := g.sharing(userPage)
	second := g.createSRQ(s.dev().pd.handle, 8)
	s.post(1)
	second.post(2)
	s.ring(userPage)
	second.ring(userPage) // hides the first
	r.settle()
	for _, q := range []*guestSRQ{s, second} {
		if _, ok, err := q.pull(); !ok || err != nil {
			t.Errorf("queue %d: %t, %v", q.handle, ok, err)
		}
	}
	if v := g.seen.violations(); len(v) != 0 {
		t.Errorf("violations %v", v)
	}
}
