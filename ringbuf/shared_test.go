// SPDX-License-Identifier: Apache-2.0

package ringbuf_test

import (
	"errors"
	"math/rand/v2"

	"github.com/pvrdmad/pvrdmad/ringbuf"
)

// filler and drainer are the two ends of a ring in shared memory. begin finds the slot for the next element, advance
// moves the end's own index, and store shows it to the other.
type filler interface {
	begin() (slot uint32, ok bool)
	advance()
	store()
}

type drainer filler

// sharedRing is a ring in memory that guest and device share, between the two.
type sharedRing struct {
	mem  memory
	fill filler
	// drain is the other end.
	drain drainer
	fault fault
}

// fault is what a planted fault gets wrong.
type fault int

const (
	none fault = iota
	// wordsOnly is no fault: elements are moved as with the faults, in words that the race detector does not object to.
	wordsOnly
	indexBeforeElement
	releaseBeforeRead
	fullIsOverlooked
	emptyIsBelieved
	indexRunsOverAllSlots
	claimInTwoSteps
)

func sharedSubjects() []subject { return faultySubjects(none) }

// faultySubjects are the rings of a pvrdma device, all with the same fault.
func faultySubjects(f fault) []subject {
	return []subject{
		{name: "pvrdma ring that the guest fills", producers: 1, make: func(rng *rand.Rand) (testRing, uint32) {
			n := randomSize(rng)
			ring, mem, start := sharedOf(rng, n, n)
			fill := &guestFiller{guestEnd{mem: mem, d: driver{n: n, prod: start}}}
			return &sharedRing{mem, fill, &deviceDrainer{mem: mem, ring: ring, cons: start, prod: start}, f}, n
		}},
		{name: "pvrdma ring that the device fills", producers: 1, make: func(rng *rand.Rand) (testRing, uint32) {
			n := randomSize(rng)
			ring, mem, start := sharedOf(rng, n, n)
			drain := &guestDrainer{guestEnd{mem: mem, d: driver{n: n, cons: start}}}
			return &sharedRing{mem, &deviceFiller{mem: mem, ring: ring, prod: start, cons: start}, drain, f}, n
		}},
		{name: "event ring", producers: 1, make: func(rng *rand.Rand) (testRing, uint32) {
			// Three times a power of two, as the driver's rings have.
			n := randomSize(rng)
			var ring deviceRing = must(ringbuf.NewEventRing(3 * n))
			if f == indexRunsOverAllSlots {
				ring = allSlots(3 * n)
			}
			_, mem, start := sharedOf(rng, n, 3*n)
			drain := &guestDrainer{guestEnd{mem: mem, d: driver{n: 3 * n, cons: start}}}
			return &sharedRing{mem, &deviceFiller{mem: mem, ring: ring, prod: start, cons: start}, drain, f}, n
		}},
	}
}

// sharedOf makes memory for slots elements and indices that have gone some way in a ring of n.
func sharedOf(rng *rand.Rand, n, slots uint32) (ringbuf.Ring, memory, uint32) {
	start := rng.Uint32N(2 * n)
	return must(ringbuf.NewRing(n)), newMemory(slots, start), start
}

func (r *sharedRing) produce(c *client, n int) {
	if r.fault == none && c.rng.IntN(2) == 0 {
		c.timed(func() []step {
			did := 0
			for did < n && r.pushOne(c, element(c.id, c.next+did)) {
				did++
			}
			c.pause()
			r.fill.store()
			return append(c.pushedBatch(n, did), c.shown())
		})
		return
	}
	for ok := true; ok && n > 0; n-- {
		if r.fault == indexBeforeElement {
			// One call, which may show the element at any of its moments: what is wrong is the element alone.
			c.timed(func() []step {
				ok = r.pushOne(c, element(c.id, c.next))
				return []step{c.pushed(ok), c.shown()}
			})
			continue
		}
		c.timed(func() []step {
			ok = r.pushOne(c, element(c.id, c.next))
			return []step{c.pushed(ok)}
		})
		c.timed(func() []step {
			r.fill.store()
			return []step{c.shown()}
		})
	}
}

func (r *sharedRing) pushOne(c *client, v value) bool {
	slot, ok := r.fill.begin()
	if r.fault == fullIsOverlooked {
		ok = true
	}
	if !ok {
		return false
	}
	switch r.fault {
	case none:
		r.mem.write(slot, v)
	case indexBeforeElement:
		r.fill.advance()
		r.fill.store()
		c.pause()
		r.mem.writeWord(slot, v)
		return true
	default:
		r.mem.writeWord(slot, v)
	}
	r.fill.advance()
	return true
}

