// SPDX-License-Identifier: Apache-2.0

package ringbuf

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// MaxQueue is the most elements of an SPSC or MPSC. It only keeps a wrong size from eating the machine's memory.
const MaxQueue = 1 << 24

// pad keeps the fields of the two sides apart: 128 bytes, because processors fetch lines in pairs.
type pad [128]byte

// SPSC is a bounded queue from one producer goroutine to one consumer goroutine. Both sides work in batches, since a
// store that the other side looks at costs about ten times the rest: what Push has put in is seen after Publish, and
// what Pop has taken makes room after Release. PushBatch and PopBatch do both in one call.
type SPSC[T any] struct {
	buf  []T
	mask uint64

	_    pad
	tail atomic.Uint64 // elements published; written by the producer

	_    pad
	head atomic.Uint64 // elements released; written by the consumer

	_        pad
	pushed   uint64 // producer's: elements pushed
	headSeen uint64 // producer's: head when it was last looked at

	_        pad
	popped   uint64 // consumer's: elements popped
	tailSeen uint64 // consumer's: tail when it was last looked at

	_ pad
}

// NewSPSC makes a queue of n elements, n a power of two up to MaxQueue. EINVAL otherwise.
func NewSPSC[T any](n int) (*SPSC[T], error) {
	if err := checkQueue(n); err != nil {
		return nil, err
	}
	return &SPSC[T]{buf: make([]T, n), mask: uint64(n - 1)}, nil
}

func checkQueue(n int) error {
	if n <= 0 || n&(n-1) != 0 || n > MaxQueue {
		return fmt.Errorf("queue of %d elements: not a power of two up to %d: %w", n, MaxQueue, unix.EINVAL)
	}
	return nil
}

// Cap is the number of elements that can be in the queue. Any goroutine.
func (q *SPSC[T]) Cap() int { return len(q.buf) }

// Push puts v in, to be published later. It is false if the queue is full. Producer only.
func (q *SPSC[T]) Push(v T) bool {
	if q.room(1) == 0 {
		return false
	}
	q.buf[q.pushed&q.mask] = v
	q.pushed++
	return true
}

// Publish shows the consumer everything pushed. Producer only.
func (q *SPSC[T]) Publish() {
	if q.tail.Load() != q.pushed {
		q.tail.Store(q.pushed)
	}
}

// PushBatch puts in as many of vs as there is room for, publishes them with what was pushed before, and returns how
// many. Producer only.
func (q *SPSC[T]) PushBatch(vs []T) int {
	n := min(uint64(len(vs)), q.room(uint64(len(vs))))
	first := copy(q.buf[q.pushed&q.mask:], vs[:n])
	copy(q.buf, vs[first:n])
	q.pushed += n
	q.Publish()
	return int(n)
}

// room returns how many elements may be pushed. It looks at the consumer's index only if its copy does not leave room
// for the number wanted.
func (q *SPSC[T]) room(want uint64) uint64 {
	n := q.mask + 1 - (q.pushed - q.headSeen)
	if n < want {
		q.headSeen = q.head.Load()
		n = q.mask + 1 - (q.pushed - q.headSeen)
	}
	return n
}

// Pop takes the oldest published element out. It is false if there is none. Consumer only.
func (q *SPSC[T]) Pop() (v T, ok bool) {
	if q.ready(1) == 0 {
		return v, false
	}
	slot := &q.buf[q.popped&q.mask]
	v = *slot
	var zero T
	*slot = zero // holds on to nothing
	q.popped++
	return v, true
}

// Release gives the producer the room of everything popped. Consumer only.
func (q *SPSC[T]) Release() {
	if q.head.Load() != q.popped {
		q.head.Store(q.popped)
	}
}

// PopBatch takes out the oldest published elements, as many as there are and dst holds, releases them with what was
// popped before, and returns how many. Consumer only.
func (q *SPSC[T]) PopBatch(dst []T) int {
	n := min(uint64(len(dst)), q.ready(uint64(len(dst))))
	at := q.popped & q.mask
	first := copy(dst[:n], q.buf[at:])
	copy(dst[first:n], q.buf)
	clear(q.buf[at : at+uint64(first)])
	clear(q.buf[:n-uint64(first)])
	q.popped += n
	q.Release()
	return int(n)
}

// ready returns how many elements may be popped. It looks at the producer's index only if its copy does not promise
// the number wanted.
func (q *SPSC[T]) ready(want uint64) uint64 {
	if q.tailSeen-q.popped < want {
		q.tailSeen = q.tail.Load()
	}
	return q.tailSeen - q.popped
}
