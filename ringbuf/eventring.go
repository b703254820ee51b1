// SPDX-License-Identifier: Apache-2.0

package ringbuf

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// MaxEventSlots is the most slots of an EventRing. The Linux driver gives its rings three data pages, 1,536 and 3,072
// slots; this leaves room for 1,024 pages of the smaller entry and bounds the work of NewEventRing to milliseconds.
const MaxEventSlots = 1 << 20

// EventRing is the index arithmetic of the two rings of a whole device: asynchronous events and notifications of
// completion queues. The driver uses the functions of Ring on them with a number of slots that is not a power of
// two. Bits are then missing in the masks, and the driver's index comes back to 0 long before 2N: of 1,536 slots only
// 512 are ever used. A device that counted otherwise would write indices that the driver refuses, and the driver
// would never read the ring again.
//
// So an EventRing of N slots has a capacity E <= N: indices run from 0 to 2E-1, and the ring is full at E entries.
type EventRing struct {
	slots uint32
	ring  Ring // of the capacity, which is always a power of two
}

// NewEventRing finds out the capacity of a ring for which the driver assumes slots entries. EINVAL for no slots or
// more than MaxEventSlots.
func NewEventRing(slots uint32) (EventRing, error) {
	if slots == 0 || slots > MaxEventSlots {
		return EventRing{}, fmt.Errorf("event ring of %d slots (1 to %d allowed): %w", slots, MaxEventSlots, unix.EINVAL)
	}
	ring, err := NewRing(driverCycle(slots) / 2)
	if err != nil {
		return EventRing{}, fmt.Errorf("event ring of %d slots: %w", slots, err)
	}
	return EventRing{slots: slots, ring: ring}, nil
}

// driverCycle walks the driver's increment from 0 until it is back at 0 and returns the number of steps, at most
// 2*slots since every index on the way is below that and none comes twice.
func driverCycle(slots uint32) uint32 {
	mask := 2*slots - 1
	steps := uint32(1)
	for idx := 1 & mask; idx != 0; idx = (idx + 1) & mask {
		steps++
	}
	return steps
}

// Slots is the number of slots that the ring's pages have room for.
func (r EventRing) Slots() uint32 { return r.slots }

// Capacity is the number of entries that can be outstanding.
func (r EventRing) Capacity() uint32 { return r.ring.N }

// Valid says whether idx is an index that the driver can produce.
func (r EventRing) Valid(idx uint32) bool { return r.ring.Valid(idx) }

// Inc returns the index after idx, as the driver's pvrdma_idx_ring_inc does for every index it can produce.
func (r EventRing) Inc(idx uint32) uint32 { return r.ring.Inc(idx) }

// Slot returns the slot in which the driver looks for the entry idx.
func (r EventRing) Slot(idx uint32) uint32 { return r.ring.Slot(idx) }

// Empty says whether the driver has read everything.
func (r EventRing) Empty(prod, cons uint32) bool { return r.ring.Empty(prod, cons) }

// Full says whether one more entry would overwrite one that the driver has not read. On a ring whose slots are not a
// power of two the driver's own test is never true.
func (r EventRing) Full(prod, cons uint32) bool { return r.ring.Full(prod, cons) }

// Pending returns how many entries the driver has not read. ok is false for indices that no driver produces.
func (r EventRing) Pending(prod, cons uint32) (n uint32, ok bool) { return r.ring.Pending(prod, cons) }
