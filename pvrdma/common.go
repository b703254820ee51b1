// SPDX-License-Identifier: Apache-2.0

package pvrdma

// common is the part of what several queue pairs use, a completion queue or a shared receive queue, that takes them along when
// it fails. Worker.
type common struct {
	// failing says that it has failed and not all its queue pairs have, failAt is the next slot of Device.qps to look at for
	// them.
	failing bool
	failAt  int
}

func (c *common) part() *common { return c }

// commonQueue is what several queue pairs use.
type commonQueue interface {
	part() *common
	usedBy(q *queuePair) bool
}

// failUsers fails the queue pairs that use a queue, in the next passes: a guest may have thousands of both.
func (d *Device) failUsers(x commonQueue) {
	c := x.part()
	c.failing, c.failAt = true, 0
	d.failing.push(x)
}

// spreadFailures fails queue pairs of queues that have failed.
func (d *Device) spreadFailures() {
	for d.failing.len() > 0 && d.looks > 0 {
		x := d.failing.front()
		c := x.part()
		if c.failAt >= len(d.qps.slots) {
			c.failing = false
			d.failing.pop()
			continue
		}
		d.looks--
		if q := d.qps.slots[c.failAt]; q != nil && x.usedBy(q) {
			q.failLater()
		}
		c.failAt++
	}
}
