// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// maxTrapped is how many doorbells by message may wait for the worker: more than a guest can send while the worker
// makes one pass. The sender waits beyond it.
const maxTrapped = 1024

var (
	errNoSuchObject = fmt.Errorf("doorbell of an object that is not there or not the context's: %w", unix.EINVAL)
	errNoRecvQueue  = fmt.Errorf("doorbell for receives of a queue pair that takes them from a shared queue: %w", unix.EINVAL)
)

// userContext is a user of the device: a process of the guest that opened it, or the guest kernel (handle 0).
type userContext struct {
	handle uint32
	// page is the context's doorbell page, 0 for the kernel's.
	page uint32
	qps  []*queuePair
	cqs  []*completionQueue
	srqs []*sharedReceiveQueue

	// words counts the words for completion queues that were found in the doorbell page. Worker.
	words uint64
	// qpSweep and cqSweep go through qps and cqs. Worker.
	qpSweep, cqSweep sweep
}

// listed is an object that knows its place in a list, so that it is taken out without a search.
type listed interface{ place() *int }

// enlist appends x to a list.
func enlist[E listed](list []E, x E) []E {
	*x.place() = len(list)
	return append(list, x)
}

// delist takes x out of a list and puts the last one in its place.
func delist[E listed](list []E, x E) []E {
	at, end := *x.place(), len(list)-1
	list[at] = list[end]
	*list[at].place() = at
	clear(list[end:])
	return list[:end]
}

func (q *queuePair) place() *int { return &q.at }

func (c *completionQueue) place() *int { return &c.at }

// addQP, dropQP, addCQ and dropCQ change the lists. Inside Worker.Do.
func (c *userContext) addQP(q *queuePair) {
	c.qps = enlist(c.qps, q)
	c.qpSweep.changed(len(c.qps))
}

func (c *userContext) dropQP(q *queuePair) {
	c.qps = delist(c.qps, q)
	c.qpSweep.changed(len(c.qps))
}

func (c *userContext) addCQ(q *completionQueue) {
	c.cqs = enlist(c.cqs, q)
	c.cqSweep.changed(len(c.cqs))
}

func (c *userContext) dropCQ(q *completionQueue) {
	c.cqs = delist(c.cqs, q)
	c.cqSweep.changed(len(c.cqs))
}

// without returns a copy of a list that lacks x.
func without[T comparable](list []T, x T) []T {
	return slices.DeleteFunc(slices.Clone(list), func(y T) bool { return y == x })
}

// doorbell is a doorbell that came by message.
type doorbell struct{ page, offset, value uint32 }

// trappedDoorbells carries doorbells from the guest's goroutine to the worker.
type trappedDoorbells struct {
	// waiting is how many were not served yet. The guest's goroutine adds, the worker subtracts.
	waiting atomic.Int64
	mu      sync.Mutex
	queue   []doorbell // guarded by mu
	// taken is what queue was before, of which served were served. The two slices change places, so that both keep
	// their memory. Worker.
	taken  []doorbell
	served int
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
	t.waiting.Add(1)
	t.mu.Unlock()
	if n >= maxTrapped {
		d.catchUp()
		return
	}
	d.worker.Wake()
}

// Rung says that the guest does something, so that doorbell pages may have been written: the poller looks soon. The
// goroutine of the guest's commands.
func (d *Device) Rung() {
	if len(d.polled) != 0 {
		d.worker.attend()
	}
}

// catchUp serves the doorbells that were rung until now, so that a command sees their effect. Other guests have their
// turns in between. Command goroutine.
func (d *Device) catchUp() {
	if !d.hasDoorbells() {
		return
	}
	for more, pages := true, len(d.polled); more; {
		more = false
		d.do(func() { pages, more = d.takeDoorbells(pages) })
	}
}

// hasDoorbells reports whether a doorbell may be waiting. Most commands find none, and need not disturb the worker. Command
// goroutine and worker.
func (d *Device) hasDoorbells() bool {
	if d.trapped.waiting.Load() != 0 {
		return true
	}
	for _, c := range d.polled {
		base := int(c.page) * abi.PageSize
		if d.doorbells.Load32(base+abi.UARQPOffset)|d.doorbells.Load32(base+abi.UARCQOffset)|
			d.doorbells.Load32(base+abi.UARSRQOffset) != 0 {
			return true
		}
	}
	return false
}

// takeDoorbells serves doorbells, those of some pages among them. It returns how many of these are left, and whether it is to be
// called again. Runs inside Device.do.
func (d *Device) takeDoorbells(pages int) (left int, more bool) {
	if d.failed {
		d.trapped.drop()
		return 0, false
	}
	d.looks = passLooks
	d.takeTrapped()
	for ; pages > 0 && d.looks > 0; pages-- {
		d.takePage(d.nextPage())
	}
	return pages, !d.failed && (pages > 0 || d.trapped.waiting.Load() != 0)
}

// nextPage returns the context whose doorbell page is looked at next. There is one.
func (d *Device) nextPage() *userContext {
	if d.pageAt >= len(d.polled) {
		d.pageAt = 0
	}
	d.pageAt++
	return d.polled[d.pageAt-1]
}

// dropDoorbells forgets doorbells that were rung and not served. Runs inside Worker.Do.
func (d *Device) dropDoorbells() {
	d.trapped.drop()
	for _, c := range d.polled {
		d.doorbells.Zero(int(c.page))
	}
}

// drop forgets all doorbells. Worker.
func (t *trappedDoorbells) drop() {
	t.mu.Lock()
	t.queue = t.queue[:0]
	t.waiting.Store(0)
	t.mu.Unlock()
	t.taken, t.served = t.taken[:0], 0
}

