// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// flood gives every queue pair more send requests of size bytes than a device may have done in one pass.
func flood(all []*guestQP, size uint32) {
	for _, q := range all {
		for range q.req.MaxSendWR {
			q.putSend(sendWQE(abi.SendWQEHdr{Opcode: abi.WRSend, NumSGE: 1}, nil, abi.SGE{Length: size}))
		}
		q.publishSends()
		q.ring(userPage, abi.UARQPSend)
	}
}

func TestOneDeviceGetsOnlyItsShareOfAPassHoweverManyQueuePairsItHas(t *testing.T) {
	for name, tt := range map[string]struct {
		size uint32
		most int // requests in a pass
	}{
		"small requests":      {size: 1, most: hostverbs.VisitWRs},
		"full shares":         {size: shareBytes, most: hostverbs.VisitWRs},
		"a bit more":          {size: shareBytes + 1, most: hostverbs.VisitWRs / 2},
		"a quarter of a pass": {size: hostverbs.VisitBytes / 4, most: 4},
		"more than a third":   {size: hostverbs.VisitBytes/3 + 1, most: 2},
		"a pass":              {size: hostverbs.VisitBytes, most: 1},
		"long messages":       {size: 1 << 20, most: 1},
		"huge messages":       {size: 1 << 31, most: 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.engine.attr.MaxQP = 1024
			g := r.newGuest()
			all := manyQPs(g, userPage, 2*passShare/8)
			flood(all, tt.size)
			total := 0
			for total < len(all)*8 {
				worked, _ := r.step()
				now := 0
				for _, q := range all {
					now += len(q.engine.taken())
				}
				if now > tt.most {
					t.Fatalf("%d requests were carried out in one pass, want %d at most", now, tt.most)
				}
				if !worked {
					t.Fatalf("the worker stops with %d of %d requests carried out", total, len(all)*8)
				}
				total += now
			}
		})
	}
}

func TestNoQueuePairOfABusyDeviceStarves(t *testing.T) {
	// Arrange: one queue pair that is rung again and again, and others that were rung once.
	r := newRig(t)
	r.engine.attr.MaxQP = 1024
	g := r.newGuest()
	all := manyQPs(g, userPage, 8)
	flood(all, 1<<20)
	busy, others := all[0], all[1:]

	// Act
	for range 200 {
		for range busy.engine.taken() {
			busy.putSend(sendWQE(abi.SendWQEHdr{Opcode: abi.WRSend, NumSGE: 1}, nil, abi.SGE{Length: 1 << 20}))
		}
		busy.publishSends()
		busy.ring(userPage, abi.UARQPSend)
		r.step()
	}

	// Assert
	for i, q := range others {
		if n := len(q.engine.taken()); n != 8 {
			t.Errorf("queue pair %d: %d of 8 requests were carried out beside a busy one", i+1, n)
		}
	}
}

func TestAWorkerWithoutAGuestUsesNoProcessor(t *testing.T) {
	r := newLiveRig(t)
	r.asleep()
	before := r.engine.passes.Load()
	time.Sleep(200 * time.Millisecond)
	if n := r.engine.passes.Load() - before; n != 0 {
		t.Errorf("%d passes in 200 ms of a worker that never had a guest", n)
	}
}

func TestDoOnTheWorkersOwnThreadRunsAtOnce(t *testing.T) {
	r := newLiveRig(t)
	var order []string
	r.worker.Do(func() {
		r.worker.Do(func() { order = append(order, "inner") })
		order = append(order, "outer")
	})
	if len(order) != 2 || order[0] != "inner" {
		t.Errorf("order is %v, want inner before outer", order)
	}
}

func TestAContextWithManyRegionsIsDestroyedInFewVisits(t *testing.T) {
	r := newLiveRig(t)
	r.engine.attr.MaxMR = 4096
	g := r.newGuest()
	ctx, pd := g.user(userPage)
	const regions = 1000
	req := g.userMR(pd, 1)
	for range regions {
		var resp abi.CmdCreateMRResp
		g.must(req, &resp)
	}
	before := r.engine.passes.Load()
	g.must(&abi.CmdDestroyUCReq{Hdr: hdr(abi.CmdDestroyUC), CtxHandle: ctx}, nil)
	if n := r.engine.passes.Load() - before; n > 4*(regions/destroyBatch+10) {
		t.Errorf("%d passes to destroy %d regions, want one for %d or so", n, regions, destroyBatch)
	}
	if n := g.eng.count()["mr"]; n != 0 {
		t.Errorf("%d regions are left", n)
	}
}
