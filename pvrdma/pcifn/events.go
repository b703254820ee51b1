// SPDX-License-Identifier: Apache-2.0

package pcifn

import (
	"fmt"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/pvrdma"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"github.com/pvrdmad/pvrdmad/ringbuf"
	"golang.org/x/sys/unix"
)

// Offsets of the indices in an event ring's first page: the rx pair of struct pvrdma_ring_state (pvrdma_ring.h).
const (
	ringProdTail = abi.RingStateRXOffset + abi.RingProdTailOffset
	ringConsHead = abi.RingStateRXOffset + abi.RingConsHeadOffset
)

var errBadEventIndex = fmt.Errorf("event ring index is not valid: %w", unix.EINVAL)

// eventRings are the two rings by which the device talks to its guest. It implements pvrdma.Notifier; the worker owns its
// rings.
type eventRings struct {
	s     *session
	async eventRing
	cq    eventRing
	// waiting has a bit for each completion queue whose event found no room. One event is enough for a queue, however
	// often it was to be notified.
	waiting  []uint64
	nwaiting int
	// incarnation counts the rings that were started, so that a failure of the time before is told apart.
	incarnation uint64
}

var _ pvrdma.Notifier = (*eventRings)(nil)

// eventRing is one ring in guest memory. The zero eventRing takes nothing.
type eventRing struct {
	pages *guestmem.Pages
	ring  ringbuf.EventRing
	prod  uint32
	buf   [abi.EQESize]byte
	// broken says that the guest's index was not valid or its memory is gone: nothing is written any more.
	broken bool
}

func (e *eventRings) init(s *session) { e.s = s }

// start takes the pages of both rings over.
func (e *eventRings) start(w *pvrdma.Worker, async, cq *guestmem.Pages) error {
	a, err := newEventRing(async, abi.EQESize)
	if err != nil {
		return fmt.Errorf("async event ring: %w", err)
	}
	c, err := newEventRing(cq, abi.CQNESize)
	if err != nil {
		return fmt.Errorf("completion event ring: %w", err)
	}
	w.Do(func() {
		e.async, e.cq = a, c
		e.incarnation++
		e.waiting, e.nwaiting = make([]uint64, e.s.dev.Caps().MaxCQ/64+1), 0
	})
	return nil
}

// stop lets go of the rings. When it returns, nothing is written to them any more.
func (e *eventRings) stop(w *pvrdma.Worker) {
	w.Do(func() {
		e.async.release()
		e.cq.release()
		e.waiting, e.nwaiting = nil, 0
	})
}

// asyncRing is what the ring of asynchronous events is called where its memory is lost.
const asyncRing = "async event ring"

// lost returns the name of a ring whose memory was unmapped, "" if both are there. The session's mutex is held.
func (e *eventRings) lost() string {
	switch {
	case e.async.pages != nil && e.async.pages.Revoked():
		return asyncRing
	case e.cq.pages != nil && e.cq.pages.Revoked():
		return "completion event ring"
	}
	return ""
}

// newEventRing returns a ring over pages, the first of which holds the indices, for entries of size bytes.
func newEventRing(pages *guestmem.Pages, size uint64) (eventRing, error) {
	ring, err := ringbuf.NewEventRing(uint32((pages.Len() - abi.PageSize) / size))
	return eventRing{pages: pages, ring: ring}, err
}

func (r *eventRing) release() {
	if r.pages != nil {
		r.pages.Release()
	}
	*r = eventRing{}
}

// put appends the first size bytes of buf and reports whether there was room.
func (r *eventRing) put(s *session, size uint64) bool {
	if r.pages == nil || r.broken {
		return false
	}
	cons, err := r.pages.Load32(ringConsHead)
	if err == nil {
		if _, ok := r.ring.Pending(r.prod, cons); !ok {
			err = errBadEventIndex
		}
	}
	if err != nil {
		return r.fail(s, err)
	}
	if r.ring.Full(r.prod, cons) {
		return false
	}
	if err := r.pages.Write(abi.PageSize+uint64(r.ring.Slot(r.prod))*size, r.buf[:size]); err != nil {
		return r.fail(s, err)
	}
	r.prod = r.ring.Inc(r.prod)
	if err := r.pages.Store32(ringProdTail, r.prod); err != nil {
		return r.fail(s, err)
	}
	return true
}

func (r *eventRing) fail(s *session, err error) bool {
	r.broken = true
	s.violation(pvrdma.BadRing, err)
	return false
}

// AsyncEvent implements pvrdma.Notifier. It interrupts the guest also for an event that finds no room: until its device is
// registered the driver takes interrupts without reading events, and would never look at a ring again that filled up
// meanwhile.
func (e *eventRings) AsyncEvent(typ abi.EventType, info uint32) bool {
	x := abi.EQE{Type: typ, Info: info}
	x.Encode(e.async.buf[:])
	sent := e.async.put(e.s, abi.EQESize)
	if e.async.pages != nil && !e.async.broken {
		e.raise(abi.IntrVectorAsync)
	}
	return sent
}

// CQEvent implements pvrdma.Notifier.
func (e *eventRings) CQEvent(handle uint32) bool {
	if e.nwaiting == 0 && e.putCQ(handle) {
		e.raise(abi.IntrVectorCQ)
		return true
	}
	word, bit := handle/64, uint64(1)<<(handle%64)
	if int(word) < len(e.waiting) && e.waiting[word]&bit == 0 {
		e.waiting[word] |= bit
		e.nwaiting++
	}
	return false
}

func (e *eventRings) putCQ(handle uint32) bool {
	x := abi.CQNE{Info: handle}
	x.Encode(e.cq.buf[:])
	return e.cq.put(e.s, abi.CQNESize)
}

// Flush implements pvrdma.Notifier.
func (e *eventRings) Flush() bool {
	put := false
	for word := range e.waiting {
		for bit := uint32(0); e.waiting[word] != 0 && bit < 64; bit++ {
			if e.waiting[word]&(1<<bit) == 0 {
				continue
			}
			if !e.putCQ(uint32(word)*64 + bit) {
				return e.flushed(put)
			}
			e.waiting[word] &^= 1 << bit
			e.nwaiting--
			put = true
		}
	}
	return e.flushed(put)
}

func (e *eventRings) flushed(put bool) bool {
	if put {
		e.raise(abi.IntrVectorCQ)
	}
	return e.nwaiting == 0 || e.cq.broken
}

// Failed implements pvrdma.Notifier. It runs on the worker's thread or with the session's mutex held.
func (e *eventRings) Failed(err error) {
	s, incarnation := e.s, e.incarnation
	s.failures.Go(func() {
		defer s.survive(err)
		s.failed(incarnation, err)
	})
}

// raise raises an interrupt unless the driver has masked them all. Any goroutine.
func (e *eventRings) raise(v abi.IntrVector) {
	r := &e.s.regs
	r.icr.Or(1 << v)
	if r.imr.Load() == 0 {
		e.s.interrupt(v)
	}
}
