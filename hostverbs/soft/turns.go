// SPDX-License-Identifier: Apache-2.0

package soft

// turns says whose turn it is: guests one after the other, and of each guest its queue pairs one after the other. So a
// guest with a thousand busy queue pairs has the same share as one with a single one.
type turns struct {
	guests list[*context]
	n      int // queue pairs in all
}

// push gives a queue pair that waits for no turn yet the last one of its guest.
func (t *turns) push(q *qp) {
	q.listed = true
	q.ctx.waiting.push(q)
	if q.ctx.waiting.n == 1 {
		t.guests.push(q.ctx)
	}
	t.n++
}

// remove takes a queue pair's turn away, if it has one.
func (t *turns) remove(q *qp) {
	if !q.listed {
		return
	}
	q.listed = false
	q.ctx.waiting.remove(q)
	if q.ctx.waiting.n == 0 {
		t.guests.remove(q.ctx)
	}
	t.n--
}

// next returns the guest whose turn it is, and moves it to the end. There is one.
func (t *turns) next() *context {
	c := t.guests.head
	t.guests.remove(c)
	t.guests.push(c)
	return c
}

// links are an element's neighbours in a list.
type links[E any] struct{ prev, next E }

// element is what a list is made of: pointers, so that the zero E means nobody.
type element[E any] interface {
	comparable
	links() *links[E]
}

// list is first in, first out, through its elements themselves, so that it needs no memory.
type list[E element[E]] struct {
	head, tail E
	n          int
}

// push appends an element that is in no list.
func (l *list[E]) push(e E) {
	var nobody E
	*e.links() = links[E]{prev: l.tail}
	if l.tail == nobody {
		l.head = e
	} else {
		l.tail.links().next = e
	}
	l.tail = e
	l.n++
}

// remove takes an element out of the list that it is in.
func (l *list[E]) remove(e E) {
	var nobody E
	at := e.links()
	if at.prev == nobody {
		l.head = at.next
	} else {
		at.prev.links().next = at.next
	}
	if at.next == nobody {
		l.tail = at.prev
	} else {
		at.next.links().prev = at.prev
	}
	*at = links[E]{}
	l.n--
}

func (q *qp) links() *links[*qp] { return &q.turn }

func (c *context) links() *links[*context] { return &c.turn }
