// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// A key is a slot number in the upper 17 bits and the slot's generation in the lower 15, so that a key that was
// deregistered matches nothing until its slot has been used 32,767 times more. The low byte is part of the generation:
// fast registration, once it exists, can give it to the guest and tell regions apart by the other 24 bits.
const (
	keySlotBits = 17
	keyGenBits  = 32 - keySlotBits
	keyGenMask  = 1<<keyGenBits - 1
)

// keyTable finds memory regions by key. There is one for each guest.
type keyTable struct {
	// slots is read by the owner's thread and written there.
	slots []*mr

	// What follows belongs to control calls.
	gens []uint16
	// free is a queue of free slot numbers: the slot that was freed first is used first.
	free []uint32
	used int
}

// reserve returns a key for a new region, and a longer slot list if the table has to grow.
func (t *keyTable) reserve(limit int) (key uint32, grown []*mr, err error) {
	if t.used >= limit {
		return 0, nil, fmt.Errorf("%d memory regions, the limit: %w", t.used, unix.ENOMEM)
	}
	const first = 16 // slots of a guest's first registration
	if len(t.free) == 0 {
		n := len(t.gens)
		grown = make([]*mr, max(first, 2*n))
		copy(grown, t.slots)
		t.gens = append(t.gens, make([]uint16, len(grown)-n)...)
		for i := n; i < len(grown); i++ {
			t.free = append(t.free, uint32(i))
		}
	}
	slot := t.free[0]
	t.free = t.free[1:]
	t.used++
	gen := t.gens[slot]%keyGenMask + 1 // 1 to 32,767: no key is 0
	t.gens[slot] = gen
	return slot<<keyGenBits | uint32(gen), grown, nil
}

// release gives the slot of a key back.
func (t *keyTable) release(key uint32) {
	t.free = append(t.free, key>>keyGenBits)
	t.used--
}

// set makes the region findable. Owner's thread.
func (t *keyTable) set(m *mr) { t.slots[m.key>>keyGenBits] = m }

// unset makes it unfindable. Owner's thread.
func (t *keyTable) unset(m *mr) { t.slots[m.key>>keyGenBits] = nil }

// find returns the region with a key, or nil. Owner's thread.
func (t *keyTable) find(key uint32) *mr {
	i := key >> keyGenBits
	if int(i) >= len(t.slots) {
		return nil
	}
	m := t.slots[i]
	if m == nil || m.key != key {
		return nil
	}
	return m
}
