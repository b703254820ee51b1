// SPDX-License-Identifier: Apache-2.0

package ringbuf_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/pvrdmad/pvrdmad/ringbuf"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func TestAQueueHasAPowerOfTwoElements(t *testing.T) {
	for _, n := range []int{-8, 0, 3, 1000, ringbuf.MaxQueue + 1, ringbuf.MaxQueue * 2} {
		if _, err := ringbuf.NewSPSC[int](n); !errors.Is(err, unix.EINVAL) {
			t.Errorf("SPSC of %d elements: %v", n, err)
		}
		if _, err := ringbuf.NewMPSC[int](n); !errors.Is(err, unix.EINVAL) {
			t.Errorf("MPSC of %d elements: %v", n, err)
		}
	}
	if s, m := must(ringbuf.NewSPSC[int](8)), must(ringbuf.NewMPSC[int](16)); s.Cap() != 8 || m.Cap() != 16 {
		t.Errorf("capacities %d and %d", s.Cap(), m.Cap())
	}
}

// queue is what SPSC and MPSC have in common.
type queue[T any] interface {
	Push(v T) bool
	PushBatch(vs []T) int
	Pop() (T, bool)
	PopBatch(dst []T) int
	Release()
}

// slices are what a queue is held against in one goroutine: what was pushed, what of it is published, and how many were
// popped but not released.
type slicesModel struct {
	n, unreleased, next int
	hidden, published   []int
	// hides says that pushed elements wait for Publish.
	hides bool
}

func (m *slicesModel) room() int { return m.n - len(m.hidden) - len(m.published) - m.unreleased }

func (m *slicesModel) publish() {
	m.published = append(m.published, m.hidden...)
	m.hidden = nil
}

func (m *slicesModel) push(k int) {
	for range k {
		m.hidden = append(m.hidden, m.next)
		m.next++
	}
	if !m.hides {
		m.publish()
	}
}

// actions are the calls that both queues have.
func (m *slicesModel) actions(q queue[int]) map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"push": func(t *rapid.T) {
			room := m.room()
			if got := q.Push(m.next); got != (room > 0) {
				t.Fatalf("Push is %v with room for %d", got, room)
			}
			m.push(min(1, room))
		},
		"push a batch": func(t *rapid.T) {
			vs := make([]int, rapid.IntRange(0, m.n+2).Draw(t, "elements"))
			for i := range vs {
				vs[i] = m.next + i
			}
			want := min(len(vs), m.room())
			if got := q.PushBatch(vs); got != want {
				t.Fatalf("PushBatch of %d is %d with room for %d", len(vs), got, m.room())
			}
			m.push(want)
			m.publish()
		},
		"pop": func(t *rapid.T) {
			v, ok := q.Pop()
			if ok != (len(m.published) > 0) || (ok && v != m.published[0]) {
				t.Fatalf("Pop is %d, %v; published are %v", v, ok, m.published)
			}
			if ok {
				m.published = m.published[1:]
				m.unreleased++
			}
		},
		"pop a batch": func(t *rapid.T) {
			dst := make([]int, rapid.IntRange(0, m.n+2).Draw(t, "room"))
			got := q.PopBatch(dst)
			if want := min(len(dst), len(m.published)); got != want {
				t.Fatalf("PopBatch of %d is %d, published are %v", len(dst), got, m.published)
			}
			for i, v := range dst[:got] {
				if v != m.published[i] {
					t.Fatalf("PopBatch brought %v, published are %v", dst[:got], m.published)
				}
			}
			m.published = m.published[got:]
			m.unreleased = 0
		},
		"release": func(*rapid.T) {
			q.Release()
			m.unreleased = 0
		},
	}
}

func TestAnSPSCAgreesWithSlices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := slicesModel{n: 1 << rapid.IntRange(0, 4).Draw(t, "log2 n"), next: 1, hides: true}
		q := must(ringbuf.NewSPSC[int](m.n))
		actions := m.actions(q)
		actions["publish"] = func(*rapid.T) {
			q.Publish()
			m.publish()
		}
		t.Repeat(actions)
	})
}

func TestAnMPSCAgreesWithSlices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := slicesModel{n: 1 << rapid.IntRange(0, 4).Draw(t, "log2 n"), next: 1}
		t.Repeat(m.actions(must(ringbuf.NewMPSC[int](m.n))))
	})
}

func TestAQueueAllocatesNothing(t *testing.T) {
	s, m := must(ringbuf.NewSPSC[*int](4)), must(ringbuf.NewMPSC[*int](4))
	batch := []*int{new(int), new(int), new(int)}
	for _, q := range []queue[*int]{s, m} {
		t.Run(fmt.Sprintf("%T", q), func(t *testing.T) {
			n := testing.AllocsPerRun(100, func() {
				ok := q.Push(batch[0])
				s.Publish()
				if _, popped := q.Pop(); !ok || !popped {
					t.Fatal("nothing came out")
				}
				q.Release()
				if q.PushBatch(batch) != 3 || q.PopBatch(batch) != 3 {
					t.Fatal("a batch did not come through")
				}
			})
			if n != 0 {
				t.Fatalf("%v allocations", n)
			}
		})
	}
}

func TestAQueueHoldsOnToNothing(t *testing.T) {
	type large [100]int
	for _, take := range []struct {
		name string
		out  func(q queue[*large])
	}{
		{"by one", func(q queue[*large]) { q.Pop() }},
		{"in a batch", func(q queue[*large]) { q.PopBatch(make([]*large, 3)) }},
	} {
		for _, q := range []queue[*large]{must(ringbuf.NewSPSC[*large](4)), must(ringbuf.NewMPSC[*large](4))} {
			t.Run(fmt.Sprintf("%T, %s", q, take.name), func(t *testing.T) {
				gone := make(chan struct{})
				x := new(large)
				runtime.AddCleanup(x, func(c chan struct{}) { close(c) }, gone)
				if q.PushBatch([]*large{x}) != 1 {
					t.Fatal("no room")
				}
				take.out(q)
				x = nil
				runtime.GC()
				<-gone
				runtime.KeepAlive(q)
			})
		}
	}
}
