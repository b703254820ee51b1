// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"golang.org/x/sys/unix"
)

// WorkerConfig says how a worker runs.
type WorkerConfig struct {
	// Provider is the engine that the worker's guests use.
	Provider hostverbs.Provider
	// Domain holds the memory of the worker's guests.
	Domain *guestmem.Domain
	// Index says which of the workers of a provider this one is, from 0 on: the name of its thread ends with that number.
	Index int
	// Spin is how long the worker polls without finding work before its first sleep. 0 is right unless the machine
	// has a core to spare for it.
	Spin time.Duration
}

// Worker is the thread that owns the data path of its devices: it polls their doorbells, moves their work requests to
// the engine and writes their completions. It implements hostverbs.Owner.
type Worker struct {
	domain   *guestmem.Domain
	provider hostverbs.Provider
	poller   hostverbs.Poller
	// clock returns the time in ns since some moment.
	clock func() int64
	idle  idler

	// devices is written inside Do only; the worker reads it. activations counts those that were ever in it: all read it.
	devices     []*Device
	activations atomic.Uint64
	// maxSleep bounds an idle step by how many user doorbell pages are polled. Written inside Do only.
	maxSleep int64
	// tid is the worker's thread, or that of who has taken its place.
	tid atomic.Int32
	attention
	// sender is the device that sent last, and crowdedUntil when it will have been the only one for long. Worker.
	sender       *Device
	crowdedUntil int64
	// filled are the completion queues that have entries which the guest cannot see yet. Worker.
	filled []*completionQueue
	// emptied are the queues of receives whose slots the guest cannot use again yet. Worker.
	emptied []receiveRing

	// pending counts tasks; the worker looks at it before it takes mu.
	pending atomic.Int32
	mu      sync.Mutex
	tasks   []*task // guarded by mu
	closed  bool    // guarded by mu: no task is taken any more
	// ready says that the thread has its name, done that it has ended.
	ready, done chan struct{}
}

var _ hostverbs.Owner = (*Worker)(nil)

// NewWorker starts a worker, whose thread has its name then: who waits for the daemon may put the thread on a processor.
// Close ends it.
func NewWorker(cfg WorkerConfig) (*Worker, error) {
	start := time.Now()
	w := &Worker{
		domain: cfg.Domain, provider: cfg.Provider, clock: func() int64 { return int64(time.Since(start)) },
		ready: make(chan struct{}), done: make(chan struct{}),
	}
	w.idle.spin = cfg.Spin.Nanoseconds()
	w.retune()
	p, err := cfg.Provider.NewPoller(w)
	if err != nil {
		return nil, fmt.Errorf("start worker on engine %s: %w", cfg.Provider.Name(), err)
	}
	w.poller = p
	go w.run(cfg.Index)
	<-w.ready
	return w, nil
}

// Close stops the worker. Its devices are closed before.
func (w *Worker) Close() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.pending.Add(1)
	w.idle.wake()
	<-w.done
	// Only now nobody calls Progress any more.
	return w.poller.Close()
}

// Wake ends an idle step: there is something to look at.
func (w *Worker) Wake() { w.idle.wake() }

// attend ends a long idle step: there may be something to look at soon.
func (w *Worker) attend() { w.idle.attend(w.clock()) }

func (w *Worker) run(index int) {
	defer close(w.done)
	runtime.LockOSThread() // for ever: no other goroutine ever runs on this thread, so that its number tells us apart
	w.tid.Store(int32(unix.Gettid()))
	guestmem.PrepareGoroutine()
	w.idle.prepareThread(w.tid.Load(), index)
	close(w.ready)
	now, fresh := w.clock(), false // fresh: the worker has just slept, and read the clock afterwards
	for stale := 0; ; stale++ {
		w.idle.beginPass()
		tasks := w.pending.Load() != 0
		if tasks {
			if w.runTasks() {
				return
			}
			stale = clockEvery
		}
		if stale >= clockEvery {
			now, stale = w.clock(), 0
		}
		if tasks {
			w.idle.worked(now) // whoever gives commands will soon send messages
		}
		worked, next := w.pass(now)
		if fresh && !worked {
			w.idle.passed(w.clock() - now)
		}
		switch {
		case worked:
			w.idle.worked(now)
			stale = clockEvery
		case w.idle.step(now, next, w.maxSleep):
			stale = clockEvery
			fresh = true
			continue
		}
		fresh = false
	}
}

// clockEvery is how many passes without work go by on one reading of the clock: it takes a quarter of such a pass.
const clockEvery = 4

