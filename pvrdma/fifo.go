// SPDX-License-Identifier: Apache-2.0

package pvrdma

import "slices"

// fifo is a queue of one thread. It keeps its memory, so that a queue in use allocates nothing once it has been as long
// as it gets.
type fifo[T any] struct {
	items []T // those from head on
	head  int
}

func (f *fifo[T]) len() int { return len(f.items) - f.head }

func (f *fifo[T]) push(x T) { f.items = append(f.items, x) }

// putBack makes x the oldest element.
func (f *fifo[T]) putBack(x T) {
	if f.head == 0 {
		f.items = slices.Insert(f.items, 0, x)
		return
	}
	f.head--
	f.items[f.head] = x
}

// front returns the oldest element. There is one.
func (f *fifo[T]) front() T { return f.items[f.head] }

// at returns the element n after the oldest. There is one.
func (f *fifo[T]) at(n int) T { return f.items[f.head+n] }

// pop takes the oldest element out. There is one.
func (f *fifo[T]) pop() T {
	var none T
	x := f.items[f.head]
	f.items[f.head] = none
	f.head++
	if f.head*2 >= len(f.items) { // half of it is used up: what is left moves to the front
		left := copy(f.items, f.items[f.head:])
		clear(f.items[left:])
		f.items, f.head = f.items[:left], 0
	}
	return x
}
