// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"fmt"
	"time"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// Notifier carries what a device has to say to its guest. Each door's adapter implements it. CQEvent, AsyncEvent and
// Flush are called on the worker's thread, Failed on any; none of them blocks.
type Notifier interface {
	// CQEvent tells the guest that the completion queue has something for it. It reports false if there is no room;
	// the adapter keeps the event and Flush delivers it.
	CQEvent(handle uint32) bool
	// AsyncEvent tells the guest of an event of an object; false if it was lost.
	AsyncEvent(typ abi.EventType, info uint32) bool
	// Flush delivers events kept by CQEvent and reports whether all are delivered.
	Flush() bool
	// Failed says that the device cannot go on, because the guest's memory failed or because our own handling of it
	// did. The adapter resets the device, not on this goroutine.
	Failed(err error)
}

// Config describes a device.
type Config struct {
	// Name is the guest's name.
	Name string
	// MAC is the station address from which the GUIDs are derived.
	MAC [6]byte
	// Version is what the device says of itself, one of the versions of pvrdma_dev_api.h. 0 means the newest.
	Version uint32
	// GIDType is the RoCE version of all GIDs. The oldest device knows RoCE v1 alone.
	GIDType hostverbs.GIDType
	// GIDs, if there are any, are the only ones that the guest may bind.
	GIDs []hostverbs.GID
	// MaxUAR is the number of doorbell pages, a power of two.
	MaxUAR uint32
	// Limits bounds the guest's objects; zero fields mean the engine's limit.
	Limits hostverbs.Limits
	// LinkDown has the port begin in the state DOWN: see Device.SetLink.
	LinkDown bool
	// CQGrace is how long a completion may lie unread in a queue whose doorbell is polled before the guest is
	// interrupted for it. 0 means DefaultCQGrace.
	CQGrace time.Duration
}

// DefaultCQGrace is long enough for a program that polls to take its completion, and short against the wake-up that a
// program which sleeps has to pay anyway.
const DefaultCQGrace = 20 * time.Microsecond

// Device is one guest's RDMA device. Exec, Activate, Reset and Close are called by one goroutine at a time.
type Device struct {
	cfg      Config
	worker   *Worker
	provider hostverbs.Provider
	mem      *guestmem.Space
	notifier Notifier
	observer Observer
	caps     abi.DeviceCaps
	grace    int64

	// doorbells are the pages that the guest writes without a message, nil if every doorbell is a message.
	doorbells *guestmem.SharedPages
	trapped   trappedDoorbells

	// revocations is what the guest's memory counted when the objects were last looked at. Command goroutine.
	revocations uint64

	// What follows is written inside Worker.Do and read by the worker and by the command goroutine.

	engine   hostverbs.Context // nil while the device is not active
	linkDown bool
	// activation is what Worker.activations was when the device was switched on.
	activation uint64
	uarPFN     uint64
	version    uint32 // what driver and device have in common
	kernel     *userContext
	contexts   table[userContext]
	pds        table[protectionDomain]
	mrs        table[memoryRegion]
	cqs        table[completionQueue]
	qps        table[queuePair]
	srqs       table[sharedReceiveQueue]
	// pinned counts pages of objects that are registered now.
	pinned uint64
	// polled are the contexts whose doorbell pages are looked at, in no order.
	polled []*userContext

	// What follows belongs to the worker.

	failed bool
	// overdrawn says that a part of the visit took all looks that there were for it.
	overdrawn bool
	// pageAt is the index in polled of the page that is looked at next.
	pageAt int
	// busy says that the device had work left at the end of its last visit.
	busy bool
	// ready are the queue pairs that wait for a turn, graced the completion queues whose grace time is running.
	ready  fifo[*queuePair]
	graced fifo[*completionQueue]
	// failAt is the next slot of qps to look at for queue pairs whose queues have failed, failLeft how many are left to look at.
	failAt, failLeft int
	// share and looks are how much may still be done for the device in this pass: see passShare and passLooks. unit is how
	// many bytes are a share of it. shownAt is share when completions were shown last in this pass.
	share, looks, shownAt int
	// lively says that the device is one of Worker.lively, inVain how often it was looked at since there was something to do.
	lively bool
	inVain int
	// served is how many queue pairs had work in this pass, crowded whether many had in the last: see ahead.go.
	served    int
	crowded   bool
	unit      uint64
	unflushed bool // Notifier.CQEvent had no room
	// sends are requests on their way to the engine, wrong what is wrong with each.
	sends [sendBatch]hostverbs.SendWR
	wrong [sendBatch]error
	wqe   [maxWQESize]byte
	// pageTable is a table of a page directory, pageList what it names.
	pageTable [maxFastRegPages * abi.PDirEntSize]byte
	pageList  [maxFastRegPages]uint64
	// live are the counters. They are plain numbers because a store that others may look at any time costs as much as
	// the rest of a message: who wants them asks between two visits.
	live Counters
}

