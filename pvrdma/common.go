// SPDX-License-Identifier: Apache-2.0

package pvrdma

// failUsers fails the queue pairs that use a queue which several use, a completion queue or a shared receive queue, and which
// is dead now. It does so in the next passes: a guest may have thousands of both. One look at all queue pairs that begins
// after the last queue has failed finds those of all, so that nothing is kept of a queue: a guest can make and destroy queues
// faster than their queue pairs are found.
func (d *Device) failUsers() { d.failLeft = len(d.qps.slots) }

// spreadFailures fails queue pairs of queues that have failed. A look at one goes on to its queues, and counts for two.
func (d *Device) spreadFailures() {
	slots := d.qps.slots
	for ; d.failLeft > 0 && d.looks > 0; d.failLeft-- {
		d.looks--
		if d.failAt >= len(slots) {
			d.failAt = 0
		}
		q := slots[d.failAt]
		d.failAt++
		if q == nil {
			continue
		}
		d.looks--
		if q.orphaned() {
			q.failLater()
		}
	}
}

// orphaned says whether a queue that the queue pair uses has failed and the queue pair was not told, and takes it for told from
// then on.
func (q *queuePair) orphaned() bool {
	if q.told || (!q.sendCQ.dead && !q.recvCQ.dead && (q.srq == nil || !q.srq.dead)) {
		return false
	}
	q.told = true
	return true
}
