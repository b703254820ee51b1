// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// zero sets the indices of both rings to 0, as the driver does when it has the answer to a move to RESET.
func (q *guestQP) zero() {
	q.t.Helper()
	q.sprod, q.rprod = 0, 0
	for _, off := range []uint64{txProdTail, txConsHead, rxProdTail, rxConsHead} {
		q.store32(q.at(off), 0)
	}
}

// reset moves the queue pair to RESET.
func (q *guestQP) reset() {
	q.t.Helper()
	q.modify(hostverbs.StateReset)
	q.zero()
}

// advance brings the send ring's index to n.
func (q *guestQP) advance(page, n uint32) {
	q.t.Helper()
	for q.sprod != n {
		q.postSends(0)
		q.ring(page, abi.UARQPSend)
		q.g.rig.settle()
	}
	q.engine.taken()
}

func TestResetStartsBothRingsAnew(t *testing.T) {
	r, g, q, _ := polledCQ(t, 8)
	q.advance(userPage, 12)
	q.postRecv(1)
	q.postRecv(2)
	var wr hostverbs.RecvWR
	_, _ = q.engine.h.PullRecv(&wr)
	q.reset()
	q.modify(hostverbs.StateRTS)
	q.postSends(21, 22)
	q.postRecv(23)
	q.ring(userPage, abi.UARQPSend)
	r.settle()
	if diff := cmp.Diff([]uint64{21, 22}, ids(q.engine.taken())); diff != "" {
		t.Errorf("the engine took (-want +got):\n%s", diff)
	}
	if ok, err := q.engine.h.PullRecv(&wr); !ok || err != nil || wr.WRID != 23 {
		t.Errorf("pulled %v, %v, %d", ok, err, wr.WRID)
	}
	if len(g.seen.violations()) != 0 {
		t.Errorf("violations %v", g.seen.violations())
	}
}

// TestARingIsNotLookedAtBetweenResetAndItsAnswer: the guest sets its indices to 0 only when it has been answered. Until
// then they are those of the time before.
func TestARingIsNotLookedAtBetweenResetAndItsAnswer(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	all := manyQPs(g, userPage, 2)
	q, neighbour := all[0], all[1]
	q.advance(userPage, 12)
	q.modify(hostverbs.StateReset)
	neighbour.ring(userPage, abi.UARQPSend) // its word makes the worker sweep all queue pairs of the page
	r.settle()
	q.ring(userPage, abi.UARQPSend|abi.UARQPRecv)
	r.settle()
	q.engine.h.SendReady()
	r.settle()
	if a := g.notifier.asyncs(); len(a) != 0 || q.engine.failed() != 0 {
		t.Errorf("events %v, failed %d times", a, q.engine.failed())
	}
	q.zero()
	q.modify(hostverbs.StateInit)
	q.modify(hostverbs.StateRTS)
	q.postSends(31)
	q.ring(userPage, abi.UARQPSend)
	r.settle()
	if got := ids(q.engine.taken()); len(got) != 1 || got[0] != 31 {
		t.Errorf("the engine took %v after the reset", got)
	}
}

