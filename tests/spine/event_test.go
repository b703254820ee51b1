// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
)

// settle is how long an event that must not come is waited for: far above the grace time of a polled queue.
const settle = 20 * time.Millisecond

// exact runs a test with endpoints whose doorbells are all messages: the kernel's in both modes, and a program's where
// its page is not mapped. There every arm counts exactly.
func exact(t *testing.T, s testguest.Shape, test func(t *testing.T, a, b *testguest.Endpoint)) {
	t.Helper()
	eachMode(t, func(t *testing.T, d *daemon) {
		ga, gb := d.guest("a"), d.guest("b")
		programs := map[string]func(*testguest.Guest) *testguest.Program{"kernel": (*testguest.Guest).InKernel}
		if d.mode == "trap" {
			programs["program"] = (*testguest.Guest).Open
		}
		for name, open := range programs {
			t.Run(name, func(t *testing.T) {
				a, b := open(ga).Endpoint(s), open(gb).Endpoint(s)
				defer a.Destroy()
				defer b.Destroy()
				testguest.Connect(a, b)
				test(t, a, b)
			})
		}
	})
}

// events waits for some events of a queue, and counts those too that come within the settling time.
func events(cq *verbs.CQ, atLeast int) int {
	for n := range atLeast {
		if cq.WaitEvent(testguest.Patience) != nil {
			return n
		}
	}
	timer := time.After(settle)
	for n := atLeast; ; n++ {
		select {
		case <-cq.Events():
		case <-timer:
			return n
		}
	}
}

func wantEvents(t *testing.T, what string, cq *verbs.CQ, want int) {
	t.Helper()
	if n := events(cq, want); n != want {
		t.Errorf("%s: %d events, want %d", what, n, want)
	}
}

func arm(t *testing.T, cq *verbs.CQ, solicitedOnly bool) {
	t.Helper()
	if err := cq.ReqNotify(solicitedOnly); err != nil {
		t.Fatal(err)
	}
}

func TestAQueueThatWasNotArmedInterruptsNobody(t *testing.T) {
	exact(t, testguest.Shape{}, func(t *testing.T, a, b *testguest.Endpoint) {
		before, _ := a.P.G.Dev.EventStats()
		for range 2500 { // more than the ring of notifications has places
			a.Sent(a.Write(b.Address(), 0, 8), "SUCCESS")
		}
		wantEvents(t, "2500 completions", a.SendCQ, 0)
		if after, _ := a.P.G.Dev.EventStats(); after != before {
			t.Errorf("the rings went from %+v to %+v", before, after)
		}
	})
}

func TestAnArmIsOneEventAtTheNextCompletion(t *testing.T) {
	exact(t, testguest.Shape{}, func(t *testing.T, a, b *testguest.Endpoint) {
		one := func() { a.Sent(a.Write(b.Address(), 0, 8), "SUCCESS") }
		arm(t, a.SendCQ, false)
		wantEvents(t, "an arm alone", a.SendCQ, 0)
		one()
		one()
		one()
		wantEvents(t, "three completions after one arm", a.SendCQ, 1)
		arm(t, a.SendCQ, false)
		arm(t, a.SendCQ, false)
		one()
		one()
		wantEvents(t, "two completions after two arms", a.SendCQ, 1)
	})
}

func TestAnArmOfAQueueThatHoldsSomethingIsAnEventAtOnce(t *testing.T) {
	exact(t, testguest.Shape{}, func(t *testing.T, a, b *testguest.Endpoint) {
		id := a.Write(b.Address(), 0, 8)
		time.Sleep(settle) // it is complete, and nobody has looked
		arm(t, a.SendCQ, false)
		wantEvents(t, "an arm after the completion", a.SendCQ, 1)
		a.Sent(id, "SUCCESS")
		wantEvents(t, "the completion is taken", a.SendCQ, 0)
	})
}

func TestASolicitedArmIsAnEventForSolicitedAndFailedCompletionsOnly(t *testing.T) {
	exact(t, testguest.Shape{}, func(t *testing.T, a, b *testguest.Endpoint) {
		send := func(flags uint32) {
			t.Helper()
			recv := b.Recv(0, 64)
			wr := a.Op("SEND", b.Address(), 0, 64)
			wr.Flags = flags
			a.Sent(a.Post(wr), "SUCCESS")
			b.Received(recv, "SUCCESS")
		}
		arm(t, b.RecvCQ, true)
		send(0)
		send(0)
		wantEvents(t, "messages that solicit nothing", b.RecvCQ, 0)
		send(a.P.G.Const("PVRDMA_SEND_SOLICITED"))
		wantEvents(t, "a solicited message", b.RecvCQ, 1)
		send(a.P.G.Const("PVRDMA_SEND_SOLICITED"))
		wantEvents(t, "another one without an arm", b.RecvCQ, 0)
		arm(t, b.RecvCQ, true)
		recv := b.Recv(0, 64)
		if err := b.QP.ToErr(); err != nil {
			t.Fatal(err)
		}
		b.Received(recv, "WR_FLUSH_ERR")
		wantEvents(t, "a flushed receive", b.RecvCQ, 1)
	})
}

