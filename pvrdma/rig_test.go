// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

const uarPFN = 0xfd000 // page frame of doorbell page 0 in every guest of these tests

// rig is a worker with its guests. A stepped rig has no thread: passes happen when the test says so, at the time that
// the test says, and Worker.Do runs on the test's goroutine, as it does for a worker whose thread has ended.
type rig struct {
	t      *testing.T
	domain *guestmem.Domain
	engine *fakeEngine
	worker *Worker
	now    int64
}

func newRig(t *testing.T) *rig {
	e := newFakeEngine()
	r := newRigOn(t, e)
	r.engine = e
	return r
}

// newRigOn is newRig with another engine than the fake one.
func newRigOn(t *testing.T, p hostverbs.Provider) *rig {
	guestmem.PrepareGoroutine() // the test's goroutine is the worker
	r := &rig{t: t, domain: guestmem.NewDomain(), engine: newFakeEngine(), now: int64(time.Second)}
	w := &Worker{domain: r.domain, provider: p, closed: true, done: make(chan struct{})}
	w.clock = func() int64 { return r.now }
	close(w.done)
	var err error
	if w.poller, err = p.NewPoller(w); err != nil {
		t.Fatal(err)
	}
	r.worker = w
	return r
}

// newLiveRig has a real worker.
func newLiveRig(t *testing.T) *rig {
	r := &rig{t: t, domain: guestmem.NewDomain(), engine: newFakeEngine()}
	w, err := NewWorker(WorkerConfig{Provider: r.engine, Domain: r.domain})
	if err != nil {
		t.Fatal(err)
	}
	r.worker = w
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// step is one pass of a stepped rig's worker.
func (r *rig) step() (worked bool, next int64) { return r.worker.pass(r.now) }

// settle steps until there is nothing to do.
func (r *rig) settle() {
	r.t.Helper()
	for range 10_000 {
		if worked, _ := r.step(); !worked {
			return
		}
	}
	r.t.Fatal("the worker does not come to rest")
}

// after lets time go by.
func (r *rig) after(d time.Duration) { r.now += d.Nanoseconds() }

// asyncRecord is an event of the asynchronous event ring.
type asyncRecord struct {
	Type abi.EventType
	Info uint32
}

// fakeNotifier is the guest's door.
type fakeNotifier struct {
	mu      sync.Mutex
	room    int // how many CQ events find room, negative for any number
	cq      []uint32
	kept    []uint32
	flushes int
	async   []asyncRecord
	noAsync bool // the asynchronous ring is full
	onAsync func()
	onCQ    func()
	errs    []error
}

func (n *fakeNotifier) CQEvent(h uint32) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.onCQ != nil {
		n.onCQ()
	}
	if n.room == 0 {
		n.kept = append(n.kept, h)
		return false
	}
	n.room--
	n.cq = append(n.cq, h)
	return true
}

func (n *fakeNotifier) AsyncEvent(typ abi.EventType, info uint32) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.onAsync != nil {
		n.onAsync()
	}
	if n.noAsync {
		return false
	}
	n.async = append(n.async, asyncRecord{typ, info})
	return true
}

func (n *fakeNotifier) Flush() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.flushes++
	if n.room == 0 {
		return false
	}
	n.cq, n.kept = append(n.cq, n.kept...), nil
	return true
}

func (n *fakeNotifier) Failed(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.errs = append(n.errs, err)
}

func (n *fakeNotifier) setRoom(k int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.room = k
}

// events returns the completion queues that were notified since the last call.
func (n *fakeNotifier) events() []uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.cq
	n.cq = nil
	return e
}

// asyncs returns the asynchronous events since the last call.
func (n *fakeNotifier) asyncs() []asyncRecord {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.async
	n.async = nil
	return e
}

func (n *fakeNotifier) failures() []error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.errs)
}

// recorder is an Observer.
type recorder struct {
	mu     sync.Mutex
	events []Event
}

func (r *recorder) Observe(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// seen returns the events of one type.
func seen[T Event](r *recorder) []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []T
	for _, e := range r.events {
		if x, ok := e.(T); ok {
			found = append(found, x)
		}
	}
	return found
}

// violations counts what the guest was found guilty of.
func (r *recorder) violations() map[GuestErrorReason]int {
	n := map[GuestErrorReason]int{}
	for _, e := range seen[GuestError](r) {
		n[e.Reason]++
	}
	return n
}

// defaultConfig is the configuration of a guest.
func defaultConfig() Config {
	return Config{
		Name: "vm1", MAC: [6]byte{0x52, 0x54, 0, 1, 2, 3}, GIDType: hostverbs.GIDTypeRoCEv2, MaxUAR: 8,
	}
}
