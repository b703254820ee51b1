// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// A key is a slot number in the upper 17 bits and the slot's generation in the lower 15, so that a key that was
// deregistered matches nothing until its slot has gone through all 32,767 generations. An ordinary region takes one. Of a
// region for fast registration the guest chooses the low byte anew with each registration (ib_update_fast_reg_key in
// include/rdma/ib_verbs.h): such a region takes all 256 generations with the same upper bits, so that 127 of them in one
// slot bring its keys back. The generation is never 0, so that no key is.
const (
	keySlotBits = 17
	keyGenBits  = 32 - keySlotBits
	keyGenMask  = 1<<keyGenBits - 1
	keyByteMask = 1<<8 - 1
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
func (t *keyTable) reserve(limit int, fast bool) (key uint32, grown []*mr, err error) {
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
	use, last := nextGen(t.gens[slot], fast)
	t.gens[slot] = last
	return slot<<keyGenBits | uint32(use), grown, nil
}

// nextGen returns the generation that follows the last one of a slot, and the last one that is used with it.
func nextGen(gen uint16, fast bool) (use, last uint16) {
	if !fast {
		gen = gen%keyGenMask + 1 // 1 to 32,767: no key is 0
		return gen, gen
	}
	use = (gen | keyByteMask) + 1
	if use > keyGenMask {
		use = keyByteMask + 1
	}
	return use, use | keyByteMask
}

// release gives the slot of a key back.
func (t *keyTable) release(key uint32) {
	t.free = append(t.free, key>>keyGenBits)
	t.used--
}

// set makes the region findable. Owner's thread.
func (t *keyTable) set(m *mr) { t.slots[m.id>>keyGenBits] = m }

// unset makes it unfindable. Owner's thread.
func (t *keyTable) unset(m *mr) { t.slots[m.id>>keyGenBits] = nil }

// find returns the region with a key, or nil. Owner's thread.
func (t *keyTable) find(key uint32) *mr {
	i := key >> keyGenBits
	if int(i) >= len(t.slots) {
		return nil
	}
	m := t.slots[i]
	if m == nil || m.key != key || key == 0 { // a region without memory has the key 0
		return nil
	}
	return m
}
