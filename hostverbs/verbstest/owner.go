// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"sync"

	"github.com/pvrdmad/pvrdmad/guestmem"
)

// thread is an owner: a goroutine that runs what it is told, and in between, if it has one, its idle function.
type thread struct {
	calls chan call
	stop  chan struct{}
	done  sync.WaitGroup
}

type call struct {
	fn   func()
	done chan struct{}
}

// newThread starts an owner. idle may be nil; it runs as often as there is nothing else to do.
func newThread(idle func()) *thread {
	o := &thread{calls: make(chan call), stop: make(chan struct{})}
	o.done.Go(func() {
		guestmem.PrepareGoroutine()
		o.run(idle)
	})
	return o
}

func (o *thread) run(idle func()) {
	for {
		if idle == nil {
			select {
			case c := <-o.calls:
				c.fn()
				close(c.done)
			case <-o.stop:
				return
			}
			continue
		}
		select {
		case c := <-o.calls:
			c.fn()
			close(c.done)
		case <-o.stop:
			return
		default:
			idle()
		}
	}
}

// Do implements hostverbs.Owner.
func (o *thread) Do(fn func()) {
	c := call{fn, make(chan struct{})}
	o.calls <- c
	<-c.done
}

// end stops the goroutine and waits for it.
func (o *thread) end() {
	close(o.stop)
	o.done.Wait()
}
