// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"bytes"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// echo makes the engine complete what is posted: each send, and a receive with it if there is one.
func (r *rig) echo() {
	r.engine.onProgress(func(int64) (worked bool, next int64) {
		r.engine.mu.Lock()
		contexts := r.engine.contexts
		r.engine.mu.Unlock()
		for _, c := range contexts {
			for _, q := range c.qps() {
				for _, wr := range q.taken() {
					worked = true
					_ = q.h.CompleteSend(&hostverbs.WC{WRID: wr.WRID})
					var recv hostverbs.RecvWR
					if ok, err := q.h.PullRecv(&recv); ok && err == nil {
						_ = q.h.CompleteRecv(&hostverbs.WC{WRID: recv.WRID, Opcode: hostverbs.WCOpRecv})
					}
				}
			}
		}
		return worked, 0
	})
}

// room reports whether both rings have room for a request.
func (q *guestQP) room() bool {
	return q.sprod != q.load32(q.at(txConsHead))^q.req.MaxSendWR && q.rprod != q.load32(q.at(rxConsHead))^q.req.MaxRecvWR
}

// talk posts sends and receives and polls until told to stop. It counts completions.
func talk(q *guestQP, c *guestCQ, stop *atomic.Bool, done *atomic.Int64) {
	for !stop.Load() {
		for q.room() && !stop.Load() {
			q.postRecv(1, abi.SGE{})
			q.postSends(2)
			q.ring(userPage, abi.UARQPSend|abi.UARQPRecv)
			c.ring(userPage, abi.UARCQPoll)
			done.Add(int64(len(c.poll())))
		}
		done.Add(int64(len(c.poll())))
	}
}

func TestAResetUnderTrafficEndsAllAccess(t *testing.T) {
	r := newLiveRig(t)
	r.echo()
	for round := range 10 {
		g := r.newGuest()
		q, c := g.rcQP(userPage, 64)
		var stop atomic.Bool
		var done atomic.Int64
		var wg sync.WaitGroup
		wg.Go(func() { talk(q, c, &stop, &done) })
		eventually(t, "some traffic", func() bool { return done.Load() > 50 })
		if err := g.dev.Reset(); err != nil {
			t.Fatal(err)
		}
		// The guest still writes; the device does not.
		stop.Store(true)
		wg.Wait()
		before := bytes.Clone(g.bytes)
		q.ring(userPage, abi.UARQPSend)
		g.dev.Doorbell(0, abi.UARQPOffset, abi.UARQPSend|q.handle)
		r.worker.Do(func() {})
		time.Sleep(2 * time.Millisecond)
		r.worker.Do(func() {})
		if !bytes.Equal(before, g.bytes) {
			t.Fatalf("round %d: the device wrote to the guest's memory after its reset", round)
		}
		if g.dev.Active() || g.space.Stats().Pinned != 0 || len(g.dev.polled) != 0 {
			t.Errorf("round %d: %d pages are pinned after the reset", round, g.space.Stats().Pinned)
		}
	}
}

func TestCommandsUnderTraffic(t *testing.T) {
	r := newLiveRig(t)
	r.echo()
	g := r.newGuest()
	q, c := g.rcQP(userPage, 64)
	ctx := q.dev().ctx.handle
	// The test's own allocations of guest memory are not for two goroutines: all that commands need is made before.
	cqReqs, qpReqs := make([]*abi.CmdCreateCQReq, 20), make([]*abi.CmdCreateQPReq, 20)
	for i := range cqReqs {
		cqReqs[i] = g.cqReq(ctx, 16)
		qpReqs[i] = g.qpReq(q.req.PDHandle, c, c)
	}
	var stop atomic.Bool
	var done atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() { talk(q, c, &stop, &done) })
	for i := range 40 {
		var cq abi.CmdCreateCQResp
		g.must(cqReqs[i%20], &cq)
		var qp abi.CmdCreateQPRespV2
		g.must(qpReqs[i%20], &qp)
		g.must(&abi.CmdModifyQPReq{
			Hdr: hdr(abi.CmdModifyQP), QPHandle: qp.QPHandle, AttrMask: 1, Attrs: abi.QPAttr{QPState: 3},
		}, nil)
		g.must(&abi.CmdDestroyQPReq{Hdr: hdr(abi.CmdDestroyQP), QPHandle: qp.QPHandle}, nil)
		g.must(&abi.CmdDestroyCQReq{Hdr: hdr(abi.CmdDestroyCQ), CQHandle: cq.CQHandle}, nil)
	}
	before := done.Load()
	eventually(t, "traffic goes on", func() bool { return done.Load() > before+100 })
	// The queue goes while completions come.
	g.must(&abi.CmdDestroyCQReq{Hdr: hdr(abi.CmdDestroyCQ), CQHandle: c.handle}, nil)
	stop.Store(true)
	wg.Wait()
	tail := c.load32(c.at(rxProdTail))
	q.ring(0, abi.UARQPSend)
	r.worker.Do(func() {})
	if c.load32(c.at(rxProdTail)) != tail {
		t.Error("a completion was written after the queue's destruction")
	}
	if len(g.notifier.failures()) != 0 {
		t.Errorf("failures %v", g.notifier.failures())
	}
}

