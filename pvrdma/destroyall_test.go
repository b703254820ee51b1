// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// TestWhatAProcessLeavesBehindKeepsItsMemoryUntilNoWorkerIsAtWorkOnIt looks when the engine begins to destroy, and when it has
// waited for other workers.
func TestWhatAProcessLeavesBehindKeepsItsMemoryUntilNoWorkerIsAtWorkOnIt(t *testing.T) {
	// Arrange
	r := newLiveRig(t)
	g := r.newGuest()
	before := g.books()
	ctx, pd := g.user(1)
	c := g.createCQ(ctx, 8)
	g.createQP(pd, c, c)
	for range 3 {
		g.createMR(pd, 2)
	}
	engine := r.engine.last()
	type look struct {
		pinned  int
		objects map[string]int
	}
	var looks []look
	engine.together = func() {
		if r.worker.isHere() {
			t.Error("the engine waits for other workers on a worker's thread, and two would wait for each other")
		}
		looks = append(looks, look{g.space.Stats().Pinned, engine.count()})
	}

	// Act
	g.must(&abi.CmdDestroyUCReq{Hdr: hdr(abi.CmdDestroyUC), CtxHandle: ctx}, nil)

	// Assert
	if len(looks) != 2 {
		t.Fatalf("the engine was told %d times that much ends at once, want once, before and after", len(looks))
	}
	if n := looks[0].objects; n["mr"] != 3 || n["qp"] != 1 {
		t.Errorf("before: %v objects, want 3 regions and a queue pair", n)
	}
	if n := looks[1].objects; n["mr"]+n["qp"]+n["cq"] != 0 {
		t.Errorf("%v objects are left", n)
	}
	if got, want := looks[1].pinned, 3*2; got < want {
		t.Errorf("%d pages are pinned while other workers may be at work on %d", got, want)
	}
	g.sameBooks(before)
}
