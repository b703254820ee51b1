// SPDX-License-Identifier: Apache-2.0

package ringbuf_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
)

// A checker that never rejected anything proves nothing: each of these rings has one fault, and a history of it must be
// rejected within a tenth of the histories that the rings themselves are checked with.
func TestARingWithAFaultIsRejected(t *testing.T) {
	faults := []struct {
		name  string
		fault fault
		// only is the subject that can have the fault, all of them if empty.
		only string
	}{
		{name: "the index is stored before the element", fault: indexBeforeElement},
		{name: "an element is released before it is read", fault: releaseBeforeRead},
		{name: "a full ring is overlooked", fault: fullIsOverlooked},
		{name: "a ring is believed empty without a look", fault: emptyIsBelieved},
		{name: "the index runs over all slots", fault: indexRunsOverAllSlots, only: "event ring"},
		{name: "a place is claimed in two steps", fault: claimInTwoSteps, only: "MPSC by hand"},
	}
	for _, procs := range []int{1, 2} {
		for _, f := range faults {
			for _, s := range append(faultySubjects(f.fault), handSubject(f.fault)) {
				if (f.only != "" && f.only != s.name) || (f.fault == emptyIsBelieved && s.name == "MPSC by hand") {
					continue
				}
				t.Run(fmt.Sprintf("%s, %s, GOMAXPROCS %d", f.name, s.name, procs), func(t *testing.T) {
					defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
					for seed := uint64(1); seed <= soon; seed++ {
						if !s.record(seed).linearizable() {
							t.Logf("history %d is rejected", seed)
							return
						}
					}
					t.Errorf("%d histories are accepted", soon)
				})
			}
		}
	}
}

// The rings that faults are planted in are right without one.
func TestTheRingsThatFaultsArePlantedInAreNoFaultThemselves(t *testing.T) {
	for _, s := range append(faultySubjects(wordsOnly), handSubject(wordsOnly)) {
		t.Run(s.name, func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
			for seed := uint64(1); seed <= histories/10; seed++ {
				if h := s.record(seed); !h.linearizable() {
					t.Fatalf("history %d is not linearizable: %v", seed, h)
				}
			}
		})
	}
}

// handMPSC is a queue for several producers to plant faults in. All its words are atomic.
type handMPSC struct {
	tail, head   atomic.Uint64
	filled, body []atomic.Uint64
	popped       uint64
	fault        fault
}

func handSubject(f fault) subject {
	return subject{name: "MPSC by hand", producers: 3, make: func(rng *rand.Rand) (testRing, uint32) {
		n := randomSize(rng)
		return &handMPSC{filled: make([]atomic.Uint64, n), body: make([]atomic.Uint64, n), fault: f}, n
	}}
}

func (q *handMPSC) produce(c *client, n int) {
	for ok := true; ok && n > 0; n-- {
		c.timed(func() []step {
			ok = q.push(c, element(c.id, c.next))
			return []step{c.pushed(ok), c.shown()}
		})
	}
}

func (q *handMPSC) push(c *client, v value) bool {
	size := uint64(len(q.body))
	for {
		tail := q.tail.Load()
		head := q.head.Load()
		if head > tail {
			continue
		}
		if tail-head == size && q.fault != fullIsOverlooked {
			return false
		}
		if q.fault == claimInTwoSteps {
			c.pause()
			q.tail.Store(tail + 1)
		} else if !q.tail.CompareAndSwap(tail, tail+1) {
			continue
		}
		if q.fault == indexBeforeElement {
			q.filled[tail%size].Store(tail + 1)
			c.pause()
		}
		q.body[tail%size].Store(uint64(v))
		q.filled[tail%size].Store(tail + 1)
		return true
	}
}

func (q *handMPSC) consume(c *client, n int) {
	for ok := true; ok && n > 0; n-- {
		c.timed(func() []step {
			var v value
			v, ok = q.pop(c)
			steps := []step{c.poppedOne(v, ok)}
			if q.fault == releaseBeforeRead {
				steps = append(steps, c.released())
			}
			return steps
		})
	}
	c.timed(func() []step {
		q.head.Store(q.popped)
		return []step{c.released()}
	})
}

func (q *handMPSC) pop(c *client) (value, bool) {
	at := q.popped % uint64(len(q.body))
	if q.filled[at].Load() != q.popped+1 {
		return 0, false
	}
	q.popped++
	if q.fault == releaseBeforeRead {
		q.head.Store(q.popped)
		c.pause()
	}
	return value(q.body[at].Load()), true
}
