// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// One program has more queue pairs with more requests than many passes have turns for; another rings twice, and the second
// doorbell hides the first.
func TestABusyProgramDoesNotHoldUpTheHiddenDoorbellsOfAnother(t *testing.T) {
	r := newRig(t)
	r.engine.attr.MaxQP = 1024
	g := r.newGuest()
	busy, _ := g.rcQP(userPage, 8)
	const backlog = 7
	all := twins(busy, 8*passShare)
	hidden, c := g.rcQP(userPage+1, 8)
	loud := g.createQP(hidden.req.PDHandle, c, c)
	loud.modify(hostverbs.StateRTS)
	r.settle()
	passes := 0
	visit := func(n int) {
		for range n {
			passes++
			r.worker.visit(g.dev, int64(passes))
		}
	}
	inLine := func(q *guestQP) bool { return q.dev().queued || q.consumed() == 1 }
	r.worker.Do(func() {
		for i := range backlog { // of each twin: they have their memory in common
			busy.postSends(uint64(i))
		}
		busy.ring(userPage, abi.UARQPSend)
		visit(2 * len(all) / sweepSlice) // the sweep has found all of them
		for _, q := range []*guestQP{hidden, loud} {
			q.postSends(7)
			q.ring(userPage+1, abi.UARQPSend)
		}
		visit(3)
		if n := g.dev.ready.len(); !inLine(hidden) || !inLine(loud) || n < passShare {
			t.Errorf("the two queue pairs that were rung wait for their turns: %v and %v, among %d", inLine(hidden), inLine(loud), n)
		}
		visit(2 * backlog * len(all) / passShare)
	})
	if hidden.consumed() != 1 || loud.consumed() != 1 {
		t.Errorf("of the two queue pairs that were rung %d and %d requests were taken, want 1 and 1", hidden.consumed(), loud.consumed())
	}
}