// A program arms and polls at once, and on a mapped page the poll's doorbell hides the arm's. No wake-up may be lost
// for that.
func TestNoWakeUpIsLostBetweenArmAndPoll(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		a, b := d.connected(testguest.Shape{Mode: verbs.Events})
		began := time.Now()
		n := 0
		for ; n < 3000 && time.Since(began) < 2*time.Second; n++ {
			x, y := a, b
			if n%2 == 1 {
				x, y = b, a
			}
			recv := y.Recv(0, 64)
			id := x.Send(0, 64)
			y.Received(recv, "SUCCESS")
			x.Sent(id, "SUCCESS")
			if n%10 == 0 {
				time.Sleep(time.Duration(n%7) * 10 * time.Microsecond)
			}
		}
		stats, err := a.P.G.Dev.EventStats()
		if err != nil {
			t.Error(err)
		}
		t.Logf("%d messages, %v each, %d events of one guest", n, time.Since(began)/time.Duration(n), stats.CQEvents)
		if n < 200 {
			t.Errorf("%d messages in %v: something waits for a timer", n, time.Since(began))
		}
	})
}

// The guest's handler is held up while more notifications come than its ring holds.
func TestNotificationsThatFindNoRoomAreKept(t *testing.T) {
	exact(t, testguest.Shape{Depth: 64}, func(t *testing.T, a, b *testguest.Endpoint) {
		other, err := a.P.CreateCQ(16)
		if err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		a.P.G.Dev.SetCQHandler(other.Handle, func() { <-release })
		i := a.QP.Init
		i.SendCQ, i.RecvCQ = other, other
		qp, err := a.PD.CreateQP(i)
		if err != nil {
			t.Fatal(err)
		}
		arm(t, other, false)
		tune := *a.Shape.Tuning
		if err := qp.ToInit(tune); err != nil {
			t.Fatal(err)
		}
		if err := qp.PostRecv(verbs.RecvWR{}); err != nil {
			t.Fatal(err)
		}
		if err := qp.ToErr(); err != nil { // the flush is the event that holds the handler up
			t.Fatal(err)
		}
		for range 2100 {
			arm(t, a.SendCQ, false)
			a.Sent(a.Write(b.Address(), 0, 8), "SUCCESS")
		}
		close(release)
		if events(a.SendCQ, 1) == 0 {
			t.Error("no event after the handler went on")
		}
		for a.SendCQ.WaitEvent(50*settle) == nil { // those that the ring held, and those that were kept
		}
		arm(t, a.SendCQ, false)
		a.Sent(a.Write(b.Address(), 0, 8), "SUCCESS")
		wantEvents(t, "an arm afterwards", a.SendCQ, 1)
		if _, err := a.P.G.Dev.EventStats(); err != nil {
			t.Error(err)
		}
		if err := qp.Destroy(); err != nil {
			t.Error(err)
		}
		if err := other.Destroy(); err != nil {
			t.Error(err)
		}
	})
}

func TestACompletionQueueThatOverflowsIsReportedAndNothingIsOverwritten(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		n := d.neighbour()
		a := d.guest("a").Open().Endpoint(testguest.Shape{Depth: 64, CQE: 16})
		a.ConnectTo(a.Address())
		var ids []uint64
		for range 40 {
			ids = append(ids, a.Write(a.Address(), 0, 8))
		}
		for {
			e, err := a.P.G.Dev.WaitAsync(testguest.Patience)
			if err != nil {
				t.Fatalf("CQ_ERR: %v", err)
			}
			if e.Type == a.P.G.Const("PVRDMA_EVENT_CQ_ERR") {
				if e.Info != a.SendCQ.Handle {
					t.Errorf("CQ_ERR of queue %d, want %d", e.Info, a.SendCQ.Handle)
				}
				break
			}
		}
		a.StateIs("ERR")
		for _, id := range ids[:16] {
			a.Sent(id, "SUCCESS")
		}
		n.check()
	})
}
