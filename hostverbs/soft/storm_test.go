// SPDX-License-Identifier: Apache-2.0

package soft_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/hostverbs/soft"
)

// stormOwner is an owner with a thread of its own, which has its devices post what comes to their minds.
type stormOwner struct {
	w      *stormWorld
	calls  chan func()
	stop   chan struct{}
	done   sync.WaitGroup
	tid    atomic.Int32
	poller hostverbs.Poller

	// What follows is the thread's.
	rnd     *rand.Rand
	devices []*stormQP
	// still: nothing new is posted.
	still bool
}

func (o *stormOwner) run() {
	defer o.done.Done()
	runtime.LockOSThread() // for ever
	o.tid.Store(int32(unix.Gettid()))
	guestmem.PrepareGoroutine()
	for {
		select {
		case fn := <-o.calls:
			fn()
		case <-o.stop:
			return
		default:
			o.pass()
			runtime.Gosched()
		}
	}
}

func (o *stormOwner) pass() {
	defer func() {
		if r := recover(); r != nil {
			o.w.fault("panic on an owner's thread: %v\n%s", r, debug.Stack())
		}
	}()
	if o.w.failed.Load() {
		return
	}
	for _, d := range o.devices {
		d.pump()
	}
	if o.poller != nil {
		o.poller.Progress(o.w.now())
	}
}

// Do implements hostverbs.Owner.
func (o *stormOwner) Do(fn func()) {
	if int32(unix.Gettid()) == o.tid.Load() {
		fn()
		return
	}
	done := make(chan any)
	o.calls <- func() {
		defer func() { done <- recover() }()
		fn()
	}
	if r := <-done; r != nil {
		panic(r)
	}
}

// Wake implements hostverbs.Owner. The thread never sleeps.
func (o *stormOwner) Wake() {}

// stormWorld is an engine with some owners, and guests that do anything.
type stormWorld struct {
	t      testing.TB
	engine *soft.Engine
	dom    *guestmem.Domain
	start  time.Time
	owners []*stormOwner
	guests []*stormGuest
	// moving are addresses that any guest may take.
	moving []hostverbs.GID
	failed atomic.Bool
	ids    atomic.Uint64
}

const (
	stormOwners = 3
	stormGuests = 5
	// stormHaste is how much faster than time the engine's clock runs.
	stormHaste = 8
)

func newStormWorld(t testing.TB, seed uint64) *stormWorld {
	w := &stormWorld{t: t, engine: soft.New(nil), dom: guestmem.NewDomain(), start: time.Now()}
	for i := range stormOwners {
		o := &stormOwner{
			w: w, calls: make(chan func()), stop: make(chan struct{}), rnd: rand.New(rand.NewPCG(seed, uint64(i))),
		}
		o.done.Add(1)
		go o.run()
		p := must(w.engine.NewPoller(o))
		o.Do(func() { o.poller = p })
		w.owners = append(w.owners, o)
	}
	for i := range 3 {
		w.moving = append(w.moving, hostverbs.GID{14: 1, 15: byte(i + 1)})
	}
	for i := range stormGuests {
		w.guests = append(w.guests, newStormGuest(w, i, rand.New(rand.NewPCG(seed, uint64(100+i)))))
	}
	return w
}

func (w *stormWorld) now() int64 {
	return int64(time.Hour) + stormHaste*time.Since(w.start).Nanoseconds()
}

// fault reports something wrong once, and ends the storm.
func (w *stormWorld) fault(format string, args ...any) {
	w.t.Helper()
	if !w.failed.Swap(true) {
		w.t.Errorf(format, args...)
	}
}

// rage has each guest do n things.
func (w *stormWorld) rage(n int) {
	var wait sync.WaitGroup
	for _, g := range w.guests {
		wait.Go(func() {
			defer func() {
				if r := recover(); r != nil {
					w.fault("panic in a control call of guest %d: %v\n%s", g.n, r, debug.Stack())
				}
			}()
			for range n {
				if w.failed.Load() {
					return
				}
				g.act()
			}
		})
	}
	wait.Wait()
}

// end brings everything to rest, and looks at what is owed.
func (w *stormWorld) end() {
	for _, o := range w.owners {
		o.Do(func() { o.still = true })
	}
	for _, g := range w.guests {
		if !w.failed.Load() {
			g.rest()
		}
	}
	for _, g := range w.guests {
		if !w.failed.Load() {
			g.owed()
		}
	}
	for _, g := range w.guests {
		g.leave()
		check(g.space.Close())
		g.edges()
		check(unix.Munmap(g.ram))
	}
	for _, o := range w.owners {
		close(o.stop)
		o.done.Wait()
		if err := o.poller.Close(); err != nil && !w.failed.Load() {
			w.fault("close the poller: %v", err)
		}
	}
	if err := w.engine.Close(); err != nil && !w.failed.Load() {
		w.fault("close the engine: %v", err)
	}
}

// TestAStormOfGuestsOfSeveralOwnersLosesNothing: guests of three owners do what they like, in any order and at any time.
// Nothing panics, every request completes at most once and in order, in the end each has completed, and memory that was given
// up is not reached.
func TestAStormOfGuestsOfSeveralOwnersLosesNothing(t *testing.T) {
	for i := range uint64(stormRounds()) {
		seed := stormSeed() + i
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := newStormWorld(t, seed)
			w.rage(stormActs())
			w.end()
		})
		if t.Failed() {
			return
		}
	}
}
