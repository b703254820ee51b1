// SPDX-License-Identifier: Apache-2.0

//go:build vm

package spine

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/bed"
	"github.com/pvrdmad/pvrdmad/tests/vm/harness"
	"github.com/pvrdmad/pvrdmad/tests/vm/stage"
)

// latestKill is how long after its start a program is killed at the latest: it has begun to send by then.
const latestKill = 1500 * time.Millisecond

// TestAProgramThatIsKilledAtAnyMomentLeavesTheDeviceClean kills one of two programs that exchange data, at a random moment
// from before it has opened the device until long after it has begun to send. The guest's kernel then takes away what it had.
func TestAProgramThatIsKilledAtAnyMomentLeavesTheDeviceClean(t *testing.T) {
	w := makeWorld(t, bed.Options{})
	w.LoadDrivers(t)
	before := w.Objects(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	sending := 0
	for round := range stage.Count(25, 500) {
		if w.killOne(t, round%2, time.Duration(rng.Int64N(int64(latestKill))), before) {
			sending++
		}
		w.CheckObjects(t, before)
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
	t.Logf("%d times both programs had a queue pair", sending)
	if sending == 0 {
		t.Error("no program was killed while it had a queue pair")
	}
	w.pvcheck(t, "-n 200")
	w.CheckObjects(t, before)
	w.CheckKernelLogs(t)
	w.CheckDaemon(t)
}

// killOne starts a payload check and kills one side of it after a while. It says whether both had a queue pair then: the
// other side then finds out by itself that it is alone; else it may wait for a connection, and is killed too.
func (w *world) killOne(t *testing.T, victim int, after time.Duration, before map[string]uint64) (both bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Slow*time.Minute)
	defer cancel()
	server, client := w.StartPvcheck(t, ctx, aAndB, "-t 600")
	sides := []*harness.Script{server, client}
	time.Sleep(after)
	both = w.queuePairs(t, before) == 2
	if err := sides[victim].Kill(); err != nil {
		t.Fatal(err)
	}
	other := sides[1-victim]
	if !both {
		_ = other.Kill() // it may have ended
	}
	stage.Wait(t, ctx, sides[victim])
	if r := stage.Wait(t, ctx, other); both && r.Status != stage.CheckLost {
		t.Errorf("the other side ended with status %d, want %d (lost)\n%s%s", r.Status, stage.CheckLost, r.Stdout, r.Stderr)
	}
	return both
}

// queuePairs is how many guests have more queue pairs than before.
func (w *world) queuePairs(t *testing.T, before map[string]uint64) (n int) {
	t.Helper()
	for series, count := range w.Objects(t) {
		if strings.Contains(series, `type="qp"`) && count > before[series] {
			n++
		}
	}
	return n
}
