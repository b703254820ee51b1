// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"fmt"
	"runtime"
	"testing"
	"weak"

	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// outlived makes queues that a queue pair uses when they are destroyed, destroys that one too, and returns what the device may
// not hold on to. The worker makes no pass.
func outlived(g *guest, n int) (gone []weak.Pointer[completionQueue], shared []weak.Pointer[sharedReceiveQueue]) {
	for i := range n {
		ctx, pd := g.user(userPage)
		before := g.next
		c, s := g.createCQ(ctx, 4), g.createSRQ(pd, 4)
		q := g.createQP(pd, c, c, withSRQ(s))
		gone, shared = append(gone, weak.Make(c.dev())), append(shared, weak.Make(s.dev()))
		if i%2 == 0 {
			c.dev().fail() // and is destroyed as well
		}
		g.must(&abi.CmdDestroyCQReq{Hdr: hdr(abi.CmdDestroyCQ), CQHandle: c.handle}, nil)
		g.must(s.destroyReq(), nil)
		g.must(q.destroyReq(), nil)
		g.must(&abi.CmdDestroyUCReq{Hdr: hdr(abi.CmdDestroyUC), CtxHandle: ctx}, nil)
		g.next = before
	}
	return gone, shared
}

// TestNothingIsKeptOfAQueueThatIsGoneWithItsQueuePairs: a guest makes and destroys them faster than the worker finds out which
// queue pairs were to fail with them.
func TestNothingIsKeptOfAQueueThatIsGoneWithItsQueuePairs(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	const n = 200
	cqs, srqs := outlived(g, n)
	runtime.GC()
	kept := 0
	for i := range cqs {
		if cqs[i].Value() != nil || srqs[i].Value() != nil {
			kept++
		}
	}
	if kept != 0 {
		t.Errorf("of %d queues that were destroyed %d are kept", n, kept)
	}
	r.settle()
}

// TestQueuePairsFailOnceHoweverManyOfTheirQueuesDo: the second queue fails while the worker looks for the queue pairs of the
// first, and both are destroyed in the end.
func TestQueuePairsFailOnceHoweverManyOfTheirQueuesDo(t *testing.T) {
	const n = 2*passLooks + 1
	for _, steps := range []int{0, 1, 2, 3, 100} {
		t.Run(fmt.Sprintf("after %d passes", steps), func(t *testing.T) {
			r := newRig(t)
			r.engine.attr.MaxQP = 4 * n
			g := r.newGuest()
			ctx, pd := g.user(userPage)
			one, two, other := g.createCQ(ctx, 8), g.createCQ(ctx, 8), g.createCQ(ctx, 8)
			var pairs []*guestQP
			for _, send := range []*guestCQ{one, two} {
				q := g.createQP(pd, send, two)
				q.modify(hostverbs.StateRTS)
				pairs = append(pairs, q)
			}
			all := append(twins(pairs[0], n), twins(pairs[1], n)...)
			bystander := g.createQP(pd, other, other)
			r.settle()

			one.dev().fail()
			for range steps {
				r.step()
			}
			two.dev().fail()
			for _, c := range []*guestCQ{one, two} {
				g.must(&abi.CmdDestroyCQReq{Hdr: hdr(abi.CmdDestroyCQ), CQHandle: c.handle}, nil)
			}
			r.settle()

			for _, q := range all {
				if k := q.engine.(*fakeQP).failed(); k != 1 {
					t.Fatalf("queue pair %d failed %d times", q.handle, k)
				}
			}
			if bystander.engine.failed() != 0 {
				t.Error("a queue pair failed without its queues")
			}
		})
	}
}
