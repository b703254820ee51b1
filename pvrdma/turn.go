// SPDX-License-Identifier: Apache-2.0

package pvrdma

// later gives the queue pair another turn.
func (q *queuePair) later() {
	if !q.dead && !q.parked {
		q.enqueue()
	}
}

// waitOn is later for a queue pair that the device's share does not go to. If there was some, and it has got nothing, it keeps its
// place: among others with short messages there would never be enough left for a long one at the end of the queue.
func (q *queuePair) waitOn(first bool) {
	if first && !q.queued && !q.dead && !q.parked {
		q.queued = true
		q.dev.ready.putBack(q)
		return
	}
	q.later()
}

func (q *queuePair) enqueue() {
	if !q.queued {
		q.queued = true
		q.dev.ready.push(q)
	}
}