// NewDevice makes a device for the guest whose memory is mem. doorbells is nil if every doorbell comes by Doorbell.
func (w *Worker) NewDevice(cfg Config, mem *guestmem.Space, doorbells *guestmem.SharedPages, n Notifier,
	o Observer,
) (*Device, error) {
	if cfg.MaxUAR < 2 || cfg.MaxUAR&(cfg.MaxUAR-1) != 0 {
		return nil, fmt.Errorf("make device of %s with %d doorbell pages, want a power of two from 2 on: %w", cfg.Name,
			cfg.MaxUAR, unix.EINVAL)
	}
	if cfg.Version == 0 {
		cfg.Version = abi.VersionMax
	}
	if err := checkVersion(cfg.Version, cfg.GIDType); err != nil {
		return nil, fmt.Errorf("make device of %s: %w", cfg.Name, err)
	}
	d := &Device{
		cfg: cfg, worker: w, provider: w.provider, mem: mem, notifier: n, observer: o, doorbells: doorbells,
		grace: cfg.CQGrace.Nanoseconds(), linkDown: cfg.LinkDown,
	}
	if d.grace == 0 {
		d.grace = DefaultCQGrace.Nanoseconds()
	}
	d.caps = d.capabilities()
	d.clearTables()
	return d, nil
}

// Caps returns what the device tells its driver.
func (d *Device) Caps() abi.DeviceCaps { return d.caps }

// Counters returns the data path counters as they are between two visits of the worker. Any goroutine.
func (d *Device) Counters() (c Counters) {
	d.worker.Do(func() { c = d.live })
	c.WindowsDenied = d.mem.Stats().WindowsDenied
	return c
}

// Objects returns how many objects there are between two visits of the worker. Any goroutine.
func (d *Device) Objects() (o Objects) {
	d.worker.Do(func() {
		o = Objects{
			Contexts: d.contexts.live, PDs: d.pds.live, MRs: d.mrs.live, CQs: d.cqs.live, QPs: d.qps.live, SRQs: d.srqs.live,
		}
	})
	return o
}

// Activate switches the device on for a driver of a version that CheckDriver accepts. uarPFN is the page frame at which the
// guest sees doorbell page 0.
func (d *Device) Activate(driver uint32, uarPFN uint64) error {
	if d.engine != nil {
		return nil
	}
	if err := d.CheckDriver(driver); err != nil {
		return fmt.Errorf("activate device of %s: %w", d.cfg.Name, err)
	}
	engine, err := d.worker.poller.OpenContext(hostverbs.ContextConfig{
		Guest: d.cfg.Name, GIDTableLen: gidTableLen, Limits: d.cfg.Limits,
	})
	if err != nil {
		return fmt.Errorf("activate device of %s: %w", d.cfg.Name, err)
	}
	if d.linkDown {
		engine.SetLink(false)
	}
	d.worker.Do(func() {
		d.engine, d.uarPFN, d.failed = engine, uarPFN, false
		d.version = abi.EffectiveVersion(d.cfg.Version, driver)
		if d.numbersAreHandles() {
			d.qps.keep()
		}
		d.share, d.looks, d.unit = passShare, passLooks, shareBytes
		d.worker.addDevice(d)
	})
	return nil
}

