// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"fmt"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"github.com/pvrdmad/pvrdmad/ringbuf"
	"golang.org/x/sys/unix"
)

// Offsets of the indices in the first page of an object: struct pvrdma_ring_state (pvrdma_ring.h).
const (
	txProdTail = abi.RingStateTXOffset + abi.RingProdTailOffset
	txConsHead = abi.RingStateTXOffset + abi.RingConsHeadOffset
	rxProdTail = abi.RingStateRXOffset + abi.RingProdTailOffset
	rxConsHead = abi.RingStateRXOffset + abi.RingConsHeadOffset
)

var (
	errCQOverflow = fmt.Errorf("completion queue is full: %w", unix.ENOSPC)
	errBadIndex   = fmt.Errorf("ring index is not valid: %w", unix.EINVAL)
)

// armState is what a trapped doorbell asked a completion queue for.
type armState uint8

const (
	notArmed armState = iota
	armedSolicited
	armedAny
)

// completionQueue is a ring in guest memory that the worker fills.
type completionQueue struct {
	dev    *Device
	handle uint32
	ctx    *userContext
	engine hostverbs.CQ
	pages  *guestmem.Pages
	ring   ringbuf.Ring

	// What follows belongs to the worker.

	// prod is our index; the copy in guest memory is for the guest to read. cons is the guest's as last read.
	prod, cons uint32
	// dead says that nothing may be written any more: destroyed, overflowed, or its memory is gone.
	dead  bool
	armed armState
	// stage holds the last staged entries before prod, which are not in the guest's memory yet.
	stage  [stageLen * abi.CQESize]byte
	staged int
	// shown is the index that the guest can read. listed says that the queue is in Worker.filled, fresh that one of its
	// entries since then is what a solicited arm waits for.
	shown         uint32
	listed, fresh bool
	// pushed counts entries; solicitedAt is its value after the last entry that a solicited arm waits for.
	pushed, solicitedAt uint64
	// notifiedAt is userContext.words at the last notification, see maybe, and told is pushed then: an entry is announced
	// once. A program that was woken for it may arm before it takes it, and perftest's then takes a second event for another
	// entry.
	notifiedAt, told uint64
	// inGrace says that an entry waits since graceFrom, when pushed was graceMark, for a program that polls to take it.
	inGrace   bool
	graceFrom int64
	graceMark uint64
	// users counts the queue pairs that use it, at is where it stands in the context's list. Written inside Worker.Do.
	users, at int
}

// stageLen is how many entries are put together before they are written to the guest, at most.
const stageLen = sendBatch

// push appends a completion, to be shown by Worker.show. An error means that the guest's memory failed; of a queue that has
// ended for another reason nobody hears here, and its queue pairs end in order. It guards itself, and touches the guest's memory
// only if it must.
func (c *completionQueue) push(e *abi.CQE, solicited bool) error {
	if c.dead {
		return nil
	}
	if c.pages.Revoked() {
		return faultOf(c.gone())
	}
	if c.staged == stageLen || c.ring.Full(c.prod, c.cons) {
		if err := c.makeRoom(); err != nil || c.dead {
			return faultOf(err)
		}
	}
	e.Encode(c.stage[c.staged*abi.CQESize:])
	c.staged++
	c.prod = c.ring.Inc(c.prod)
	c.pushed++
	if solicited {
		c.solicitedAt = c.pushed
		c.fresh = true
	}
	d := c.dev
	d.live.CQEs++
	if e.Status != abi.WCSuccess {
		d.live.CQEErrors++
	}
	if !c.listed {
		c.listed = true
		d.worker.filled = append(d.worker.filled, c)
	}
	return nil
}

// gone ends a queue whose memory was unmapped. To say so to the guest touches its memory, too.
func (c *completionQueue) gone() (err error) {
	defer c.dev.noteFault(&err)
	defer c.dev.worker.domain.Recover(&err)
	return c.lost(c.revoked())
}

// makeRoom writes what was put together, and looks whether the guest has taken entries of a full queue. If not, the queue
// is over.
func (c *completionQueue) makeRoom() (err error) {
	defer c.dev.noteFault(&err)
	defer c.dev.worker.domain.Recover(&err)
	if err := c.flush(); err != nil || !c.ring.Full(c.prod, c.cons) {
		return err
	}
	if err := c.readCons(); err != nil || c.dead || !c.ring.Full(c.prod, c.cons) {
		return err
	}
	if err := c.publish(); err != nil {
		return err
	}
	c.dev.violation(CQOverflow, errCQOverflow)
	c.fail()
	return nil
}

// flush writes the entries that were put together, one after the other: the lines have to be fetched back from the guest's
// processor, and the processor does that for several at once only if nothing else is stored in between.
func (c *completionQueue) flush() error {
	n := uint32(c.staged)
	if n == 0 {
		return nil
	}
	c.staged = 0
	slot := c.ring.Slot(c.prod - n)
	first := min(n, c.ring.N-slot)
	err := c.pages.Write(abi.PageSize+uint64(slot)*abi.CQESize, c.stage[:first*abi.CQESize])
	if err == nil && first < n {
		err = c.pages.Write(abi.PageSize, c.stage[first*abi.CQESize:n*abi.CQESize])
	}
	if err != nil {
		return c.lost(err)
	}
	return nil
}

// publish stores the index behind the entries that were pushed: the guest sees them from now on. Entries are stored before, and
// the slots of receives given back, since who sees a completion may post into its slot.
func (c *completionQueue) publish() error {
	if c.shown == c.prod {
		return nil
	}
	if w := c.dev.worker; len(w.emptied) != 0 {
		w.giveBack()
	}
	if err := c.flush(); err != nil {
		return err
	}
	if err := c.pages.Publish32(rxProdTail, c.prod); err != nil {
		return c.lost(err)
	}
	c.shown = c.prod
	return nil
}

