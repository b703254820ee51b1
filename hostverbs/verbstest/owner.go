// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/guestmem"
)

// thread is an owner: a goroutine with a thread of its own that runs what it is told, and in between, if it has one, its
// idle function.
type thread struct {
	calls chan call
	stop  chan struct{}
	done  sync.WaitGroup
	// tid is the thread's number; nothing else ever runs on it.
	tid atomic.Int32
	// wakes counts calls of Wake.
	wakes atomic.Int32
	// told counts calls of Do from other threads, crossed those from other owners': two that wait for each other wait for
	// ever.
	told, crossed atomic.Int32
	// resting: the idle function is not called any more. The thread's own.
	resting bool
}

// owners are the owners that run, by their threads' numbers.
var owners sync.Map

type call struct {
	fn   func()
	done chan struct{}
}

// newThread starts an owner. idle may be nil; it runs as often as there is nothing else to do.
func newThread(idle func()) *thread {
	o := &thread{calls: make(chan call), stop: make(chan struct{})}
	o.done.Go(func() {
		runtime.LockOSThread() // for ever
		o.tid.Store(int32(unix.Gettid()))
		owners.Store(o.tid.Load(), o)
		defer owners.Delete(o.tid.Load())
		guestmem.PrepareGoroutine()
		o.run(idle)
	})
	return o
}

func (o *thread) run(idle func()) {
	for {
		if idle == nil || o.resting {
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
			runtime.Gosched() // there may be as many owners as processors
		}
	}
}

// rest ends the idle function: from now on the thread only runs what it is told.
func (o *thread) rest() { o.Do(func() { o.resting = true }) }

// current says whether the caller is on the owner's thread.
func (o *thread) current() bool { return int32(unix.Gettid()) == o.tid.Load() }

// Do implements hostverbs.Owner.
func (o *thread) Do(fn func()) {
	if o.current() {
		fn()
		return
	}
	o.told.Add(1)
	if _, crosses := owners.Load(int32(unix.Gettid())); crosses {
		o.crossed.Add(1)
	}
	c := call{fn, make(chan struct{})}
	o.calls <- c
	<-c.done
}

// Wake implements hostverbs.Owner. The thread never sleeps while it has something to do.
func (o *thread) Wake() { o.wakes.Add(1) }

// end stops the goroutine and waits for it.
func (o *thread) end() {
	close(o.stop)
	o.done.Wait()
}
