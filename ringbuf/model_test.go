// SPDX-License-Identifier: Apache-2.0

package ringbuf_test

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// The sequential specification of every ring of this package. An element is in the ring from its push on, but hidden
// until it is shown: by Publish, by the store of a producer index, or by its own mark in an MPSC. It leaves the ring
// with its pop, and its room is free again with the release. A batch is written down as the steps that it stands for,
// all of them with the batch's call and return.

// kind is a step of a history.
type kind uint8

const (
	push    kind = iota // value goes in, ok if there was room
	show                // all of value's producer up to value are visible
	pop                 // value comes out, ok if the oldest was visible
	release             // the room of all that was popped is free
)

// value is an element: two bits of the producer and six of a number that begins with 1. The number is also the order of
// the producer's steps.
type value uint8

func element(producer, number int) value { return value(producer<<6 | number) }

func (v value) producer() int { return int(v >> 6) }
func (v value) number() uint8 { return uint8(v & 63) }

const (
	// maxNumber is the most elements of one producer in a history. torn is no element: what a reader saw was not whole.
	maxNumber = 62
	torn      = value(255)
	// maxModel is the most elements of a ring in a history.
	maxModel = 8
)

// step is what was called and what came of it. count numbers a consumer's steps: how many elements were popped before.
type step struct {
	kind  kind
	value value
	ok    bool
	count uint8
}

// state is a ring at one moment. It is comparable, as the checker wants it.
type state struct {
	size       uint8
	queue      [maxModel]value
	shown      [maxModel]bool
	n          uint8 // elements in queue
	unreleased uint8
	popped     uint8
	last       [4]uint8 // number of each producer's last element
}

func (s state) full() bool { return s.n+s.unreleased >= s.size }

// next is the specification: whether a step is possible in a state, and the state after it.
func (s state) next(x step) (bool, state) {
	switch x.kind {
	case push:
		if s.last[x.value.producer()] != x.value.number()-1 || x.ok == s.full() {
			return false, s
		}
		if x.ok {
			s.queue[s.n], s.shown[s.n] = x.value, false
			s.n++
			s.last[x.value.producer()]++
		}
	case show:
		if s.last[x.value.producer()] < x.value.number() {
			return false, s
		}
		for i, v := range s.queue[:s.n] {
			if v.producer() == x.value.producer() && v <= x.value {
				s.shown[i] = true
			}
		}
	case pop:
		ready := s.n > 0 && s.shown[0]
		if x.count != s.popped || x.ok != ready || (x.ok && x.value != s.queue[0]) {
			return false, s
		}
		if x.ok {
			copy(s.queue[:], s.queue[1:s.n])
			copy(s.shown[:], s.shown[1:s.n])
			s.n--
			s.queue[s.n], s.shown[s.n] = 0, false
			s.popped++
			s.unreleased++
		}
	case release:
		if x.count != s.popped {
			return false, s
		}
		s.unreleased = 0
	}
	return true, s
}

func (x step) String() string {
	name := [...]string{"push", "show", "pop", "release"}[x.kind]
	return fmt.Sprintf("%s %d.%d %v (%d popped)", name, x.value.producer(), x.value.number(), x.ok, x.count)
}

// model returns the specification of a ring of size elements in the checker's form.
func model(size uint32) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{size: uint8(size)} },
		Step: func(s, x, _ any) (bool, any) {
			ok, after := s.(state).next(x.(step))
			return ok, after
		},
	}
}
