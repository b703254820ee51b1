// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// sweepSlice is how many queue pairs of a context one pass looks at when a doorbell word may have hidden others: about
// half a microsecond of loads, so that a new word waits no longer.
const sweepSlice = 64

// maxTrapped is how many doorbells by message may wait for the worker: more than a guest can send while the worker
// makes one pass. The sender waits beyond it.
const maxTrapped = 1024

var errNoSuchObject = fmt.Errorf("doorbell of an object that is not there or not the context's: %w", unix.EINVAL)

// userContext is a user of the device: a process of the guest that opened it, or the guest kernel (handle 0).
type userContext struct {
	handle uint32
	// page is the context's doorbell page, 0 for the kernel's.
	page uint32
	qps  []*queuePair
	cqs  []*completionQueue

	// sweepAt is the next index into qps to look at, sweepLeft how many are left to look at. Worker.
	sweepAt, sweepLeft int
}

// doorbell is a doorbell that came by message.
type doorbell struct{ page, offset, value uint32 }

// trappedDoorbells carries doorbells from the guest's goroutine to the worker.
type trappedDoorbells struct {
	waiting atomic.Int32
	mu      sync.Mutex
	queue   []doorbell // guarded by mu
	// spare is the slice that queue was before, so that both keep their memory. Worker.
	spare []doorbell
}

// Doorbell rings: a store of value at offset of a doorbell page that came by message. It returns at once; the worker
// serves it. Offsets that are no doorbell are ignored, and so is POLL, which needs no answer.
func (d *Device) Doorbell(page, offset, value uint32) {
	if d.engine == nil || (offset == abi.UARCQOffset && value&(abi.UARCQArm|abi.UARCQArmSol) == 0) {
		return
	}
	t := &d.trapped
	t.mu.Lock()
	t.queue = append(t.queue, doorbell{page, offset, value})
	n := len(t.queue)
	t.mu.Unlock()
	t.waiting.Store(1)
	if n >= maxTrapped {
		d.do(func() { d.takeTrapped() })
		return
	}
	d.worker.Wake()
}

// Rung says that doorbell pages may have been written: the poller looks at once. Any goroutine.
func (d *Device) Rung() { d.worker.Wake() }

// takeDoorbells serves the doorbells that were rung until now, so that a command sees their effect. Runs inside
// Device.do.
func (d *Device) takeDoorbells() {
	if d.failed {
		return
	}
	d.takeTrapped()
	for _, c := range d.polled {
		d.takePage(c)
	}
}

// dropDoorbells forgets doorbells that were rung and not served. Runs inside Worker.Do.
func (d *Device) dropDoorbells() {
	d.trapped.mu.Lock()
	d.trapped.queue = d.trapped.queue[:0]
	d.trapped.mu.Unlock()
	for _, c := range d.polled {
		d.doorbells.Zero(int(c.page))
	}
}

func (d *Device) takeTrapped() bool {
	t := &d.trapped
	if t.waiting.Load() == 0 {
		return false
	}
	t.mu.Lock()
	queue := t.queue
	t.queue = t.spare[:0]
	t.waiting.Store(0)
	t.mu.Unlock()
	t.spare = queue
	for _, b := range queue {
		if d.failed {
			break
		}
		d.ring(b)
	}
	return len(queue) != 0
}

// ring serves a doorbell that came by message; its meaning is exact.
func (d *Device) ring(b doorbell) {
	d.count(&d.statistics.doorbells, 1)
	handle := b.value & abi.UARHandleMask
	switch b.offset {
	case abi.UARQPOffset:
		q := d.qps.get(handle)
		if q == nil || (b.page != 0 && q.ctx.page != b.page) {
			d.violation(BadDoorbell, errNoSuchObject)
			return
		}
		q.rung(b.value)
	case abi.UARCQOffset:
		c := d.cqs.get(handle)
		if c == nil || (b.page != 0 && c.ctx.page != b.page) {
			d.violation(BadDoorbell, errNoSuchObject)
			return
		}
		c.arm(b.value)
	default:
		d.violation(BadDoorbell, errNoSuchObject)
	}
}

// takePage looks at the three words of a context's doorbell page. It loads before it exchanges: an idle page costs
// three loads. It reports whether there was work, and whether somebody looks at a completion queue there: user space
// writes a word whenever it finds its queue empty, so that a program which polls would keep the worker from ever sleeping
// if that was work.
func (d *Device) takePage(c *userContext) (worked, watched bool) {
	base := int(c.page) * abi.PageSize
	if d.doorbells.Load32(base+abi.UARQPOffset) != 0 {
		v := d.doorbells.Swap32(base+abi.UARQPOffset, 0)
		d.count(&d.statistics.doorbells, 1)
		if q := d.qps.get(v & abi.UARHandleMask); q != nil && q.ctx == c {
			q.rung(v)
		}
		c.sweepLeft = len(c.qps)
		worked = true
	}
	if d.doorbells.Load32(base+abi.UARCQOffset) != 0 {
		d.doorbells.Swap32(base+abi.UARCQOffset, 0)
		for _, q := range c.cqs {
			q.maybeArm()
		}
		watched = true
	}
	if d.doorbells.Load32(base+abi.UARSRQOffset) != 0 {
		d.doorbells.Swap32(base+abi.UARSRQOffset, 0)
		d.violation(BadDoorbell, errNoSuchObject)
		worked = true
	}
	if c.sweepLeft > 0 {
		c.sweep()
		worked = true
	}
	return worked, watched
}

// sweep looks at the next queue pairs of the context. A word names one queue pair, and hides the one that was rung just
// before it.
func (c *userContext) sweep() {
	if len(c.qps) == 0 {
		c.sweepLeft = 0 // all were destroyed meanwhile
		return
	}
	n := min(c.sweepLeft, sweepSlice, len(c.qps))
	for d := c.qps[0].dev; n > 0 && d.share > 0 && d.looks > 0; n-- {
		if c.sweepAt >= len(c.qps) {
			c.sweepAt = 0
		}
		c.qps[c.sweepAt].rung(abi.UARQPSend | abi.UARQPRecv)
		c.sweepAt++
		c.sweepLeft--
	}
}

// poll does a bounded amount of the device's work and reports whether there was any, and when to come again.
func (d *Device) poll(now int64) (worked bool, next int64) {
	worked = d.takeTrapped()
	for _, c := range d.polled {
		did, watched := d.takePage(c)
		worked = worked || did
		if watched {
			next = earlier(next, now+firstIdleStep)
		}
	}
	if d.serveReady() {
		worked = true
	}
	if len(d.graced) != 0 {
		next = earlier(next, d.checkGraced(now))
	}
	if d.unflushed {
		if d.unflushed = !d.notifier.Flush(); d.unflushed {
			next = earlier(next, now+flushRetry)
		}
	}
	return worked, next
}

// flushRetry is how long to wait before the guest's full event ring is looked at again, nanoseconds: the guest does not
// say when it has made room. It is as long as an idle step, so that a guest which never does costs no more than one that is
// polled.
const flushRetry = shortestMaxStep

// count adds to a counter whose only writer is the worker.
func (d *Device) count(c *atomic.Uint64, n uint64) { c.Store(c.Load() + n) }
