// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Mode is how a program waits for completions.
type Mode int

// Modes.
const (
	// Polled polls until something is there.
	Polled Mode = iota
	// Events arms the queue, looks once more, and sleeps until the device interrupts.
	Events
)

// String names the mode.
func (m Mode) String() string {
	if m == Events {
		return "events"
	}
	return "polled"
}

const (
	// busyPolls is how often an empty queue is polled before the program yields its processor for yieldTime: the
	// daemon's worker may have to share it.
	busyPolls = 50
	yieldTime = 20 * time.Microsecond
)

// Wait takes one completion.
func (q *CQ) Wait(m Mode, timeout time.Duration) (WC, error) {
	deadline := time.Now().Add(timeout)
	if m == Events {
		return q.waitEvent(deadline)
	}
	for i := 0; ; i++ {
		wc, ok, err := q.Poll()
		if ok || err != nil {
			return wc, err
		}
		if i%busyPolls < busyPolls-1 {
			runtime.Gosched()
			continue
		}
		if time.Now().After(deadline) {
			return WC{}, fmt.Errorf("no completion in queue %d within %v: %w", q.Handle, timeout, unix.ETIMEDOUT)
		}
		ts := unix.NsecToTimespec(int64(yieldTime))
		_ = unix.Nanosleep(&ts, nil) // a signal may end it early
	}
}

func (q *CQ) waitEvent(deadline time.Time) (WC, error) {
	for {
		if wc, ok, err := q.Poll(); ok || err != nil {
			return wc, err
		}
		if err := q.ReqNotify(false); err != nil {
			return WC{}, err
		}
		if wc, ok, err := q.Poll(); ok || err != nil {
			return wc, err
		}
		if err := q.WaitEvent(time.Until(deadline)); err != nil {
			if wc, ok, _ := q.Poll(); ok {
				return WC{}, fmt.Errorf("queue %d was armed and holds completion %#x: its event is lost: %w", q.Handle,
					wc.WRID, err)
			}
			return WC{}, err
		}
	}
}

// WaitEvent waits for one event of the queue.
func (q *CQ) WaitEvent(timeout time.Duration) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-q.events:
		return nil
	case <-timer.C:
		return fmt.Errorf("no event of queue %d: %w", q.Handle, unix.ETIMEDOUT)
	}
}
