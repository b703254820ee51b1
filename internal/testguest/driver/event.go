// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"golang.org/x/sys/unix"
)

// Indices of Device.rings.
const (
	asyncRing = iota
	cqRing
)

// AsyncEvent is an entry of the ring of asynchronous events: struct pvrdma_eqe.
type AsyncEvent struct{ Type, Info uint32 }

// eventSink is where the interrupt handlers leave what they found.
type eventSink struct {
	done chan struct{}
	wg   sync.WaitGroup
	// active is the driver's ib_active: until it is set the asynchronous events stay in their ring.
	active atomic.Bool

	mu       sync.Mutex
	arrived  chan struct{} // has an element when async may have one
	async    []AsyncEvent
	handlers map[uint32]func()
	err      error
	stats    EventStats
}

// EventStats count what the handlers of the two rings have seen.
type EventStats struct {
	// CQEvents are entries of the notification ring, Unknown those of a queue that is not there.
	CQEvents, Unknown, AsyncEvents uint64
}

func (s *eventSink) init() {
	s.arrived = make(chan struct{}, 1)
	s.handlers = map[uint32]func(){}
}

// listen starts the handlers of vectors 1 and 2.
func (d *Device) listen() {
	d.events.done = make(chan struct{})
	d.events.wg.Go(func() {
		for d.awaitVector() {
			if d.irqs.forget(1) > 0 {
				d.drainAsync()
			}
			if d.irqs.forget(2) > 0 {
				d.drainCQ()
			}
		}
	})
}

// awaitVector waits for an interrupt of an event ring; false when the handlers shall end.
func (d *Device) awaitVector() bool {
	p := []unix.PollFd{
		{Fd: int32(d.irqs.fds[1]), Events: unix.POLLIN},
		{Fd: int32(d.irqs.fds[2]), Events: unix.POLLIN},
		{Fd: int32(d.irqs.stopFD()), Events: unix.POLLIN},
	}
	for {
		if _, err := unix.Poll(p, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return false
		}
		if p[2].Revents != 0 {
			return false
		}
		if p[0].Revents != 0 || p[1].Revents != 0 {
			return true
		}
	}
}

// stopListening ends the handlers, as free_irq does.
func (d *Device) stopListening() error {
	if d.events.done == nil {
		return nil
	}
	err := d.irqs.raise(numVectors)
	d.events.wg.Wait()
	d.events.done = nil
	return err
}

// ringEntry returns an entry of a device ring.
func (d *Device) ringEntry(which int, slot uint32, size int) ([]byte, error) {
	off := uint64(slot) * uint64(size)
	page := d.rings[which].pages[1+off/ram.PageSize]
	return d.RAM.Bytes(page+off%ram.PageSize, size)
}

// drain takes all entries of a device ring, which are of a structure and are called what. pages is the field of the shared region that
// says how long the ring is; the driver counts so many slots as fit, not a power of two.
func (d *Device) drain(which int, pages, structure, what string, take func(entry []byte)) {
	size := d.L.Size(structure)
	n := (d.dsr.Get32(pages) - 1) * ram.PageSize / uint32(size)
	for {
		v, slot := d.rings[which].ring.HasData(n)
		if v != Yes {
			d.events.note(v, what)
			return
		}
		b, err := d.ringEntry(which, slot, size)
		if err != nil {
			d.events.fail(err)
			return
		}
		take(b)
		d.rings[which].ring.Consume(n)
	}
}

// drainAsync is the handler of vector 1.
func (d *Device) drainAsync() {
	if !d.events.active.Load() {
		return
	}
	d.drain(asyncRing, "async_ring_pages.num_pages", "pvrdma_eqe", "asynchronous event", func(b []byte) {
		e := d.L.View("pvrdma_eqe", b)
		d.events.deliver(AsyncEvent{Type: e.Get32("type"), Info: e.Get32("info")})
	})
}

// drainCQ is the handler of vector 2.
func (d *Device) drainCQ() {
	d.drain(cqRing, "cq_ring_pages.num_pages", "pvrdma_cqne", "completion notification", func(b []byte) {
		d.events.notify(binary.LittleEndian.Uint32(b) % d.Caps().Get32("max_cq"))
	})
}

func (s *eventSink) deliver(e AsyncEvent) {
	s.mu.Lock()
	s.async = append(s.async, e)
	s.stats.AsyncEvents++
	s.mu.Unlock()
	select {
	case s.arrived <- struct{}{}:
	default:
	}
}

func (s *eventSink) notify(handle uint32) {
	s.mu.Lock()
	f := s.handlers[handle]
	s.stats.CQEvents++
	if f == nil {
		s.stats.Unknown++
	}
	s.mu.Unlock()
	if f != nil {
		f()
	}
}

func (s *eventSink) note(v Verdict, what string) {
	if v == Invalid {
		s.fail(fmt.Errorf("the indices of the %s ring are not valid: %w", what, unix.EPROTO))
	}
}

func (s *eventSink) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

// SetCQHandler says what to call when a completion queue has an event; nil for nothing.
func (d *Device) SetCQHandler(handle uint32, f func()) {
	handle %= d.Caps().Get32("max_cq")
	d.events.mu.Lock()
	defer d.events.mu.Unlock()
	if f == nil {
		delete(d.events.handlers, handle)
		return
	}
	d.events.handlers[handle] = f
}

// Registered says that the driver's device is registered: from now on asynchronous events are taken.
func (d *Device) Registered() { d.events.active.Store(true) }

// WaitAsync returns the next asynchronous event.
func (d *Device) WaitAsync(timeout time.Duration) (AsyncEvent, error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		d.events.mu.Lock()
		if len(d.events.async) > 0 {
			e := d.events.async[0]
			d.events.async = d.events.async[1:]
			d.events.mu.Unlock()
			return e, nil
		}
		d.events.mu.Unlock()
		select {
		case <-d.events.arrived:
		case <-timer.C:
			return AsyncEvent{}, fmt.Errorf("no asynchronous event within %v: %w", timeout, unix.ETIMEDOUT)
		}
	}
}

// EventStats returns what the handlers have seen, and the first thing that was wrong with a ring.
func (d *Device) EventStats() (EventStats, error) {
	d.events.mu.Lock()
	defer d.events.mu.Unlock()
	return d.events.stats, d.events.err
}

// AsyncRing is the ring of asynchronous events, for tests that look at its indices.
func (d *Device) AsyncRing() Ring { return d.rings[asyncRing].ring }
