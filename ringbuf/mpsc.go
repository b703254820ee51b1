// SPDX-License-Identifier: Apache-2.0

package ringbuf

import "sync/atomic"

// MPSC is a bounded queue from any number of producer goroutines to one consumer goroutine. A producer claims places
// by moving tail, fills them, and marks each as filled; so producers wait neither for the consumer nor for each other.
// What Pop has taken makes room after Release.
//
// Elements of one producer arrive in the order of its calls, and those of a PushBatch side by side. Elements whose
// calls overlapped arrive in any order.
type MPSC[T any] struct {
	slots []slot[T]
	mask  uint64

	_    pad
	tail atomic.Uint64 // places claimed; written by the producers, each with a compare-and-swap

	_        pad
	headSeen atomic.Uint64 // head when some producer last looked, or before that; written by the producers

	_    pad
	head atomic.Uint64 // elements released; written by the consumer

	_      pad
	popped uint64 // consumer's: elements popped

	_ pad
}

// slot is a place of an MPSC.
type slot[T any] struct {
	// filled is one more than the place in v, counted from the queue's first. Written by the producer that claimed it.
	filled atomic.Uint64
	v      T
}

// NewMPSC makes a queue of n elements, n a power of two up to MaxQueue. EINVAL otherwise.
func NewMPSC[T any](n int) (*MPSC[T], error) {
	if err := checkQueue(n); err != nil {
		return nil, err
	}
	return &MPSC[T]{slots: make([]slot[T], n), mask: uint64(n - 1)}, nil
}

// Cap is the number of elements that can be in the queue. Any goroutine.
func (q *MPSC[T]) Cap() int { return len(q.slots) }

// Push puts v in. It is false if the queue is full. Any goroutine.
func (q *MPSC[T]) Push(v T) bool {
	place, n := q.claim(1)
	if n == 0 {
		return false
	}
	q.fill(place, v)
	return true
}

// PushBatch puts in as many of vs as there is room for, side by side, and returns how many. Any goroutine.
func (q *MPSC[T]) PushBatch(vs []T) int {
	place, n := q.claim(len(vs))
	for i, v := range vs[:n] {
		q.fill(place+uint64(i), v)
	}
	return n
}

// claim takes up to want places that follow each other, as many as are free. It tries again only if another producer
// took places meanwhile.
func (q *MPSC[T]) claim(want int) (place uint64, n int) {
	for {
		tail := q.tail.Load()
		free := q.free(tail, q.headSeen.Load())
		if free < int64(want) {
			head := q.head.Load()
			q.headSeen.Store(head)
			free = q.free(tail, head)
		}
		if free > int64(len(q.slots)) {
			continue // released beyond tail, so that tail has moved
		}
		if n = int(min(int64(want), free)); n <= 0 {
			return 0, 0
		}
		if q.tail.CompareAndSwap(tail, tail+uint64(n)) {
			return tail, n
		}
	}
}

// free returns how many places are free. It is below 0 if head is old, and above the size if tail is.
func (q *MPSC[T]) free(tail, head uint64) int64 { return int64(len(q.slots)) - int64(tail-head) }

// fill writes an element to a place that the caller has claimed.
func (q *MPSC[T]) fill(place uint64, v T) {
	s := &q.slots[place&q.mask]
	s.v = v
	s.filled.Store(place + 1)
}

// Pop takes the oldest element out. It is false if there is none, or if its Push has not come to its end. Consumer
// only.
func (q *MPSC[T]) Pop() (v T, ok bool) {
	s := &q.slots[q.popped&q.mask]
	if s.filled.Load() != q.popped+1 {
		return v, false
	}
	v = s.v
	var zero T
	s.v = zero // holds on to nothing
	q.popped++
	return v, true
}

// Release gives the producers the room of everything popped. Consumer only.
func (q *MPSC[T]) Release() {
	if q.head.Load() != q.popped {
		q.head.Store(q.popped)
	}
}

// PopBatch takes out the oldest elements, as many as there are and dst holds, releases them with what was popped
// before, and returns how many. Consumer only.
func (q *MPSC[T]) PopBatch(dst []T) (n int) {
	for n < len(dst) {
		v, ok := q.Pop()
		if !ok {
			break
		}
		dst[n] = v
		n++
	}
	q.Release()
	return n
}