// pass lets devices and the engine do a bounded amount of work, and reports whether there was any and when to come again.
//
// Of the devices that had more to do than a visit's worth when they were last visited, one has a visit in each pass, in
// turn. So whoever has little to do is served after one visit to one of the others and one of the engine's, however many
// others there are.
func (w *Worker) pass(now int64) (worked bool, next int64) {
	look := func(d *Device) {
		did, again := w.visit(d, now)
		w.note(d, did || again != 0)
		worked = worked || did
		next = earlier(next, again)
	}
	w.choose(w.idle.spins(now))
	busy := w.nextBusy()
	for _, d := range w.chosen {
		if !d.busy {
			look(d)
		}
	}
	if busy != nil {
		worked = true
		look(busy)
	}
	pw, pnext := w.progress(now)
	return worked || pw, earlier(next, pnext)
}

// earlier returns the earlier of two times of which 0 is never.
func earlier(a, b int64) int64 {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}

// unitAt is how many bytes are a share of a device's pass.
func (w *Worker) unitAt(now int64) uint64 {
	if now < w.crowdedUntil {
		return crowdedBytes
	}
	return shareBytes
}

// sends notes that a device sends.
func (w *Worker) sends(d *Device, now int64) {
	if w.sender == d {
		return
	}
	if w.sender != nil {
		w.crowdedUntil = now + crowdedFor
	}
	w.sender = d
}

// visit lets a device do a bounded amount of work.
func (w *Worker) visit(d *Device, now int64) (worked bool, next int64) {
	d.busy = false
	if d.failed || d.quiet() {
		return false, 0
	}
	d.share, d.looks, d.unit = passShare, passLooks, w.unitAt(now)
	d.shownAt = passShare
	d.crowded, d.served, d.overdrawn = d.served >= crowd, 0, false
	ok := w.guard(d, func() { worked, next = d.poll(now) })
	w.show()
	if !ok {
		return true, 0
	}
	if d.share < passShare {
		w.sends(d, now)
	}
	d.busy = d.share <= 0 || d.looks <= 0 || d.overdrawn || d.ready.len() != 0
	return worked, next
}

// guard runs a part of a device's work. Whatever goes wrong in there ends with one guest being reset: the one whose
// memory failed, or else the one whose work it is. It reports whether nothing went wrong. Worker thread.
func (w *Worker) guard(d *Device, fn func()) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			w.recovered(r, d.fail)
			ok = false
		}
	}()
	fn()
	return true
}

// recovered has the device reset whose memory failed, if that is what was recovered, and else calls fail.
func (w *Worker) recovered(r any, fail func(error)) {
	defer func() {
		if r := recover(); r != nil {
			fail(asError(r))
		}
	}()
	if err := w.catch(func() { panic(r) }); !w.blame(err) {
		fail(err)
	}
}

// catch runs fn with faults of guest memory as errors.
func (w *Worker) catch(fn func()) (err error) {
	defer w.domain.Recover(&err)
	fn()
	return nil
}

// progress calls the engine. A panic in there belongs to no guest that we could name, so that every guest of the engine is
// reset; a fault of guest memory, which the engine should have handled itself, belongs to its owner.
func (w *Worker) progress(now int64) (worked bool, next int64) {
	worked, next = w.guardedProgress(now)
	w.show()
	return worked, next
}

func (w *Worker) guardedProgress(now int64) (worked bool, next int64) {
	defer func() {
		if r := recover(); r != nil {
			w.recovered(r, w.failAll)
			worked, next = true, 0
		}
	}()
	return w.poller.Progress(now)
}

func (w *Worker) failAll(err error) {
	for _, d := range w.devices {
		d.fail(err)
	}
}

func asError(r any) error {
	if err, ok := r.(error); ok {
		return err
	}
	return fmt.Errorf("panic: %v", r)
}

// addDevice and removeDevice run inside Do.
func (w *Worker) addDevice(d *Device) {
	w.devices = append(slices.Clone(w.devices), d)
	d.activation = w.activations.Add(1)
	w.retune()
}

func (w *Worker) removeDevice(d *Device) {
	w.devices = without(w.devices, d)
	w.forget(d)
	if w.sender == d {
		w.sender = nil
	}
	w.retune()
}

// retune fits the longest idle step to the number of user pages that a pass looks at. Runs inside Do.
func (w *Worker) retune() {
	pages := 0
	for _, d := range w.devices {
		pages += len(d.polled)
	}
	w.maxSleep = maxIdleStep(pages)
}