// Active reports whether the device is switched on.
func (d *Device) Active() bool { return d.engine != nil }

// Reset takes the device back to the state before Activate. When it returns, nothing reads or writes the guest's memory
// on the device's behalf.
func (d *Device) Reset() error {
	engine := d.engine
	if engine == nil {
		return nil
	}
	d.worker.Do(func() {
		d.worker.removeDevice(d)
		d.engine = nil
		d.dropDoorbells()
	})
	defer d.releaseAll() // also if the engine panics: nothing of this guest may be left for the next start
	return engine.Close()
}

// releaseAll forgets all objects. The engine has let go of them.
func (d *Device) releaseAll() {
	_ = inBatches(d, d.mrs.all(), func(m *memoryRegion) error { m.release(); return nil })
	_ = inBatches(d, d.qps.all(), func(q *queuePair) error { q.release(); return nil })
	_ = inBatches(d, d.srqs.all(), func(s *sharedReceiveQueue) error { s.release(); return nil })
	_ = inBatches(d, d.cqs.all(), func(c *completionQueue) error { c.release(); return nil })
	d.worker.Do(d.clearTables)
}

func (d *Device) clearTables() {
	d.kernel = &userContext{}
	d.contexts = newTable[userContext](firstHandle, d.caps.MaxUAR-1)
	d.pds = newTable[protectionDomain](firstHandle, d.caps.MaxPD)
	d.mrs = newTable[memoryRegion](firstHandle, d.caps.MaxMR)
	// CQ, QP and SRQ handles stay below the capability, because the driver indexes its tables with them.
	d.cqs = newTable[completionQueue](firstHandle, d.caps.MaxCQ-firstHandle)
	d.qps = newTable[queuePair](firstHandle, d.caps.MaxQP-firstHandle)
	d.srqs = newTable[sharedReceiveQueue](firstHandle, max(d.caps.MaxSRQ, firstHandle)-firstHandle)
	d.pinned, d.polled = 0, nil
	d.ready, d.graced = fifo[*queuePair]{}, fifo[*completionQueue]{}
	d.failAt, d.failLeft = 0, 0
	d.busy, d.unflushed = false, false
}

// firstHandle keeps 0 free: user space takes a QP handle of 0 for none, and context 0 is the guest kernel.
const firstHandle = 1

// Close ends the device.
func (d *Device) Close() error { return d.Reset() }

// errFailed is the error of what cannot be done because the device is about to be reset.
var errFailed = fmt.Errorf("the device has failed: %w", unix.EIO)

// fail takes the device out of the worker's round until it is reset. Worker thread.
func (d *Device) fail(err error) {
	if d.failed {
		return
	}
	d.failed = true
	d.notifier.Failed(fmt.Errorf("device of %s: %w", d.cfg.Name, err))
}

// do is Worker.Do for a part of the device's work that can fail. It reports whether the device can go on.
func (d *Device) do(fn func()) (ok bool) {
	d.worker.Do(func() {
		d.worker.guard(d, fn)
		ok = !d.failed
	})
	return ok
}

func (d *Device) observe(e Event) {
	if d.observer != nil {
		d.observer.Observe(e)
	}
}

func (d *Device) guest() Guest { return Guest{Name: d.cfg.Name} }

// violationLooks is how many looks a violation takes of a pass: to count it, and to see that its line is one too many, takes
// as long as these.
const violationLooks = 16

// violation reports that the guest broke a rule. err is a value made once where the data path calls it. Worker thread.
func (d *Device) violation(r GuestErrorReason, err error) {
	d.looks -= violationLooks
	d.observe(GuestError{Guest: d.guest(), Reason: r, Err: err})
}

// asyncEvent tells the guest of an event. Worker thread.
func (d *Device) asyncEvent(typ abi.EventType, info uint32) {
	sent := d.notifier.AsyncEvent(typ, info)
	d.observe(AsyncEventSent{Guest: d.guest(), Type: typ, Info: info, Lost: !sent})
}
