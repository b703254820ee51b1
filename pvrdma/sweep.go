// SPDX-License-Identifier: Apache-2.0

package pvrdma

import "github.com/pvrdmad/pvrdmad/pvrdma/abi"

// sweepSlice is how many objects of a context one pass looks at when a doorbell word may have hidden others: about
// half a microsecond of loads, so that a new word waits no longer.
const sweepSlice = 64

// sweep is a look at all of a list, a slice of it in each pass. The zero sweep is over.
type sweep struct {
	// at is the next index to look at, left how many are left to look at.
	at, left int
}

// begin starts to look at all n of a list once more, from where the last look ended.
func (s *sweep) begin(n int) { s.left = n }

// changed says that the list has n elements now. The others have moved: a sweep under way starts again.
func (s *sweep) changed(n int) {
	if s.left > 0 {
		s.left = n
	}
}

// slice returns how many to look at in this pass.
func (s *sweep) slice(n int) int {
	s.left = min(s.left, n)
	return min(s.left, sweepSlice)
}

// next returns the index to look at next in a list of n.
func (s *sweep) next(n int) int {
	if s.at >= n {
		s.at = 0
	}
	s.at++
	s.left--
	return s.at - 1
}

// sweepAlways is how many queue pairs a pass looks at even if a new word waits already, so that a sweep comes to its end.
const sweepAlways = 2

// sweepQPs looks at the next queue pairs of the context. A word names one queue pair, and hides the one that was rung just
// before it. A new word is served first, and sweepQPs reports that there is one: one that hides nobody, as nearly all do, waits
// for no more than two looks.
func (c *userContext) sweepQPs(d *Device) (word bool) {
	at := int(c.page)*abi.PageSize + abi.UARQPOffset
	n := c.qpSweep.slice(len(c.qps))
	for i := 0; i < n && d.share > 0 && d.gathers(); i++ {
		if i >= sweepAlways && d.doorbells.Load32(at) != 0 {
			return true
		}
		if d.crowded {
			c.prefetchQPs()
		}
		c.qps[c.qpSweep.next(len(c.qps))].look()
	}
	return false
}

// sweepCQs looks at the next completion queues of the context: those that hold something may have been armed.
func (c *userContext) sweepCQs(d *Device) {
	for n := c.cqSweep.slice(len(c.cqs)); n > 0 && d.looks > 0; n-- {
		d.looks--
		c.cqs[c.cqSweep.next(len(c.cqs))].look()
	}
}
