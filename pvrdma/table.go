// SPDX-License-Identifier: Apache-2.0

package pvrdma

import "golang.org/x/sys/unix"

// table gives objects small numbers, the handles that the guest uses for them. A number is not used again before all
// others were: a completion of a destroyed queue pair may still lie unread in a queue that names it by handle.
//
// The command goroutine and the worker both read a table; it is written inside Worker.Do.
type table[T any] struct {
	slots []*T
	// first is the lowest handle, limit the number of objects at most; handles are below first+limit.
	first, limit uint32
	live         uint32
	// kept says that the lowest handle is set apart, see keep.
	kept bool
	// freed holds the handles that were given back, oldest first from head on.
	freed []uint32
	head  int
}

// newTable returns an empty table for limit objects with handles from first on.
func newTable[T any](first, limit uint32) table[T] {
	return table[T]{first: first, limit: limit}
}

// full reports whether add would fail, which the caller asks before it creates what is to be added.
func (t *table[T]) full() error {
	used := t.live
	if t.kept && t.slots[0] == nil {
		used++
	}
	if used >= t.limit {
		return unix.ENOMEM
	}
	return nil
}

// keep sets the lowest handle of an empty table apart: only put gives it. There is always room for it.
func (t *table[T]) keep() {
	t.kept = true
	t.slots = append(t.slots, nil)
}

// next is the handle that add gives. The table is not full.
func (t *table[T]) next() uint32 {
	if fresh := uint32(len(t.slots)); fresh < t.limit {
		return t.first + fresh
	}
	return t.freed[t.head]
}

// add stores x and returns its handle. The table is not full.
func (t *table[T]) add(x *T) uint32 {
	h := t.next()
	t.live++
	if fresh := uint32(len(t.slots)); fresh < t.limit {
		t.slots = append(t.slots, x)
		return h
	}
	t.head++
	if t.head == len(t.freed) {
		t.freed, t.head = t.freed[:0], 0
	}
	t.slots[h-t.first] = x
	return h
}

// put stores x under a handle that next has named, or under the one that is set apart and free.
func (t *table[T]) put(h uint32, x *T) {
	if t.kept && h == t.first {
		t.slots[0] = x
		t.live++
		return
	}
	t.add(x)
}

// get returns the object with handle h, or nil.
func (t *table[T]) get(h uint32) *T {
	if i := h - t.first; i < uint32(len(t.slots)) {
		return t.slots[i]
	}
	return nil
}

// remove takes the object with handle h out; there is one.
func (t *table[T]) remove(h uint32) {
	t.slots[h-t.first] = nil
	t.live--
	if t.kept && h == t.first {
		return
	}
	if t.head > 0 && t.head >= len(t.freed)/2 {
		// What was given again makes room, or a guest that makes and destroys objects for ever would fill our memory.
		t.freed = t.freed[:copy(t.freed, t.freed[t.head:])]
		t.head = 0
	}
	t.freed = append(t.freed, h)
}

// each calls fn for every object, in the order of handles.
func (t *table[T]) each(fn func(x *T)) {
	for _, x := range t.slots {
		if x != nil {
			fn(x)
		}
	}
}

// all returns the objects, in the order of handles.
func (t *table[T]) all() []*T {
	list := make([]*T, 0, t.live)
	t.each(func(x *T) { list = append(list, x) })
	return list
}
