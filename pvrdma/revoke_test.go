// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// taking is a way in which memory is taken from under an object.
type taking struct {
	name string
	// below is how many pages of the object lie in memory that stays.
	below uint64
	// instead is mapped in the place of what was taken, if there is any.
	instead guestmem.Prot
}

func takings() []taking {
	return []taking{
		{"unmapped", 0, 0},
		{"unmapped in part", 1, 0},
		{"other memory in its place", 0, rw},
		{"other memory in the place of a part", 1, rw},
		{"read-only in its place", 0, guestmem.ProtRead},
	}
}

// placer returns a function that has what make allocates where it is going to be taken away. An object in part in memory
// that stays can be the first one only.
func (w taking) placer(g *guest) func(make func()) {
	next := upperHalf - w.below*abi.PageSize
	return func(make func()) {
		before := g.next
		g.next = next
		make()
		next, g.next = g.next, before
	}
}

// from takes the memory away. Nothing of the guest runs meanwhile.
func (w taking) from(g *guest) {
	g.t.Helper()
	g.unplug()
	if w.instead != 0 {
		if err := g.space.MapBytes(upperHalf, make([]byte, guestPages/2*abi.PageSize), w.instead); err != nil {
			g.t.Fatal(err)
		}
	}
	g.dev.EndRevoked()
}

// underObject is what is made in memory that is taken away, and what comes of it.
type underObject struct {
	name string
	// make makes the object and returns the queue pair that is lost with it.
	make func(g *guest, place func(func())) (*guestQP, *guestCQ)
	// events are those of the objects that were lost, by "qp" and "cq".
	events []string
	// parked says that the queue pair is in RESET, where the engine cannot fail it.
	parked bool
}

func underObjects() []underObject {
	return []underObject{
		{name: "an idle queue pair", events: []string{"qp"}, make: func(g *guest, place func(func())) (q *guestQP, c *guestCQ) {
			ctx, pd := g.user(userPage)
			c = g.createCQ(ctx, 8)
			place(func() { q = g.createQP(pd, c, c) })
			q.modify(hostverbs.StateRTS)
			return q, c
		}},
		{name: "a queue pair of the kernel with requests posted", events: []string{"qp"}, make: func(g *guest, place func(func())) (q *guestQP, c *guestCQ) {
			pd := g.createPD(0)
			c = g.createCQ(0, 8)
			place(func() { q = g.createQP(pd, c, c) })
			q.modify(hostverbs.StateRTS)
			q.postRecv(1)
			q.postSends(2, 3)
			return q, c
		}},
		{name: "a queue pair in RESET", events: []string{"qp"}, parked: true, make: func(g *guest, place func(func())) (q *guestQP, c *guestCQ) {
			ctx, pd := g.user(userPage)
			c = g.createCQ(ctx, 8)
			place(func() { q = g.createQP(pd, c, c) })
			return q, c
		}},
		{name: "a completion queue", events: []string{"cq"}, make: func(g *guest, place func(func())) (q *guestQP, c *guestCQ) {
			ctx, pd := g.user(userPage)
			place(func() { c = g.createCQ(ctx, 8) })
			q = g.createQP(pd, c, c)
			q.modify(hostverbs.StateRTS)
			return q, c
		}},
		{name: "a completion queue with entries", events: []string{"cq"}, make: func(g *guest, place func(func())) (q *guestQP, c *guestCQ) {
			ctx, pd := g.user(userPage)
			place(func() { c = g.createCQ(ctx, 128) })
			q = g.createQP(pd, c, c)
			q.modify(hostverbs.StateRTS)
			_ = q.complete(hostverbs.WC{})
			return q, c
		}},
		{name: "both", events: []string{"cq", "qp"}, make: func(g *guest, place func(func())) (q *guestQP, c *guestCQ) {
			ctx, pd := g.user(userPage)
			place(func() { c = g.createCQ(ctx, 8) })
			place(func() { q = g.createQP(pd, c, c) })
			q.modify(hostverbs.StateRTS)
			return q, c
		}},
	}
}