// TestAQueuePairIsNotFailedOnItsWayToReset: what had gone wrong before would otherwise move it from RESET to ERR behind the
// guest's back.
func TestAQueuePairIsNotFailedOnItsWayToReset(t *testing.T) {
	r, g, q, _ := polledCQ(t, 8)
	q.store32(q.at(txProdTail), 0xffffffff)
	q.ring(userPage, abi.UARQPSend)
	q.engine.afterModify = func() { r.settle() } // the worker runs while the command does
	q.modify(hostverbs.StateReset)
	q.engine.afterModify = nil
	q.zero()
	r.settle()
	if q.engine.state() != hostverbs.StateReset {
		t.Errorf("the engine's queue pair is in %v after a reset", q.engine.state())
	}
	q.modify(hostverbs.StateInit)
	q.modify(hostverbs.StateRTS)
	q.postSends(1)
	q.ring(userPage, abi.UARQPSend)
	r.settle()
	if got := ids(q.engine.taken()); len(got) != 1 {
		t.Errorf("the engine took %v", got)
	}
	if diff := cmp.Diff([]asyncRecord{{abi.EventQPFatal, q.handle}}, g.notifier.asyncs()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestAResetThatIsRefusedFailsTheBrokenQueuePairAfterAll(t *testing.T) {
	r, g, q, _ := polledCQ(t, 8)
	q.store32(q.at(txProdTail), 0xffffffff)
	q.ring(userPage, abi.UARQPSend)
	r.engine.refuseWith("Modify", errBadIndex)
	q.engine.afterModify = func() { r.settle() } // the worker runs while the command does
	if _, err := g.exec(q.modifyReq(hostverbs.StateReset)); err == nil {
		t.Fatal("the reset was not refused")
	}
	q.engine.afterModify = nil
	r.engine.refuseWith("Modify", nil)
	r.settle()
	if q.engine.failed() != 1 {
		t.Errorf("failed %d times, want once", q.engine.failed())
	}
}

// TestAQueuePairThatLostItsCompletionQueueDoesNotLeaveReset: its completions would go nowhere, and nobody would be told.
func TestAQueuePairThatLostItsCompletionQueueDoesNotLeaveReset(t *testing.T) {
	for name, lose := range map[string]struct {
		how  func(g *guest, c *guestCQ)
		want unix.Errno
	}{
		"destroyed": {func(g *guest, c *guestCQ) {
			g.must(&abi.CmdDestroyCQReq{Hdr: hdr(abi.CmdDestroyCQ), CQHandle: c.handle}, nil)
		}, unix.EFAULT},
		"failed": {func(_ *guest, c *guestCQ) { c.dev().fail() }, unix.EIO},
	} {
		t.Run(name, func(t *testing.T) {
			r, g, q, c := polledCQ(t, 8)
			q.reset()
			lose.how(g, c)
			r.settle()
			if q.engine.failed() != 0 {
				t.Error("a queue pair in RESET has failed")
			}
			g.refused(q.modifyReq(hostverbs.StateInit), lose.want)
			q.modify(hostverbs.StateErr)
		})
	}
}

func TestAQueuePairThatLosesItsCompletionQueueOnItsWayOutOfResetFails(t *testing.T) {
	r, _, q, c := polledCQ(t, 8)
	q.reset()
	q.engine.afterModify = func() {
		c.dev().fail() // the worker runs while the command does
		r.settle()
	}
	q.modify(hostverbs.StateInit)
	q.engine.afterModify = nil
	r.settle()
	if q.engine.failed() != 1 {
		t.Errorf("failed %d times, want once", q.engine.failed())
	}
}

// unpluggedQP returns a queue pair in RTS whose rings' memory was taken away. Nothing has looked at them since.
func unpluggedQP(t *testing.T) (r *rig, g *guest, q *guestQP) {
	t.Helper()
	r = newRig(t)
	g = r.newGuest()
	ctx, pd := g.user(userPage)
	c := g.createCQ(ctx, 8)
	g.inUpperHalf(func() { q = g.createQP(pd, c, c) })
	q.modify(hostverbs.StateRTS)
	g.unplug()
	return r, g, q
}

func TestAQueuePairWhoseMemoryIsGoneStaysDeadThroughAReset(t *testing.T) {
	r, g, q := unpluggedQP(t)
	q.ring(userPage, abi.UARQPSend)
	r.settle()
	q.modify(hostverbs.StateReset)
	g.refused(q.modifyReq(hostverbs.StateRTS), unix.EFAULT)
	q.ring(userPage, abi.UARQPSend)
	r.settle()
	var wr hostverbs.RecvWR
	if ok, err := q.engine.h.PullRecv(&wr); ok || err != nil {
		t.Errorf("pulled %v, %v", ok, err)
	}
	if diff := cmp.Diff([]asyncRecord{{abi.EventQPFatal, q.handle}}, g.notifier.asyncs()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if g.seen.violations()[BadMemory] != 1 || len(g.notifier.failures()) != 0 {
		t.Errorf("violations %v, failures %v", g.seen.violations(), g.notifier.failures())
	}
}

func TestMemoryThatGoesBetweenTwoLooksEndsTheQueuePair(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	ctx, pd := g.user(userPage)
	c := g.createCQ(ctx, 8)
	var q *guestQP
	g.inUpperHalf(func() { q = g.createQP(pd, c, c) })
	q.modify(hostverbs.StateRTS)
	q.postRecv(1)
	q.postRecv(2)
	var wr hostverbs.RecvWR
	_, _ = q.engine.h.PullRecv(&wr) // looks at the index, which says that there are two
	r.worker.show()
	g.unplug()
	if ok, err := q.engine.h.PullRecv(&wr); ok || err != nil {
		t.Errorf("pulled %v, %v; the engine is to drop nothing", ok, err)
	}
	r.settle()
	want := []asyncRecord{{abi.EventQPFatal, q.handle}}
	if diff := cmp.Diff(want, g.notifier.asyncs()); diff != "" || q.engine.failed() != 1 {
		t.Errorf("failed %d times, events (-want +got):\n%s", q.engine.failed(), diff)
	}
}