// show publishes what was pushed and tells the guest if it asked for that. What goes wrong is the guest's end alone.
func (c *completionQueue) show() {
	defer func() {
		if r := recover(); r != nil {
			c.dev.worker.guard(c.dev, func() { panic(r) })
		}
	}()
	fresh := c.fresh
	c.listed, c.fresh = false, false
	if c.dead || c.publish() != nil {
		return
	}
	// An arm since may have announced all that is there. Who has armed again waits for others.
	if (c.armed == armedAny && c.pushed > c.told) || (c.armed == armedSolicited && fresh && c.solicitedAt > c.told) {
		c.notify()
	} else if c.maybe() && !c.inGrace {
		c.enterGrace()
	}
}

// readCons takes the guest's index. One that is not valid ends the queue.
func (c *completionQueue) readCons() error {
	cons, err := c.pages.Load32(rxConsHead)
	if err != nil {
		return c.lost(err)
	}
	if _, ok := c.ring.Pending(c.prod, cons); !ok {
		c.dev.violation(BadRing, errBadIndex)
		c.fail()
		return nil
	}
	c.cons = cons
	return nil
}

// unread returns how many entries the guest has not taken, as far as it can be known.
func (c *completionQueue) unread() uint32 {
	if c.dead || c.readCons() != nil || c.dead {
		return 0
	}
	n, _ := c.ring.Pending(c.prod, c.cons)
	return n
}

// revoked is the error of a queue whose memory was unmapped.
func (c *completionQueue) revoked() error {
	return fmt.Errorf("completion queue %d: %w", c.handle, guestmem.ErrRevoked)
}

// lost handles an error of the queue's memory: the queue is over.
func (c *completionQueue) lost(err error) error {
	c.dev.violation(BadMemory, err)
	c.fail()
	return err
}

// fail ends the queue: CQ_ERR to the guest, and its queue pairs go to the error state.
func (c *completionQueue) fail() {
	if c.dead {
		return
	}
	c.dead = true
	c.dev.asyncEvent(abi.EventCQErr, c.handle)
	c.dev.failUsers()
}

// arm serves a doorbell that came by message. The guest may have looked at the queue before the doorbell reached us, so
// that what lies in it must wake it now.
func (c *completionQueue) arm(value uint32) {
	if c.dead {
		return
	}
	unread := uint64(c.unread())
	switch {
	case value&abi.UARCQArm != 0:
		c.armed = armedAny
		if unread != 0 && c.pushed != c.told {
			c.notify()
		}
	case value&abi.UARCQArmSol != 0:
		c.armed = max(c.armed, armedSolicited)
		if c.solicitedAt > c.told && c.pushed-c.solicitedAt < unread {
			c.notify()
		}
	}
}

// maybe says whether the queue may have been armed through a polled page since the last notification: a word there cannot
// say so for certain, nor for which of the context's queues, because user space writes POLL to it whenever it finds a
// queue empty, also right after an arm.
func (c *completionQueue) maybe() bool { return c.notifiedAt != c.ctx.words }

// look begins the grace time of a queue that may have been armed when it held something. It reads the guest's index first: one
// that is not valid ends the queue whether or not there is something to announce.
func (c *completionQueue) look() {
	if !c.inGrace && c.maybe() && c.unread() != 0 && c.pushed != c.told {
		c.enterGrace()
	}
}

// enterGrace begins a grace time. It asks for the time: the visit may have begun long before.
func (c *completionQueue) enterGrace() {
	c.inGrace = true
	c.graceFrom, c.graceMark = c.dev.worker.clock(), c.pushed
	c.dev.graced.push(c)
}

// checkGraced notifies the queues in which an entry has waited for longer than the grace time, and returns when to look
// again. The queue whose time began first comes first.
func (d *Device) checkGraced(now int64) (next int64) {
	for n := d.graced.len(); n > 0; n-- {
		c := d.graced.front()
		if due := c.graceFrom + d.grace; now < due {
			return due
		}
		if d.looks <= 0 {
			return now
		}
		d.looks--
		d.graced.pop()
		if c.inGrace = !c.graceOver(); c.inGrace {
			c.graceFrom, c.graceMark = now, c.pushed
			d.graced.push(c)
		}
	}
	if d.graced.len() == 0 {
		return 0
	}
	return d.graced.front().graceFrom + d.grace
}

// graceOver looks at the end of a grace time whether the queue has nothing to wait for any more: all is taken, or the guest
// was notified. What was added meanwhile has a grace time of its own.
func (c *completionQueue) graceOver() bool {
	unread := uint64(c.unread())
	if unread == 0 || !c.maybe() || c.pushed == c.told {
		return true
	}
	if younger := c.pushed - c.graceMark; unread > younger {
		c.notify()
		return true
	}
	return false
}

// notify interrupts the guest for the queue, once for each arm, after it can see what for.
func (c *completionQueue) notify() {
	d := c.dev
	if c.publish() != nil {
		return
	}
	c.armed, c.notifiedAt, c.told = notArmed, c.ctx.words, c.pushed
	d.live.Notifications++
	if !d.notifier.CQEvent(c.handle) {
		d.unflushed = true
	}
}

// release lets go of the queue's memory. Runs inside Worker.Do.
func (c *completionQueue) release() {
	c.dead = true
	c.pages.Release()
}