func TestMemoryThatIsTakenEndsWhatLiesThereAndNothingElse(t *testing.T) {
	for _, o := range underObjects() {
		for _, w := range takings() {
			t.Run(o.name+", "+w.name, func(t *testing.T) {
				r := newRig(t)
				g := r.newGuest()
				other, _ := g.kernelQP(8)
				q, c := o.make(g, w.placer(g))
				r.settle()
				g.notifier.asyncs()

				w.from(g)

				var want []asyncRecord
				for _, e := range o.events {
					want = append(want, map[string]asyncRecord{
						"qp": {abi.EventQPFatal, q.handle}, "cq": {abi.EventCQErr, c.handle},
					}[e])
				}
				if diff := cmp.Diff(want, g.notifier.asyncs()); diff != "" {
					t.Errorf("events before anybody used it (-want +got):\n%s", diff)
				}
				r.settle()
				if o.parked == (q.engine.failed() == 1) || q.engine.failed() > 1 {
					t.Errorf("the engine's queue pair failed %d times", q.engine.failed())
				}
				g.dev.EndRevoked()
				q.ring(0, abi.UARQPSend|abi.UARQPRecv)
				c.ring(0, abi.UARCQArm)
				_ = q.complete(hostverbs.WC{})
				r.settle()
				if v := g.seen.violations(); v[BadMemory] != len(want) || len(v) != 1 {
					t.Errorf("violations %v, want one bad_memory for each object", v)
				}
				if len(g.notifier.asyncs()) != 0 || len(g.notifier.failures()) != 0 || other.engine.failed() != 0 {
					t.Errorf("failures %v, the other queue pair failed %d times", g.notifier.failures(), other.engine.failed())
				}
				other.postSends(9)
				other.ring(0, abi.UARQPSend)
				r.settle()
				if diff := cmp.Diff([]uint64{9}, ids(other.engine.taken())); diff != "" {
					t.Errorf("the other queue pair's requests (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestAQueuePairWithoutMemoryDoesNotLeaveReset: it would look as if it worked, and never complete a request.
func TestAQueuePairWithoutMemoryDoesNotLeaveReset(t *testing.T) {
	r, g, q := unpluggedQP(t)
	g.dev.EndRevoked()
	r.settle()
	q.modify(hostverbs.StateErr)
	q.modify(hostverbs.StateReset)
	for _, to := range []hostverbs.QPState{hostverbs.StateInit, hostverbs.StateRTR, hostverbs.StateRTS} {
		g.refused(q.modifyReq(to), unix.EFAULT)
	}
	q.modify(hostverbs.StateErr)
	g.must(q.destroyReq(), nil)
}

func TestNoQueuePairIsMadeForACompletionQueueWithoutMemory(t *testing.T) {
	g := newRig(t).newGuest()
	ctx, pd := g.user(userPage)
	good := g.createCQ(ctx, 8)
	var bad *guestCQ
	g.inUpperHalf(func() { bad = g.createCQ(ctx, 8) })
	g.unplug()
	g.dev.EndRevoked()
	g.refused(g.qpReq(pd, good, bad), unix.EFAULT)
	g.refused(g.qpReq(pd, bad, good), unix.EFAULT)
	g.createQP(pd, good, good)
}

func TestTheSharedMemoryThatStaysCostsNothingWhenOtherIsTaken(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	q, _ := g.rcQP(userPage, 8)
	g.unplug() // nothing lies there
	before := g.dev.revocations
	g.dev.EndRevoked()
	r.settle()
	if g.dev.revocations != before || q.engine.failed() != 0 || len(g.notifier.asyncs()) != 0 {
		t.Errorf("%d revocations, failed %d times", g.dev.revocations, q.engine.failed())
	}
}

func TestManyObjectsEndInBatchesUntilTheDeviceFails(t *testing.T) {
	g := newRig(t).newGuest()
	slots := make([]*int, 3*destroyBatch+1)
	for i := range slots {
		if i != 5 {
			slots[i] = new(i)
		}
	}
	even := func(x *int) bool { return *x%2 == 0 }
	ended := 0
	endBatches(g.dev, slots, even, func(*int) { ended++ })
	if want := (len(slots) + 1) / 2; ended != want {
		t.Errorf("%d objects ended, want %d", ended, want)
	}
	ended = 0
	endBatches(g.dev, slots, even, func(*int) {
		if ended++; ended == 70 {
			g.dev.fail(unix.EIO)
		}
	})
	if ended != 70 {
		t.Errorf("%d objects ended, 70 before the device failed", ended)
	}
	_ = g.dev.Reset()
	g.dev.EndRevoked() // of a device that is not active: nothing
}
