// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The last close of an eventfd takes as long as those who watch it make it. Whoever raises interrupts, for all guests, does
// not wait for that.
func TestAnEventfdWhoseCloseTakesLongHoldsUpNoInterrupt(t *testing.T) {
	for name, takeAway := range map[string]func(q *interrupts){
		"another in its place": func(q *interrupts) { q.assign(IRQMSIX, 0, 1, &fdList{}) },
		"all taken away":       func(q *interrupts) { q.disable(IRQMSIX) },
		"the end":              func(q *interrupts) { q.close() },
	} {
		t.Run(name, func(t *testing.T) {
			var q interrupts
			q.signal.prepare(func() {})
			if err := q.describe([NumIRQs]uint32{IRQMSIX: 2}); err != nil {
				t.Fatal(err)
			}
			mine := newEventFD(t)
			fd, err := unix.FcntlInt(uintptr(mine), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			q.assign(IRQMSIX, 0, 1, &fdList{fd: [MaxMessageFDs]int{fd}, n: 1})
			q.signal.mu.Lock() // a close waits
			release := sync.OnceFunc(q.signal.mu.Unlock)
			defer release()
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				takeAway(&q)
			}()
			eventually(t, "the vector has no eventfd", func() bool {
				if !q.mu.TryLock() {
					return false
				}
				defer q.mu.Unlock()
				return q.vectors[IRQMSIX] == nil || q.vectors[IRQMSIX][0].fd < 0
			})

			raised := make(chan struct{})
			go func() {
				defer close(raised)
				q.trigger(IRQMSIX, 1)
			}()

			select {
			case <-raised:
			case <-time.After(patience):
				t.Error("an interrupt waits for the close of an eventfd")
			}
			release()
			<-closed
			<-raised
			q.close()
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
				t.Error("the eventfd is open")
			}
		})
	}
}
