// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/driver"
)

// occasion is something that happens to endpoint b, of whose guest's kernel an event tells.
type occasion struct {
	event string // the end of PVRDMA_EVENT_<event>
	// object is the handle that the event names.
	object func(b *testguest.Endpoint) uint32
	// rtr leaves b ready to receive only.
	rtr    bool
	happen func(t *testing.T, a, b *testguest.Endpoint)
}

func itsQP(b *testguest.Endpoint) uint32 { return b.QP.Handle }

func occasions() map[string]occasion {
	return map[string]occasion{
		"a peer uses a key that is none": {"QP_ACCESS_ERR", itsQP, false, func(_ *testing.T, a, b *testguest.Endpoint) {
			to := b.Address()
			to.RKey ^= 0x100
			a.Sent(a.Write(to, 0, 8), "REM_ACCESS_ERR")
		}},
		"a peer does what the queue pair does not allow": {"QP_REQ_ERR", itsQP, false, func(t *testing.T, a, b *testguest.Endpoint) {
			if err := b.QP.Modify(b.QP.Attr().With("ACCESS_FLAGS", "qp_access_flags", 0)); err != nil {
				t.Fatal(err)
			}
			a.Sent(a.Write(b.Address(), 0, 8), "REM_INV_REQ_ERR")
		}},
		"a ring has an index that is none": {"QP_FATAL", itsQP, false, func(t *testing.T, _, b *testguest.Endpoint) {
			send, _ := b.QP.Rings()
			send.SetProd(1<<32 - 1)
			if err := b.QP.RingSend(); err != nil {
				t.Fatal(err)
			}
		}},
		"a first message arrives": {"COMM_EST", itsQP, true, func(_ *testing.T, a, b *testguest.Endpoint) {
			b.Recv(0, 8)
			b.Recv(0, 8)
			a.Sent(a.Send(0, 8), "SUCCESS")
			a.Sent(a.Send(0, 8), "SUCCESS")
		}},
		"a send queue is drained": {"SQ_DRAINED", itsQP, false, func(t *testing.T, _, b *testguest.Endpoint) {
			sqd := b.QP.Attr().WithState("SQD").With("EN_SQD_ASYNC_NOTIFY", "en_sqd_async_notify", 1)
			if err := b.QP.Modify(sqd); err != nil {
				t.Fatal(err)
			}
		}},
		"a completion queue overflows": {
			"CQ_ERR", func(b *testguest.Endpoint) uint32 { return b.RecvCQ.Handle }, false,
			func(_ *testing.T, a, b *testguest.Endpoint) {
				for range 20 {
					b.Recv(0, 8)
				}
				for range 16 {
					a.Sent(a.Send(0, 8), "SUCCESS")
				}
				a.Send(0, 8)
			},
		},
	}
}

// TestEachKindOfEventComesOnceAndNamesItsObject has one thing happen, and wants one event and no other, of any guest.
func TestEachKindOfEventComesOnceAndNamesItsObject(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		ga, gb := d.guest("a"), d.guest("b")
		for name, o := range occasions() {
			t.Run(name, func(t *testing.T) {
				a, b := ga.Open().Endpoint(testguest.Shape{}), gb.Open().Endpoint(testguest.Shape{CQE: 16})
				a.ConnectTo(b.Address())
				if o.rtr {
					path := b.PathTo(a.Address())
					if err := b.QP.ToInit(*b.Shape.Tuning); err != nil {
						t.Fatal(err)
					}
					if err := b.QP.ToRTR(path, *b.Shape.Tuning); err != nil {
						t.Fatal(err)
					}
				} else {
					b.ConnectTo(a.Address())
				}
				o.happen(t, a, b)
				want := driver.AsyncEvent{Type: gb.Const("PVRDMA_EVENT_" + o.event), Info: o.object(b)}
				if e, err := gb.Dev.WaitAsync(testguest.Patience); err != nil || e != want {
					t.Fatalf("event %+v, %v, want %s of %d", e, err, o.event, want.Info)
				}
				time.Sleep(settle)
				for _, g := range []*testguest.Guest{ga, gb} {
					if e, err := g.Dev.WaitAsync(settle); err == nil {
						t.Errorf("another event: %s of %d", g.L.ConstName("PVRDMA_EVENT_", e.Type), e.Info)
					}
				}
			})
		}
	})
}

// TestAnOverflowedQueueTakesItsQueuePairsAlongAndIsOfNoUseAnyMore: what is later is refused, not lost.
func TestAnOverflowedQueueTakesItsQueuePairsAlongAndIsOfNoUseAnyMore(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		n := d.neighbour()
		g := d.guest("a")
		a := g.Open().Endpoint(testguest.Shape{Depth: 64, CQE: 16})
		i := a.QP.Init
		i.SendCQ, i.RecvCQ = a.RecvCQ, a.SendCQ // another queue pair that has the queue for its receives
		other, err := a.PD.CreateQP(i)
		if err != nil {
			t.Fatal(err)
		}
		if err := other.ToInit(*a.Shape.Tuning); err != nil {
			t.Fatal(err)
		}
		a.ConnectTo(a.Address())
		ids := make([]uint64, 0, 40)
		for range 40 {
			ids = append(ids, a.Write(a.Address(), 0, 8))
		}
		awaitEvent(t, g, "CQ_ERR", a.SendCQ.Handle)
		a.StateIs("ERR")
		if v, err := other.Query(); err != nil || v.Get32("qp_state") != g.Const("PVRDMA_QPS_ERR") {
			t.Errorf("the other queue pair is in state %d, %v", v.Get32("qp_state"), err)
		}
		for _, id := range ids[:16] { // what was there before stays
			a.Sent(id, "SUCCESS")
		}
		arm(t, a.SendCQ, false)
		wantEvents(t, "an arm of a queue that is over", a.SendCQ, 0)
		if qp, err := a.PD.CreateQP(a.QP.Init); err == nil {
			t.Errorf("queue pair %d is made on a queue that is over", qp.Handle)
		}
		if err := a.QP.Reset(); err != nil {
			t.Errorf("to RESET: %v", err)
		}
		if err := a.QP.ToInit(*a.Shape.Tuning); err == nil {
			t.Error("a queue pair on a queue that is over leaves RESET")
		}
		if err := other.Destroy(); err != nil {
			t.Error(err)
		}
		if e, err := g.Dev.WaitAsync(settle); err == nil {
			t.Errorf("another event: %+v", e)
		}
		n.check()
	})
}
