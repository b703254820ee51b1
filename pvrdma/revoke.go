// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"fmt"
	"slices"

	"github.com/pvrdmad/pvrdmad/guestmem"
)

// EndRevoked ends the queue pairs, completion queues and shared receive queues whose memory, or a part of it, was unmapped: each gets its event
// and goes to the error state, whether or not it is in use. A page list that was revoked never comes back, so that memory
// which is mapped in the place of the old does not help.
//
// The adapter calls it after it has taken memory away, before it says so. It costs a look at each object if any page list
// was revoked, and nothing otherwise. Memory regions have no events: the work requests that use one fail.
func (d *Device) EndRevoked() {
	n := d.mem.Revocations()
	if d.engine == nil || n == d.revocations {
		return
	}
	d.revocations = n
	endBatches(d, d.cqs.slots, func(c *completionQueue) bool { return c.pages.Revoked() }, func(c *completionQueue) {
		if !c.dead {
			_ = c.lost(c.revoked())
		}
	})
	endBatches(d, d.srqs.slots, func(s *sharedReceiveQueue) bool { return s.pages.Revoked() }, func(s *sharedReceiveQueue) {
		s.broken(BadMemory, fmt.Errorf("shared receive queue %d: %w", s.handle, guestmem.ErrRevoked))
	})
	endBatches(d, d.qps.slots, func(q *queuePair) bool { return q.pages.Revoked() }, func(q *queuePair) {
		q.broken(BadMemory, fmt.Errorf("queue pair %d: %w", q.handle, guestmem.ErrRevoked))
	})
}

// endBatches ends the objects of a table that are revoked, some in each visit of the worker: the other guests wait for one
// batch, however many objects a guest had there.
func endBatches[T any](d *Device, slots []*T, revoked func(*T) bool, end func(*T)) {
	var gone []*T
	for _, x := range slots {
		if x != nil && revoked(x) {
			gone = append(gone, x)
		}
	}
	for batch := range slices.Chunk(gone, destroyBatch) {
		d.do(func() {
			for _, x := range batch {
				if !d.failed {
					end(x)
				}
			}
		})
	}
}
