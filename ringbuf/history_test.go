// SPDX-License-Identifier: Apache-2.0

package ringbuf_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
)

const (
	// histories is how many histories of overlapping goroutines each subject is checked with, at each GOMAXPROCS.
	histories = 2500
	// soon is within how many of them a fault must show.
	soon = 250
	// leastOverlap is the share of a subject's steps that must overlap one of another goroutine, in percent.
	leastOverlap = 30
)

// Every history that goroutines can produce is one that a queue could have produced that does one thing at a time.
func TestHistoriesOfOverlappingGoroutinesAreLinearizable(t *testing.T) {
	for _, procs := range []int{1, 2} {
		for _, s := range slices.Concat(threadSubjects(), sharedSubjects()) {
			t.Run(fmt.Sprintf("%s, GOMAXPROCS %d", s.name, procs), func(t *testing.T) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
				checkHistories(t, s)
			})
		}
	}
}

func checkHistories(t *testing.T, s subject) {
	checked, steps, overlap := 0, 0, 0
	for seed := uint64(1); checked < histories; seed++ {
		if seed > 2*histories {
			t.Fatalf("only %d of %d histories have overlapping goroutines", checked, seed-1)
		}
		h := s.record(seed)
		if !h.linearizable() {
			t.Fatalf("history %d is not linearizable: %v", seed, h)
		}
		steps += len(h.steps)
		overlap += h.overlapping
		if h.overlapping != 0 { // a sequential history proves nothing
			checked++
		}
	}
	share := 100 * overlap / steps
	t.Logf("%d histories, %d steps, %d%% of them overlap", checked, steps, share)
	if share < leastOverlap {
		t.Errorf("%d%% of the steps overlap, too few to prove anything: want %d%%", share, leastOverlap)
	}
}
