// SPDX-License-Identifier: Apache-2.0

package ringbuf_test

import (
	"math/rand/v2"

	"github.com/pvrdmad/pvrdmad/ringbuf"
)

// wide is an element larger than what a processor writes at once.
type wide [5]uint64

func widen(v value) (w wide) {
	for i := range w {
		w[i] = uint64(v)
	}
	return w
}

func (w wide) value() value {
	for _, x := range w {
		if x != w[0] {
			return torn
		}
	}
	return value(w[0])
}

// randomSize is a small power of two, so that a history runs around the ring several times.
func randomSize(rng *rand.Rand) uint32 { return 1 << rng.IntN(3) }

func threadSubjects() []subject {
	return []subject{
		{name: "SPSC", producers: 1, make: func(rng *rand.Rand) (testRing, uint32) {
			n := randomSize(rng)
			q, err := ringbuf.NewSPSC[wide](int(n))
			return spsc{q}, must(n, err)
		}},
		{name: "MPSC of one", producers: 1, make: newMPSC},
		{name: "MPSC of three", producers: 3, make: newMPSC},
	}
}

func newMPSC(rng *rand.Rand) (testRing, uint32) {
	n := randomSize(rng)
	q, err := ringbuf.NewMPSC[wide](int(n))
	return mpsc{q}, must(n, err)
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

// spsc uses an SPSC one element at a time or in batches.
type spsc struct{ *ringbuf.SPSC[wide] }

func (q spsc) produce(c *client, n int) {
	if c.rng.IntN(2) == 0 {
		c.timed(func() []step { return append(c.pushedBatch(n, q.PushBatch(c.elements(n))), c.shown()) })
		return
	}
	for ok := true; ok && n > 0; n-- {
		c.timed(func() []step {
			ok = q.Push(widen(element(c.id, c.next)))
			return []step{c.pushed(ok)}
		})
	}
	c.timed(func() []step {
		q.Publish()
		return []step{c.shown()}
	})
}

func (q spsc) consume(c *client, n int) { c.consumeFrom(q, n) }

// mpsc uses an MPSC in the same ways, and in halves.
type mpsc struct{ *ringbuf.MPSC[wide] }

func (q mpsc) produce(c *client, n int) {
	switch c.rng.IntN(3) {
	case 0:
		c.timed(func() []step {
			did := q.PushBatch(c.elements(n))
			steps := c.pushedBatch(n, did)
			for i := did - 1; i >= 0; i-- { // one after the other
				steps = append(steps, step{kind: show, value: element(c.id, c.next-1-i)})
			}
			return steps
		})
	case 1:
		for ok := true; ok && n > 0; n-- {
			c.timed(func() []step {
				ok = q.Push(widen(element(c.id, c.next)))
				return []step{c.pushed(ok), c.shown()}
			})
		}
	default:
		for ok := true; ok && n > 0; n-- {
			var place uint64
			c.timed(func() []step {
				place, ok = q.ClaimOne()
				return []step{c.pushed(ok)}
			})
			if ok {
				c.timed(func() []step {
					q.Fill(place, widen(element(c.id, c.next-1)))
					return []step{c.shown()}
				})
			}
		}
	}
}

func (q mpsc) consume(c *client, n int) { c.consumeFrom(q, n) }

// elements are the producer's next n.
func (c *client) elements(n int) []wide {
	ws := make([]wide, n)
	for i := range ws {
		ws[i] = widen(element(c.id, c.next+i))
	}
	return ws
}

// pushedBatch are the pushes of a batch of n of which did went in.
func (c *client) pushedBatch(n, did int) (steps []step) {
	for range did {
		steps = append(steps, c.pushed(true))
	}
	if did < n {
		steps = append(steps, c.pushed(false))
	}
	return steps
}

// consumer is what SPSC and MPSC have in common.
type consumer interface {
	Pop() (wide, bool)
	Release()
	PopBatch(dst []wide) int
}

func (c *client) consumeFrom(q consumer, n int) {
	if c.rng.IntN(2) == 0 {
		c.timed(func() (steps []step) {
			dst := make([]wide, n)
			did := q.PopBatch(dst)
			for _, w := range dst[:did] {
				steps = append(steps, c.poppedOne(w.value(), true))
			}
			if did < n {
				steps = append(steps, c.poppedOne(0, false))
			}
			return append(steps, c.released())
		})
		return
	}
	for ok := true; ok && n > 0; n-- {
		c.timed(func() []step {
			var w wide
			w, ok = q.Pop()
			return []step{c.poppedOne(w.value(), ok)}
		})
	}
	c.timed(func() []step {
		q.Release()
		return []step{c.released()}
	})
}
