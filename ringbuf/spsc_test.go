// SPDX-License-Identifier: Apache-2.0

package ringbuf_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/pvrdmad/pvrdmad/ringbuf"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func mustSPSC[T any](t testing.TB, n int) *ringbuf.SPSC[T] {
	t.Helper()
	q, err := ringbuf.NewSPSC[T](n)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestAQueueHasAPowerOfTwoElements(t *testing.T) {
	for _, n := range []int{-8, 0, 3, 1000, ringbuf.MaxSPSC + 1, ringbuf.MaxSPSC * 2} {
		if _, err := ringbuf.NewSPSC[int](n); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%d elements: %v", n, err)
		}
	}
}

// In one goroutine the queue is held against three slices: what was pushed, what of it is published, and what was
// popped but not released.
func TestAQueueAgreesWithSlices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := 1 << rapid.IntRange(0, 4).Draw(t, "log2 n")
		q, err := ringbuf.NewSPSC[int](n)
		if err != nil {
			t.Fatal(err)
		}
		var hidden, published []int
		unreleased, next := 0, 1
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				room := len(hidden)+len(published)+unreleased < n
				if got := q.Push(next); got != room {
					t.Fatalf("Push is %v with %d+%d+%d of %d", got, len(hidden), len(published), unreleased, n)
				}
				if room {
					hidden = append(hidden, next)
					next++
				}
			},
			"publish": func(*rapid.T) {
				q.Publish()
				published = append(published, hidden...)
				hidden = nil
			},
			"pop": func(t *rapid.T) {
				v, ok := q.Pop()
				if ok != (len(published) > 0) || (ok && v != published[0]) {
					t.Fatalf("Pop is %d, %v; published are %v", v, ok, published)
				}
				if ok {
					published = published[1:]
					unreleased++
				}
			},
			"release": func(*rapid.T) {
				q.Release()
				unreleased = 0
			},
		})
	})
}

// Between two goroutines every element arrives once, in order and whole. The elements are larger than a word, and the
// race detector watches.
func TestElementsArriveOnceInOrderAndWhole(t *testing.T) {
	type element struct {
		seq  uint64
		body [5]uint64
	}
	for _, n := range []int{1, 2, 64} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			const total = 20000
			q := mustSPSC[element](t, n)
			go func() {
				rng := rand.New(rand.NewPCG(1, uint64(n)))
				for seq := uint64(1); seq <= total; {
					for range 1 + rng.IntN(n) {
						if seq > total || !q.Push(element{seq, [5]uint64{seq, seq, seq, seq, seq}}) {
							break
						}
						seq++
					}
					q.Publish()
					runtime.Gosched()
				}
			}()
			rng := rand.New(rand.NewPCG(2, uint64(n)))
			for want := uint64(1); want <= total; {
				for range 1 + rng.IntN(n) {
					e, ok := q.Pop()
					if !ok {
						break
					}
					if e.seq != want || e.body != [5]uint64{want, want, want, want, want} {
						t.Fatalf("got %v, want number %d", e, want)
					}
					want++
				}
				q.Release()
				runtime.Gosched()
			}
			if _, ok := q.Pop(); ok {
				t.Fatal("one more than was pushed")
			}
		})
	}
}

func TestAQueueAllocatesNothingAndHoldsOnToNothing(t *testing.T) {
	q := mustSPSC[*int](t, 4)
	x := new(int)
	n := testing.AllocsPerRun(100, func() {
		q.Push(x)
		q.Publish()
		q.Pop()
		q.Release()
	})
	if n != 0 {
		t.Fatalf("%v allocations", n)
	}
	gone := make(chan struct{})
	y := new([100]int)
	runtime.AddCleanup(y, func(c chan struct{}) { close(c) }, gone)
	p := mustSPSC[*[100]int](t, 4)
	p.Push(y)
	p.Publish()
	p.Pop()
	y = nil
	runtime.GC()
	<-gone
	runtime.KeepAlive(p)
}

func BenchmarkSPSC(b *testing.B) {
	for _, batch := range []int{1, 32} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			q := mustSPSC[uint64](b, 1024)
			go func() {
				for i := range b.N {
					for !q.Push(uint64(i)) {
						q.Publish()
						runtime.Gosched()
					}
					if i%batch == batch-1 {
						q.Publish()
					}
				}
				q.Publish()
			}()
			for i := range b.N {
				for {
					if _, ok := q.Pop(); ok {
						break
					}
					runtime.Gosched()
				}
				if i%batch == batch-1 {
					q.Release()
				}
			}
		})
	}
	b.Run("channel", func(b *testing.B) {
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