func (r *sharedRing) consume(c *client, n int) {
	for ok := true; ok && n > 0; n-- {
		c.timed(func() []step {
			var v value
			v, ok = r.popOne(c)
			steps := []step{c.poppedOne(v, ok)}
			if r.fault == releaseBeforeRead { // one call, as above
				steps = append(steps, c.released())
			}
			return steps
		})
	}
	c.timed(func() []step {
		r.drain.store()
		return []step{c.released()}
	})
}

func (r *sharedRing) popOne(c *client) (v value, ok bool) {
	if r.fault == emptyIsBelieved && c.rng.IntN(4) == 0 {
		return 0, false
	}
	slot, ok := r.drain.begin()
	if !ok {
		return 0, false
	}
	switch r.fault {
	case none:
		v = r.mem.read(slot)
	case releaseBeforeRead:
		r.drain.advance()
		r.drain.store()
		c.pause()
		return r.mem.readWord(slot), true
	default:
		v = r.mem.readWord(slot)
	}
	c.pause()
	r.drain.advance()
	return v, true
}

// deviceRing is what Ring and EventRing have in common.
type deviceRing interface {
	Full(prod, cons uint32) bool
	Pending(prod, cons uint32) (uint32, bool)
	Inc(idx uint32) uint32
	Slot(idx uint32) uint32
}

// allSlots is how a device would count that believes what the driver says about the number of slots.
type allSlots uint32

func (n allSlots) Full(prod, cons uint32) bool {
	return (prod+2*uint32(n)-cons)%(2*uint32(n)) == uint32(n)
}
func (n allSlots) Pending(uint32, uint32) (uint32, bool) { return 0, true }
func (n allSlots) Inc(idx uint32) uint32                 { return (idx + 1) % (2 * uint32(n)) }
func (n allSlots) Slot(idx uint32) uint32                { return idx % uint32(n) }

// errIndex is the panic of a device that finds a guest's index which no correct guest can write.
var errIndex = errors.New("the guest's index is not valid")

// deviceFiller is the device that completes work or reports events. It looks at the guest's index when its copy says
// that the ring is full.
type deviceFiller struct {
	mem        memory
	ring       deviceRing
	prod, cons uint32
}

func (f *deviceFiller) begin() (uint32, bool) {
	if f.ring.Full(f.prod, f.cons) {
		f.cons = f.mem.load(consHead)
		if _, ok := f.ring.Pending(f.prod, f.cons); !ok {
			panic(errIndex)
		}
	}
	return f.ring.Slot(f.prod), !f.ring.Full(f.prod, f.cons)
}

func (f *deviceFiller) advance() { f.prod = f.ring.Inc(f.prod) }
func (f *deviceFiller) store()   { f.mem.store(prodTail, f.prod) }

// deviceDrainer is the device that takes work requests.
type deviceDrainer struct {
	mem        memory
	ring       deviceRing
	cons, prod uint32
}

func (d *deviceDrainer) begin() (uint32, bool) {
	if d.prod == d.cons {
		d.prod = d.mem.load(prodTail)
	}
	n, ok := d.ring.Pending(d.prod, d.cons)
	if !ok {
		panic(errIndex)
	}
	return d.ring.Slot(d.cons), n > 0
}

func (d *deviceDrainer) advance() { d.cons = d.ring.Inc(d.cons) }
func (d *deviceDrainer) store()   { d.mem.store(consHead, d.cons) }

// guestEnd is a guest's end of a ring: the driver's functions on indices just read.
type guestEnd struct {
	mem memory
	d   driver
}

type guestFiller struct{ guestEnd }

func (g *guestFiller) begin() (uint32, bool) {
	g.d.cons = g.mem.load(consHead)
	space, slot := g.d.hasSpace()
	return slot, space == 1
}

func (g *guestFiller) advance() { g.d.inc(&g.d.prod) }
func (g *guestFiller) store()   { g.mem.store(prodTail, g.d.prod) }

type guestDrainer struct{ guestEnd }

func (g *guestDrainer) begin() (uint32, bool) {
	g.d.prod = g.mem.load(prodTail)
	data, slot := g.d.hasData()
	return slot, data == 1
}

func (g *guestDrainer) advance() { g.d.inc(&g.d.cons) }
func (g *guestDrainer) store()   { g.mem.store(consHead, g.d.cons) }