// TestNoTrappedDoorbellIsLost sends one message at a time and waits for it, with a worker that sleeps for ever in between.
func TestNoTrappedDoorbellIsLost(t *testing.T) {
	r := newLiveRig(t)
	r.echo()
	g := r.trappingGuest()
	q, c := g.kernelQP(64)
	for i := range uint64(3000) {
		q.postSends(i)
		q.ring(0, abi.UARQPSend)
		for deadline := time.Now().Add(10 * time.Second); c.unread() == 0; {
			if time.Now().After(deadline) {
				t.Fatalf("message %d was lost", i)
			}
			if i%64 == 0 {
				time.Sleep(100 * time.Microsecond)
			}
		}
		if e := c.take(); e.WRID != i {
			t.Fatalf("completion of %d, want %d", e.WRID, i)
		}
	}
}

// TestNoSleeperIsForgotten is a program that arms, looks once more, and then waits for its event, while the word of its arm
// is overwritten at once by a POLL.
func TestNoSleeperIsForgotten(t *testing.T) {
	r := newLiveRig(t)
	r.echo()
	g := r.newGuest()
	q, c := g.rcQP(userPage, 64)
	for i := range uint64(300) {
		c.ring(userPage, abi.UARCQArm)
		c.ring(userPage, abi.UARCQPoll)
		if c.unread() != 0 {
			t.Fatal("a completion that nobody asked for")
		}
		q.postSends(i)
		q.ring(userPage, abi.UARQPSend)
		eventually(t, "the sleeper is woken", func() bool { return len(g.notifier.events()) == 1 })
		c.take()
	}
}

func TestResetReturnsTheEnginesError(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	g.kernelQP(8)
	r.engine.refuseWith("Context.Close", unix.EIO)
	wantErrno(t, g.dev.Reset(), unix.EIO)
	if g.dev.Active() || g.space.Stats().Pinned != 0 {
		t.Error("the device still holds memory")
	}
	if err := g.dev.Reset(); err != nil {
		t.Errorf("a second reset: %v", err)
	}
}

func TestAPanicOfTheEngineAtAResetLeavesNothingBehind(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	empty := g.books()
	g.rcQP(userPage, 8)
	r.engine.panicWith("Context.Close", "of the engine")
	func() {
		defer func() { _ = recover() }()
		_ = g.dev.Reset()
		t.Error("the panic did not reach the caller")
	}()
	r.engine.panicWith("Context.Close", nil)
	g.activate()
	g.sameBooks(empty)
}

func TestAResetDeviceStartsAnew(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	empty := g.books()
	q, c := g.rcQP(userPage, 8)
	c.ring(userPage, abi.UARCQArm)
	_ = q.complete(hostverbs.WC{})
	g.notifier.setRoom(0)
	r.step()
	q.engine.h.SendReady()
	if err := g.dev.Reset(); err != nil {
		t.Fatal(err)
	}
	g.activate()
	g.sameBooks(empty)
	g.notifier.setRoom(-1)
	g.notifier.events()
	r.after(time.Second)
	if worked, next := r.step(); worked || next != 0 || len(g.notifier.events()) != 0 {
		t.Errorf("a device without objects works: %v, %d", worked, next)
	}
	q2, _ := g.rcQP(userPage, 8)
	if q2.handle != q.handle {
		t.Errorf("the first handle is %d, was %d", q2.handle, q.handle)
	}
}

func TestDoorbellsFromBeforeAResetAreForgotten(t *testing.T) {
	r := newRig(t)
	g := r.trappingGuest()
	q, _ := g.rcQP(userPage, 8)
	q.ring(userPage, abi.UARQPSend) // and the worker makes no pass
	if err := g.dev.Reset(); err != nil {
		t.Fatal(err)
	}
	g.activate()
	before := g.dev.Counters().Doorbells
	r.settle()
	if n := g.dev.Counters().Doorbells - before; n != 0 {
		t.Errorf("%d doorbells of the time before were served", n)
	}
}
