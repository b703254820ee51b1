// SPDX-License-Identifier: Apache-2.0

package ringbuf_test

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pvrdmad/pvrdmad/ringbuf"
)

// A script for FuzzHostileIndices is two bytes that choose the rings, and records of five bytes: what happens, and a
// number that the guest writes.
const recordBytes = 5

const (
	guestWritesProd = iota
	guestWritesCons
	deviceDrains
	deviceFills
	deviceReports
	happenings
)

// turn bounds how many entries the device handles before it looks at the guest's index again.
const turn = 64

// hostileRings are the rings of a device whose guest writes what it likes.
type hostileRings struct {
	words  [2]atomic.Uint32 // prod_tail and cons_head, in the guest's hands
	ring   ringbuf.Ring
	events ringbuf.EventRing
	// The device's own indices: of the ring it drains, the one it fills, and the one it reports events in.
	cons, prod, event uint32
}

// hostile lets a device work on the rings that a script describes. What it does is bounded and stays inside of the rings,
// and an index that is refused moves nothing.
func hostile(t *testing.T, script []byte) {
	if len(script) < 2 {
		return
	}
	h := &hostileRings{ring: ringbuf.Ring{N: 1 << (script[0] & 31)}}
	slots := 1 + uint32(script[1])*13 // up to 3,316, more than a driver's rings have
	h.events = must(ringbuf.NewEventRing(slots))

	// A second processor of the guest writes the script's numbers all the time.
	records := slices.Collect(slices.Chunk(script[2:], recordBytes))
	if len(records) > 0 && len(records[len(records)-1]) < recordBytes {
		records = records[:len(records)-1]
	}
	var over atomic.Bool
	var guest sync.WaitGroup
	guest.Go(func() {
		for i := 0; i < len(records) && !over.Load(); i = (i + 1) % len(records) {
			h.words[records[i][0]&1].Store(binary.LittleEndian.Uint32(records[i][1:]))
		}
	})
	defer guest.Wait()
	defer over.Store(true)

	for _, r := range records {
		switch number := binary.LittleEndian.Uint32(r[1:]); r[0] % happenings {
		case guestWritesProd:
			h.words[0].Store(number)
		case guestWritesCons:
			h.words[1].Store(number)
		case deviceDrains:
			h.drain(t)
		case deviceFills:
			h.prod = fillAll(t, h.ring, h.prod, h.words[1].Load(), h.ring.N, h.ring.N)
		case deviceReports:
			h.event = fillAll(t, h.events, h.event, h.words[1].Load(), h.events.Capacity(), slots)
		}
	}
}

// drain takes what the guest says that it has put in.
func (h *hostileRings) drain(t *testing.T) {
	prod := h.words[0].Load()
	n, ok := h.ring.Pending(prod, h.cons)
	free, freeOK := h.ring.Free(prod, h.cons)
	if n > h.ring.N || ok != freeOK || (ok && n+free != h.ring.N) || (!ok && (n != 0 || free != 0)) {
		t.Fatalf("%+v: Pending(%#x, %#x) is %d, %v; Free is %d, %v", h.ring, prod, h.cons, n, ok, free, freeOK)
	}
	if ok && h.ring.Add(h.cons, n) != prod {
		t.Fatalf("%+v: %d entries from %#x do not lead to %#x", h.ring, n, h.cons, prod)
	}
	for range min(n, turn) {
		if slot := h.ring.Slot(h.cons); slot >= h.ring.N {
			t.Fatalf("%+v: index %#x is slot %d", h.ring, h.cons, slot)
		}
		h.cons = h.ring.Inc(h.cons)
	}
	if !h.ring.Valid(h.cons) {
		t.Fatalf("%+v: the device's own index is %#x", h.ring, h.cons)
	}
}

// fillAll appends entries for as long as there is room by the guest's word, and returns the device's new index.
func fillAll(t *testing.T, r deviceRing, prod, cons, capacity, slots uint32) uint32 {
	n, ok := r.Pending(prod, cons)
	if n > capacity || (!ok && n != 0) {
		t.Fatalf("%+v: Pending(%#x, %#x) is %d, %v", r, prod, cons, n, ok)
	}
	if !ok {
		return prod
	}
	for added := uint32(0); added < turn && !r.Full(prod, cons); added++ {
		if n+added >= capacity {
			t.Fatalf("%+v: room for one more than %d", r, n+added)
		}
		if slot := r.Slot(prod); slot >= slots {
			t.Fatalf("%+v: index %#x is slot %d", r, prod, slot)
		}
		prod = r.Inc(prod)
	}
	return prod
}

// record is one record of a script.
func record(what byte, number uint32) []byte {
	return binary.LittleEndian.AppendUint32([]byte{what}, number)
}

func hostileScripts() (scripts [][]byte) {
	for _, rings := range [][]byte{{0, 0}, {4, 118}, {9, 236}, {31, 255}} {
		n := uint32(1) << rings[0]
		script := append([]byte(nil), rings...)
		for _, idx := range []uint32{0, 1, n - 1, n, n + 1, 2*n - 1, 2 * n, 511, 512, 1023, 1024, 1536, 1 << 31, 1<<32 - 1} {
			script = append(script, record(guestWritesProd, idx)...)
			script = append(script, record(deviceDrains, 0)...)
			script = append(script, record(guestWritesCons, idx)...)
			script = append(script, record(deviceFills, 0)...)
			script = append(script, record(deviceReports, 0)...)
		}
		scripts = append(scripts, script)
	}
	return scripts
}

func FuzzHostileIndices(f *testing.F) {
	for _, script := range hostileScripts() {
		f.Add(script)
	}
	f.Fuzz(hostile)
}

// TestNoIndexLeadsOutOfARing is FuzzHostileIndices on a fixed sequence of inputs.
func TestNoIndexLeadsOutOfARing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		script := []byte{byte(rng.Uint32()), byte(rng.Uint32())}
		n := uint32(1) << (script[0] & 31)
		for range rng.IntN(60) {
			number := rng.Uint32()
			if rng.IntN(3) != 0 {
				number &= 4*n - 1 // close enough to be believed now and then
			}
			script = append(script, record(byte(rng.IntN(happenings)), number)...)
		}
		hostile(t, script)
	}
}
