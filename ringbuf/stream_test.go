// SPDX-License-Identifier: Apache-2.0

package ringbuf_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/pvrdmad/pvrdmad/ringbuf"
)

// letter is an element larger than a word that says who sent it.
type letter struct {
	from int
	seq  uint64
	body [5]uint64
}

func write(from int, seq uint64) letter {
	return letter{from, seq, [5]uint64{seq, seq, seq, seq, seq}}
}

// Over a long time every element arrives once, in its producer's order and whole, and the race detector watches.
func TestElementsArriveOnceInOrderAndWhole(t *testing.T) {
	for _, n := range []int{1, 2, 64} {
		total := 300 * uint64(n)
		for _, producers := range []int{1, 2, 3} {
			m := must(ringbuf.NewMPSC[letter](n))
			t.Run(fmt.Sprintf("MPSC of %d, %d producers", n, producers), func(t *testing.T) {
				stream(t, m, n, producers, total)
			})
		}
		s := must(ringbuf.NewSPSC[letter](n))
		t.Run(fmt.Sprintf("SPSC of %d", n), func(t *testing.T) { stream(t, s, n, 1, total) })
	}
}

func stream(t *testing.T, q queue[letter], n, producers int, total uint64) {
	var all sync.WaitGroup
	defer all.Wait()
	for p := range producers {
		all.Go(func() { send(q, p, n, total) })
	}
	rng := rand.New(rand.NewPCG(2, uint64(n)))
	got, dst := make([]uint64, producers), make([]letter, n)
	for left := total * uint64(producers); left > 0; {
		k := q.PopBatch(dst[:1+rng.IntN(n)])
		for _, e := range dst[:k] {
			if want := write(e.from, got[e.from]+1); e != want {
				t.Errorf("got %v, want %v", e, want)
			}
			got[e.from]++
		}
		if left -= uint64(k); k == 0 {
			runtime.Gosched()
		}
	}
	if _, ok := q.Pop(); ok {
		t.Error("one more than was pushed")
	}
}

// send pushes total elements, in batches of random sizes.
func send(q queue[letter], from, n int, total uint64) {
	rng := rand.New(rand.NewPCG(1, uint64(from)))
	vs := make([]letter, n)
	for seq := uint64(1); seq <= total; {
		k := min(uint64(1+rng.IntN(n)), total-seq+1)
		for i := range vs[:k] {
			vs[i] = write(from, seq+uint64(i))
		}
		did := q.PushBatch(vs[:k])
		if seq += uint64(did); did == 0 {
			runtime.Gosched()
		}
	}
}
