// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"math"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// sharedReceiveQueue is a receive ring in guest memory that the worker empties for several queue pairs. The limit of its
// event is the engine's.
type sharedReceiveQueue struct {
	dev    *Device
	handle uint32
	ctx    *userContext
	pd     *protectionDomain
	engine hostverbs.SRQ
	pages  *guestmem.Pages

	// What follows belongs to the worker.

	rq workQueue
	// dead says that the ring must not be looked at any more.
	dead bool
	// users counts the queue pairs that use it, at is where it stands in the context's list. Written inside Worker.Do.
	users, at int
}

var _ hostverbs.SRQHandler = (*sharedReceiveQueue)(nil)

func (s *sharedReceiveQueue) place() *int { return &s.at }

// rung serves a doorbell. Receives are taken when a message needs one, so that a doorbell which is lost or late does no harm:
// all that is done is to look whether the guest's index is one.
func (s *sharedReceiveQueue) rung() {
	if !s.dead {
		s.refresh()
	}
}

// refresh reads the guest's index and returns how many receives wait. An index that is not valid ends the queue.
func (s *sharedReceiveQueue) refresh() uint32 {
	n, reason, err := s.rq.pending(s.pages)
	if err != nil {
		s.broken(reason, err)
	}
	return n
}

// PullRecv implements hostverbs.SRQHandler. Memory that was unmapped ends the queue, and its queue pairs in their turn; memory
// that fails ends the guest.
func (s *sharedReceiveQueue) PullRecv(wr *hostverbs.RecvWR) (ok bool, err error) {
	defer s.dev.noteFault(&err)
	defer s.dev.worker.domain.Recover(&err)
	if s.dead || (s.rq.prod == s.rq.cons && s.refresh() == 0) {
		return false, nil
	}
	if err := s.dev.decodeRecv(s.pages, &s.rq, wr); err != nil {
		s.broken(BadMemory, err)
		return false, faultOf(err)
	}
	s.rq.cons = s.rq.ring.Inc(s.rq.cons)
	s.dev.live.RecvWQEs++
	s.dev.worker.taken(&s.rq, s)
	return true, nil
}

func (s *sharedReceiveQueue) device() *Device { return s.dev }

// giveBack implements receiveRing.
func (s *sharedReceiveQueue) giveBack() {
	s.rq.taken = false
	if s.dead {
		return
	}
	if err := s.pages.Publish32(s.rq.consAt, s.rq.cons); err != nil {
		s.broken(BadMemory, err)
	}
}

// Posted implements hostverbs.SRQHandler. Of a queue that is over nobody is told that it runs dry.
func (s *sharedReceiveQueue) Posted() (n uint32) {
	var err error
	defer s.dev.noteFault(&err)
	defer s.dev.worker.domain.Recover(&err)
	if !s.dead {
		n = s.refresh()
	}
	if s.dead {
		return math.MaxUint32
	}
	return n
}

// Event implements hostverbs.SRQHandler.
func (s *sharedReceiveQueue) Event(e hostverbs.EventType) {
	var err error
	defer s.dev.noteFault(&err)
	defer s.dev.worker.domain.Recover(&err)
	if typ, ok := asyncEvent(e); ok && !s.dead {
		s.dev.asyncEvent(typ, s.handle)
	}
}

// broken ends a queue whose ring cannot be used: SRQ_ERR to the guest, and its queue pairs go to the error state. Their peers
// would wait for receives for ever.
func (s *sharedReceiveQueue) broken(r GuestErrorReason, err error) {
	if s.dead {
		return
	}
	s.dead = true
	s.dev.violation(r, err)
	s.dev.asyncEvent(abi.EventSRQErr, s.handle)
	s.dev.failUsers()
}

// release lets go of the queue's memory. Runs inside Worker.Do.
func (s *sharedReceiveQueue) release() {
	s.dead = true
	s.pages.Release()
}

// takeSRQWord serves the word of shared receive queues of a context's page, and reports whether there was one. One that hides
// another hides nothing that matters: see rung.
func (d *Device) takeSRQWord(c *userContext) bool {
	word := int(c.page)*abi.PageSize + abi.UARSRQOffset
	if d.doorbells.Load32(word) == 0 {
		return false
	}
	v := d.doorbells.Swap32(word, 0)
	d.looks--
	d.ringSRQ(v, func(s *sharedReceiveQueue) bool { return s.ctx == c })
	return true
}

// ringSRQ serves a doorbell of a shared receive queue.
func (d *Device) ringSRQ(value uint32, mine func(*sharedReceiveQueue) bool) {
	s := d.srqs.get(value & abi.UARHandleMask)
	if s == nil || !mine(s) {
		d.violation(BadDoorbell, errNoSuchObject)
		return
	}
	d.live.Doorbells++
	if value&abi.UARSRQRecv != 0 {
		s.rung()
	}
}
