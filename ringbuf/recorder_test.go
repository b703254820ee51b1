// SPDX-License-Identifier: Apache-2.0

package ringbuf_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
)

// epoch is when the clock of histories starts. The clock is the processor's: a counter of our own would order what it
// measures, and hide from the race detector that nothing else does.
var epoch = time.Now()

// client is one goroutine of a history.
type client struct {
	id    int
	rng   *rand.Rand
	steps []porcupine.Operation
	// next is the number of the producer's next element, popped how many elements the consumer took.
	next   int
	popped uint8
	broken error // what ended it before its time
}

// noteBreak ends a client whose device has found an index that no correct ring brings about.
func (c *client) noteBreak() {
	switch r := recover(); r {
	case nil:
	case errIndex:
		c.broken = errIndex
	default:
		panic(r)
	}
}

// pause lets another goroutine come in between, in one of the ways in which that happens: a switch on the same
// processor, or a delay while the other runs on its own.
func (c *client) pause() {
	switch c.rng.IntN(6) {
	case 0, 1, 2:
		runtime.Gosched()
	case 3:
		for range c.rng.IntN(300) {
			c.rng.Uint64()
		}
	}
}

// timed runs f, with pauses, and writes down the steps that it returns.
func (c *client) timed(f func() []step) {
	call := time.Since(epoch)
	c.pause()
	steps := f()
	c.pause()
	back := time.Since(epoch)
	for _, x := range steps {
		c.steps = append(c.steps, porcupine.Operation{
			ClientId: c.id, Input: x, Call: int64(call), Return: int64(back),
		})
	}
}

// produce pushes up to n elements in some way that ring offers.
func (c *client) produce(r testRing) {
	n := min(1+c.rng.IntN(3), maxNumber-c.next+1)
	if n > 0 {
		r.produce(c, n)
	}
}

// pushed is the step of pushing the producer's next element, and moves on if it went in.
func (c *client) pushed(ok bool) step {
	x := step{kind: push, value: element(c.id, c.next), ok: ok}
	if ok {
		c.next++
	}
	return x
}

// shown is the step of showing all that was pushed so far.
func (c *client) shown() step { return step{kind: show, value: element(c.id, c.next-1)} }

func (c *client) poppedOne(v value, ok bool) step {
	x := step{kind: pop, value: v, ok: ok, count: c.popped}
	if ok {
		c.popped++
	}
	return x
}

func (c *client) released() step { return step{kind: release, count: c.popped} }

// testRing is a ring as the clients of a history use it.
type testRing interface {
	produce(c *client, n int)
	consume(c *client, n int)
}

// subject is a kind of ring under test.
type subject struct {
	name      string
	producers int
	// make returns a ring and the number of elements it holds.
	make func(rng *rand.Rand) (testRing, uint32)
}

// history is what one run of a subject came to.
type history struct {
	size  uint32
	steps []porcupine.Operation
	// overlapping counts steps that were under way at the same time as one of another client.
	overlapping int
	// broken is what a client found that no correct ring brings about, or nil.
	broken error
}

// rounds is how often each client of a history does something.
const rounds = 4

// record runs a ring between several goroutines, all determined by seed but their timing.
func (s subject) record(seed uint64) history {
	rng := rand.New(rand.NewPCG(seed, 0))
	ring, size := s.make(rng)
	var h history
	h.size = size
	clients := make([]*client, s.producers+1)
	var ready atomic.Int32
	var all sync.WaitGroup
	for i := range clients {
		c := &client{id: i, rng: rand.New(rand.NewPCG(seed, uint64(i+1))), next: 1}
		clients[i] = c
		do := c.produce
		if i == s.producers { // the consumer is the last
			do = func(r testRing) { r.consume(c, 1+c.rng.IntN(3)) }
		}
		all.Go(func() {
			for ready.Add(1); int(ready.Load()) < len(clients); {
				runtime.Gosched()
			}
			defer c.noteBreak()
			for range rounds {
				do(ring)
			}
		})
	}
	all.Wait()
	for _, c := range clients {
		h.steps = append(h.steps, c.steps...)
		h.broken = cmp.Or(h.broken, c.broken)
	}
	h.overlapping = overlapping(h.steps)
	return h
}

// overlapping counts the steps that overlap a step of another client. An end that is another's beginning is none.
func overlapping(steps []porcupine.Operation) (n int) {
	for _, a := range steps {
		if slices.ContainsFunc(steps, func(b porcupine.Operation) bool {
			return a.ClientId != b.ClientId && a.Call < b.Return && b.Call < a.Return
		}) {
			n++
		}
	}
	return n
}

func (h history) linearizable() bool {
	return h.broken == nil && porcupine.CheckOperations(model(h.size), h.steps)
}

func (h history) String() string {
	steps := slices.Clone(h.steps)
	slices.SortStableFunc(steps, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var text strings.Builder
	fmt.Fprintf(&text, "ring of %d\n", h.size)
	if h.broken != nil {
		fmt.Fprintf(&text, "%v\n", h.broken)
	}
	for _, x := range steps {
		fmt.Fprintf(&text, "%8d to %8d ns, client %d: %v\n", x.Call-steps[0].Call, x.Return-steps[0].Call, x.ClientId, x.Input)
	}
	return text.String()
}