// next returns the doorbells that are to be served. Worker.
func (t *trappedDoorbells) next() []doorbell {
	if t.served == len(t.taken) {
		t.mu.Lock()
		t.queue, t.taken = t.taken[:0], t.queue
		t.mu.Unlock()
		t.served = 0
	}
	return t.taken[t.served:]
}

// takeTrapped serves doorbells that came by message, and reports whether there was one.
func (d *Device) takeTrapped() bool {
	t := &d.trapped
	if t.waiting.Load() == 0 {
		return false
	}
	queue := t.next()
	before := t.served
	defer func() { t.waiting.Add(int64(before - t.served)) }()
	for _, b := range queue {
		if d.failed || d.looks <= 0 {
			break
		}
		d.looks--
		t.served++
		d.ring(b)
	}
	return len(queue) != 0
}

// ring serves a doorbell that came by message; its meaning is exact.
func (d *Device) ring(b doorbell) {
	handle := b.value & abi.UARHandleMask
	switch b.offset {
	case abi.UARQPOffset:
		q := d.qps.get(handle)
		if q == nil || (b.page != 0 && q.ctx.page != b.page) {
			d.violation(BadDoorbell, errNoSuchObject)
			return
		}
		if q.hasNoRing(b.value) {
			d.violation(BadDoorbell, errNoRecvQueue)
			return
		}
		d.live.Doorbells++
		q.rung(b.value)
	case abi.UARCQOffset:
		c := d.cqs.get(handle)
		if c == nil || (b.page != 0 && c.ctx.page != b.page) {
			d.violation(BadDoorbell, errNoSuchObject)
			return
		}
		d.live.Doorbells++
		c.arm(b.value)
	case abi.UARSRQOffset:
		d.ringSRQ(b.value, func(s *sharedReceiveQueue) bool { return b.page == 0 || s.ctx.page == b.page })
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
	for again := true; again; {
		before := d.live.SendWQEs
		d.shownAt = passShare // who has rung waits for it
		worked = d.takeQPWord(c) || worked
		if again = c.qpSweep.left > 0; again {
			// A program with one request under way waits for it; one with many gains from words that gather.
			again = c.sweepQPs(d) && d.gathers() && d.live.SendWQEs-before <= 1
			worked = true
		}
	}
	if d.doorbells.Load32(base+abi.UARCQOffset) != 0 {
		d.looks--
		v := d.doorbells.Swap32(base+abi.UARCQOffset, 0)
		if q := d.cqs.get(v & abi.UARHandleMask); q == nil || q.ctx != c {
			d.violation(BadDoorbell, errNoSuchObject) // it may hide one that is good
		}
		c.words++
		c.cqSweep.begin(len(c.cqs))
		watched = true
	}
	worked = d.takeSRQWord(c) || worked
	if c.cqSweep.left > 0 {
		c.sweepCQs(d)
		worked = worked || c.cqSweep.left > 0
	}
	return worked, watched
}

// takeQPWord serves the word of queue pairs of a context's page, and reports whether there was one. One that names no queue pair
// of the context may hide one that does.
func (d *Device) takeQPWord(c *userContext) bool {
	word := int(c.page)*abi.PageSize + abi.UARQPOffset
	if d.doorbells.Load32(word) == 0 {
		return false
	}
	v := d.doorbells.Swap32(word, 0)
	d.looks-- // a word may be of nobody
	q := d.qps.get(v & abi.UARHandleMask)
	switch {
	case q == nil || q.ctx != c:
		q = nil
		d.violation(BadDoorbell, errNoSuchObject)
	case q.hasNoRing(v):
		d.violation(BadDoorbell, errNoRecvQueue)
	default:
		d.live.Doorbells++
	}
	if q != nil {
		q.rung(abi.UARQPSend | abi.UARQPRecv) // one of the two may have hidden the other
	}
	if q == nil || len(c.qps) > 1 {
		c.qpSweep.begin(len(c.qps))
	}
	return true
}

// quiet reports whether poll would find nothing to do. It touches no memory of the guest's, so that it needs no guard: most
// looks at most devices end here.
func (d *Device) quiet() bool {
	if d.unflushed || d.failLeft|d.ready.len()|d.graced.len() != 0 {
		return false
	}
	for _, c := range d.polled {
		if c.qpSweep.left|c.cqSweep.left != 0 {
			return false
		}
	}
	return !d.hasDoorbells()
}

// poll does a bounded amount of the device's work and reports whether there was any, and when to come again.
func (d *Device) poll(now int64) (worked bool, next int64) {
	worked = d.takeTrapped()
	d.keepLooks()
	for n := len(d.polled); n > 0 && d.looks > 0; n-- { // what is not looked at comes first in the next pass
		did, watched := d.takePage(d.nextPage())
		worked = worked || did
		if watched {
			next = earlier(next, now+firstIdleStep)
		}
	}
	if d.failLeft != 0 {
		d.keepLooks()
		d.spreadFailures()
		worked = true
	}
	d.keepLooks()
	if d.serveReady() {
		worked = true
	}
	if d.graced.len() != 0 {
		d.keepLooks()
		next = earlier(next, d.checkGraced(now))
	}
	if d.unflushed {
		if d.unflushed = !d.notifier.Flush(); d.unflushed {
			next = earlier(next, now+flushRetry)
		}
	}
	return worked, next
}

// keepLooks leaves looks to the next part of a visit, however many went to those before it: a program that rings without end would
// hold up the others of its guest.
func (d *Device) keepLooks() {
	if d.looks < turnLooks {
		d.overdrawn, d.looks = d.overdrawn || d.looks <= 0, turnLooks
	}
}

// flushRetry is how long to wait before the guest's full event ring is looked at again, nanoseconds: the guest does not
// say when it has made room. It is as long as an idle step, so that a guest which never does costs no more than one that is
// polled.
const flushRetry = shortestMaxStep
