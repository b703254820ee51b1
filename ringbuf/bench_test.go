// SPDX-License-Identifier: Apache-2.0

package ringbuf_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/ringbuf"
)

// Absolute times say more about the machine and its load than about a ring. So each benchmark measures, right before and
// right after itself, how long a cache line takes to another processor and back, and reports its own time in such round
// trips. The two threads of both are pinned to the same processors. "spread" is by how much the round trip itself
// changed: with more than 2 the ratio means nothing.

// lines is how many round trips of a cache line are timed.
const lines = 200_000

type line struct {
	_ [128]byte
	n atomic.Uint64
	_ [120]byte
}

// lineRoundTrip is the time that a cache line takes to the other processor and back.
func lineRoundTrip() time.Duration {
	var ping, pong line
	var all sync.WaitGroup
	all.Go(func() {
		defer pin(1)()
		for i := uint64(1); i <= lines; i++ {
			for ping.n.Load() != i {
			}
			pong.n.Store(i)
		}
	})
	defer pin(0)()
	start := time.Now()
	for i := uint64(1); i <= lines; i++ {
		ping.n.Store(i)
		for pong.n.Load() != i {
		}
	}
	took := time.Since(start)
	all.Wait()
	return took / lines
}

// inLines runs a benchmark between two measurements of the bound.
func inLines(b *testing.B, name string, run func(b *testing.B)) {
	b.Run(name, func(b *testing.B) {
		if runtime.NumCPU() < 2 {
			b.Fatal("two processors are needed")
		}
		bounds := []time.Duration{lineRoundTrip()}
		b.ReportAllocs()
		b.ResetTimer()
		run(b)
		b.StopTimer()
		bounds = append(bounds, lineRoundTrip())
		slices.Sort(bounds)
		bound := (bounds[0] + bounds[1]) / 2
		b.ReportMetric(float64(bound), "line-ns")
		b.ReportMetric(float64(bounds[1])/float64(bounds[0]), "spread")
		b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(bound), "lines/op")
	})
}

// BenchmarkRoundTrip passes one element to the other processor and back, each through a ring. Two stores that the other
// side waits for are two halves of a line's round trip: 1 line/op is the bound.
func BenchmarkRoundTrip(b *testing.B) {
	inLines(b, "SPSC", func(b *testing.B) {
		there, back := must(ringbuf.NewSPSC[uint64](64)), must(ringbuf.NewSPSC[uint64](64))
		roundTrip(b, spscQueue{there}, spscQueue{back})
	})
	inLines(b, "MPSC", func(b *testing.B) {
		roundTrip(b, must(ringbuf.NewMPSC[uint64](64)), must(ringbuf.NewMPSC[uint64](64)))
	})
}

// spscQueue publishes with each Push.
type spscQueue struct{ *ringbuf.SPSC[uint64] }

func (q spscQueue) Push(v uint64) bool {
	ok := q.SPSC.Push(v)
	q.Publish()
	return ok
}

func roundTrip(b *testing.B, there, back queue[uint64]) {
	var all sync.WaitGroup
	all.Go(func() {
		defer pin(1)()
		for range b.N {
			back.Push(take(there))
		}
	})
	defer pin(0)()
	for i := range b.N {
		there.Push(uint64(i))
		if take(back) != uint64(i) {
			b.Error("another element came back")
			break
		}
	}
	all.Wait()
}

// take waits for an element.
func take(q queue[uint64]) uint64 {
	for {
		if v, ok := q.Pop(); ok {
			q.Release()
			return v
		}
	}
}

// BenchmarkStream sends elements one way, in batches, as fast as they go.
func BenchmarkStream(b *testing.B) {
	for _, batch := range []int{1, 32} {
		inLines(b, fmt.Sprintf("SPSC/batch=%d", batch), func(b *testing.B) {
			streamTo(b, must(ringbuf.NewSPSC[uint64](1024)), batch)
		})
		inLines(b, fmt.Sprintf("MPSC/batch=%d", batch), func(b *testing.B) {
			streamTo(b, must(ringbuf.NewMPSC[uint64](1024)), batch)
		})
	}
	inLines(b, "channel", func(b *testing.B) {
		c := make(chan uint64, 1024)
		go func() {
			for i := range b.N {
				c <- uint64(i)
			}
		}()
		for range b.N {
			<-c
		}
	})
}

func streamTo(b *testing.B, q queue[uint64], batch int) {
	var all sync.WaitGroup
	all.Go(func() {
		defer pin(1)()
		vs := make([]uint64, batch)
		for left := b.N; left > 0; {
			left -= q.PushBatch(vs[:min(batch, left)])
		}
	})
	defer pin(0)()
	dst := make([]uint64, batch)
	for left := b.N; left > 0; {
		left -= q.PopBatch(dst)
	}
	all.Wait()
}

// BenchmarkProducers lets two producers push into one MPSC, and one of them into a locked slice for comparison.
func BenchmarkProducers(b *testing.B) {
	inLines(b, "MPSC", func(b *testing.B) {
		q := must(ringbuf.NewMPSC[uint64](1024))
		twoProducers(b, func() bool { return q.Push(1) }, func() int {
			var dst [64]uint64
			return q.PopBatch(dst[:])
		})
	})
	inLines(b, "mutex", func(b *testing.B) {
		var mu sync.Mutex
		var list []uint64
		twoProducers(b, func() bool {
			mu.Lock()
			defer mu.Unlock()
			if len(list) == 1024 {
				return false
			}
			list = append(list, 1)
			return true
		}, func() int {
			mu.Lock()
			defer mu.Unlock()
			n := len(list)
			list = list[:0]
			return n
		})
	})
}

// twoProducers pushes b.N elements from two goroutines and takes them out in a third.
func twoProducers(b *testing.B, push func() bool, take func() int) {
	var all sync.WaitGroup
	for p := range 2 {
		all.Go(func() {
			for range (b.N + p) / 2 {
				for !push() {
					runtime.Gosched()
				}
			}
		})
	}
	for left := b.N; left > 0; {
		n := take()
		if left -= n; n == 0 {
			runtime.Gosched()
		}
	}
	all.Wait()
}
