// SPDX-License-Identifier: Apache-2.0

package ringbuf

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// MaxSPSC is the most elements of an SPSC. It only keeps a wrong size from eating the machine's memory.
const MaxSPSC = 1 << 24

// pad keeps the fields of the two sides apart: 128 bytes, because processors fetch lines in pairs.
type pad [128]byte

// SPSC is a bounded queue from one producer goroutine to one consumer goroutine. It takes no lock, makes no system
// call and allocates nothing. Both sides work in batches, since a store that the other side looks at costs about
// ten times the rest: what Push has put in is seen after Publish, and what Pop has taken makes room after Release.
type SPSC[T any] struct {
	buf  []T
	mask uint64

	_    pad
	tail atomic.Uint64 // elements published; written by the producer

	_        pad
	head     atomic.Uint64 // elements released; written by the consumer
	_        pad
	pushed   uint64 // producer's: elements pushed
	headSeen uint64 // producer's: head when it was last looked at
	_        pad
	popped   uint64 // consumer's: elements popped
	tailSeen uint64 // consumer's: tail when it was last looked at
	_        pad
}

// NewSPSC makes a queue of n elements, n a power of two up to MaxSPSC. EINVAL otherwise.
func NewSPSC[T any](n int) (*SPSC[T], error) {
	if n <= 0 || n&(n-1) != 0 || n > MaxSPSC {
		return nil, fmt.Errorf("queue of %d elements: not a power of two up to %d: %w", n, MaxSPSC, unix.EINVAL)
	}
	return &SPSC[T]{buf: make([]T, n), mask: uint64(n - 1)}, nil
}

// Push puts v in, to be published later. It is false if the queue is full. Producer only.
func (q *SPSC[T]) Push(v T) bool {
	if q.pushed-q.headSeen > q.mask {
		q.headSeen = q.head.Load()
		if q.pushed-q.headSeen > q.mask {
			return false
		}
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

// Pop takes the oldest published element out. It is false if there is none. Consumer only.
func (q *SPSC[T]) Pop() (v T, ok bool) {
	if q.popped == q.tailSeen {
		q.tailSeen = q.tail.Load()
		if q.popped == q.tailSeen {
			return v, false
		}
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
