// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// TestCompletionsOfSeveralQueuePairsAreShownTogetherUnlessOneTookLong: a store of the index takes the line from the program that
// looks at it, but no completion waits for a long message of another queue pair.
func TestCompletionsOfSeveralQueuePairsAreShownTogetherUnlessOneTookLong(t *testing.T) {
	const many = sendBatch + 4
	for name, c := range map[string]struct {
		long int // this queue pair's message, counted from 0, has 16 KiB
		want []uint32
	}{
		"all short": {-1, []uint32{0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 17, 17, 17}},
		"one long":  {2, []uint32{0, 1, 1, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 19}},
	} {
		t.Run(name, func(t *testing.T) {
			// Arrange: queue pairs that share a completion queue, each with one request.
			r := newRig(t)
			g := r.newGuest()
			pd, cq := g.createPD(0), g.createCQ(0, 64)
			var seen []uint32
			var qps []*guestQP
			for i := range many {
				q := g.createQP(pd, cq, cq)
				q.modify(hostverbs.StateRTS)
				q.engine.beforePost = func() {
					seen = append(seen, cq.unread())
					if err := q.engine.h.CompleteSend(&hostverbs.WC{WRID: uint64(i)}); err != nil {
						t.Error(err)
					}
				}
				length := uint32(64)
				if i == c.long {
					length = 16 << 10
				}
				q.putSend(sendWQE(abi.SendWQEHdr{WRID: 1, NumSGE: 1}, nil, abi.SGE{Addr: 1, Length: length, LKey: 1}))
				q.publishSends()
				qps = append(qps, q)
			}

			// Act
			for _, q := range qps {
				q.ring(0, abi.UARQPSend)
			}
			r.settle()

			// Assert
			if diff := cmp.Diff(c.want, seen); diff != "" {
				t.Errorf("completions that could be seen when each queue pair had its turn (-want +got):\n%s", diff)
			}
			if n := cq.unread(); n != many {
				t.Errorf("%d completions at the end, want %d", n, many)
			}
		})
	}
}

// TestAnArmShowsNoCompletionBeforeTheSlotOfItsReceiveIsFree: completions wait to be shown together, and an arm that comes
// meanwhile shows them at once, and announces them once.
func TestAnArmShowsNoCompletionBeforeTheSlotOfItsReceiveIsFree(t *testing.T) {
	for name, arm := range map[string]uint32{"for any": abi.UARCQArm, "for solicited ones": abi.UARCQArmSol} {
		t.Run(name, func(t *testing.T) {
			// Arrange: the second queue pair's message is received by a third, in the visit in which its queue is armed.
			r := newRig(t)
			g := r.newGuest()
			pd, sends, received := g.createPD(0), g.createCQ(0, 8), g.createCQ(0, 8)
			first, second, to := g.createQP(pd, sends, sends), g.createQP(pd, sends, sends), g.createQP(pd, received, received)
			for _, q := range []*guestQP{first, second, to} {
				q.modify(hostverbs.StateRTS)
			}
			to.postRecv(1)
			r.settle()
			second.engine.beforePost = func() {
				var wr hostverbs.RecvWR
				if ok, err := to.engine.h.PullRecv(&wr); !ok || err != nil {
					t.Errorf("pulled %t, %v", ok, err)
				}
				wc := hostverbs.WC{WRID: wr.WRID, Opcode: hostverbs.WCOpRecv, Solicited: true}
				if err := to.engine.h.CompleteRecv(&wc); err != nil {
					t.Error(err)
				}
			}
			events := 0
			g.notifier.onCQ = func() {
				events++
				if got := to.load32(to.at(rxConsHead)); got != 1 || received.unread() != 1 {
					t.Errorf("a program that is told of %d completions sees index %d, want 1", received.unread(), got)
				}
			}
			for _, q := range []*guestQP{first, second} {
				q.putSend(sendWQE(abi.SendWQEHdr{WRID: 1, NumSGE: 1}, nil, abi.SGE{Addr: 1, Length: 8, LKey: 1}))
				q.publishSends()
			}

			// Act
			first.ring(0, abi.UARQPSend)
			second.ring(0, abi.UARQPSend)
			received.ring(0, arm)
			received.ring(0, arm) // for the next one
			r.settle()

			// Assert
			if events != 1 {
				t.Errorf("%d events, want 1", events)
			}
		})
	}
}

// TestWhoRingsDuringASweepWaitsForNoneOfIt: a program with one message under way rings again as soon as it has its completion,
// while the worker looks whether its first word has hidden another.
func TestWhoRingsDuringASweepWaitsForNoneOfIt(t *testing.T) {
	// Arrange: a program with many queue pairs. The first sends, and once more when the sweep looks at the second, which has a
	// receive; the last has a message that no word names.
	r := newRig(t)
	r.engine.attr.MaxQP = 1024
	g := r.newGuest()
	qps := manyQPs(g, userPage, sweepAlways+5)
	first, second, last := qps[0], qps[1], qps[len(qps)-1]
	var seen []uint32
	for _, q := range []*guestQP{first, last} {
		q.engine.beforePost = func() {
			seen = append(seen, q.dev().sendCQ.shown)
			if err := q.engine.h.CompleteSend(&hostverbs.WC{WRID: 1}); err != nil {
				t.Error(err)
			}
		}
	}
	second.engine.onRecv = func() {
		second.engine.onRecv = nil
		first.postSends(2)
		first.ring(userPage, abi.UARQPSend)
	}
	second.postRecv(1)
	last.postSends(1)

	// Act
	first.postSends(1)
	first.ring(userPage, abi.UARQPSend)
	r.settle()

	// Assert
	if diff := cmp.Diff([]uint32{0, 1, 2}, seen); diff != "" {
		t.Errorf("completions that could be seen when each message was carried out (-want +got):\n%s", diff)
	}
}
