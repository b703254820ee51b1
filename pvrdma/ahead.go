// SPDX-License-Identifier: Apache-2.0

package pvrdma

import "github.com/pvrdmad/pvrdmad/guestmem"

// What a message touches of a queue pair are some 25 lines, its own, the engine's at both ends and the guest's. One that is in
// no cache takes as long as the rest of the message, and thousands of busy queue pairs are in none. So a device that had work
// for many in its last visit is served in two steps: a sweep and words only put queue pairs into Device.ready; then they have
// their turns, during which the lines of those whose turns come soon are asked for. A device with few is served at once, because
// that is sooner.

const (
	// crowd is how many queue pairs are many: as many as fit into no first-level cache.
	crowd = 8
	// objectAhead, listAhead and ringAhead are how many looks before its turn each line of a queue pair is asked for that leads
	// to the next: the queue pair itself, the list of its pages, the line of its indices.
	objectAhead, listAhead, ringAhead = 9, 6, 3
	// requestAhead and peerAhead are how many turns before its own a queue pair asks for what its request needs, and for the
	// other end's lines, the way to which lies in its own.
	requestAhead, peerAhead = 6, 3
	// pairBytes are what a message needs of a queuePair, ringBytes of the page of indices.
	pairBytes, ringBytes = 256, 16
)

// prefetcher is a queue pair of an engine that can be asked for its memory before it is used. Neither method changes anything.
type prefetcher interface {
	// Prefetch asks for the queue pair's own memory.
	Prefetch()
	// PrefetchPeer asks for that of the one at the other end, some time later.
	PrefetchPeer()
}

// gathers reports whether more queue pairs may be looked at before those that have work have their turns.
func (d *Device) gathers() bool {
	if d.crowded {
		return d.looks > passShare // one look for each turn
	}
	return d.looks > 0
}

// prefetchQPs asks for lines of the queue pairs that the sweep is about to look at.
func (c *userContext) prefetchQPs() {
	n := len(c.qps)
	if n <= objectAhead {
		return
	}
	nth := func(k int) *queuePair {
		if k += c.qpSweep.at; k >= n {
			k -= n
		}
		return c.qps[k]
	}
	guestmem.PrefetchObject(nth(objectAhead), pairBytes)
	nth(listAhead).pages.PrefetchList()
	nth(ringAhead).pages.Prefetch(0, ringBytes)
}

// prefetchTurns asks for lines of the queue pairs whose turns come soon. n have one in this pass.
func (d *Device) prefetchTurns(n int) {
	if n > objectAhead {
		guestmem.PrefetchObject(d.ready.at(objectAhead), pairBytes)
	}
	if n > requestAhead {
		d.ready.at(requestAhead).prefetchRequest()
	}
	if n > peerAhead {
		d.ready.at(peerAhead).prefetchPeer()
	}
}

// prefetchRequest asks for what the queue pair's next request needs first.
func (q *queuePair) prefetchRequest() {
	if q.dead {
		return
	}
	if q.ahead != nil {
		q.ahead.Prefetch()
	}
	q.prefetch(&q.sq, 1)
}

// prefetchPeer asks for what it needs of the other end.
func (q *queuePair) prefetchPeer() {
	if q.ahead != nil {
		q.ahead.PrefetchPeer()
	}
}
