// SPDX-License-Identifier: Apache-2.0

package pcifn

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/pvrdma"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"github.com/pvrdmad/pvrdmad/vfiouser"
	"golang.org/x/sys/unix"
)

// DoorbellMode is how the guest's doorbells reach the device.
type DoorbellMode uint8

const (
	// Poll maps the doorbell pages of user contexts into the guest: its stores cost nothing, and the worker polls.
	Poll DoorbellMode = iota
	// Trap makes every doorbell a message.
	Trap
)

// Config describes a function.
type Config struct {
	Device    pvrdma.Config
	Doorbells DoorbellMode
	// Worker runs the device's data path.
	Worker *pvrdma.Worker
	// Domain holds the memory of the worker's guests.
	Domain *guestmem.Domain
	// Observer may be nil.
	Observer pvrdma.Observer
}

// Function is a guest's place for a device. It outlives the guest's connections: Open makes a fresh device for each.
type Function struct {
	cfg Config
	// powerOn is the configuration space as it is at first.
	powerOn vfiouser.ConfigSpace
	device  atomic.Pointer[pvrdma.Device]
	// past counts for devices of connections that are over. Guarded by mu.
	mu   sync.Mutex
	past pvrdma.Counters
	link link
}

// New returns a function.
func New(cfg Config) (*Function, error) {
	if cfg.Worker == nil || cfg.Domain == nil {
		return nil, fmt.Errorf("make pci function of %s without worker or domain: %w", cfg.Device.Name, unix.EINVAL)
	}
	config, err := newConfigSpace(cfg.Device.MaxUAR)
	if err != nil {
		return nil, fmt.Errorf("make pci function of %s: %w", cfg.Device.Name, err)
	}
	f := &Function{cfg: cfg, powerOn: *config}
	f.link.down = cfg.Device.LinkDown
	return f, nil
}

// Counters returns the guest's data path counters over all its connections. Any goroutine.
func (f *Function) Counters() pvrdma.Counters {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.past
	if d := f.device.Load(); d != nil {
		c.Add(d.Counters())
	}
	return c
}

// Objects returns how many objects the device of the client holds, none without a client. Any goroutine.
func (f *Function) Objects() pvrdma.Objects {
	if d := f.device.Load(); d != nil {
		return d.Objects()
	}
	return pvrdma.Objects{}
}

// Attached reports whether a client is connected.
func (f *Function) Attached() bool { return f.device.Load() != nil }

// Open makes the device for a client. It is vfiouser.Config.Open.
func (f *Function) Open(s *vfiouser.Session) (vfiouser.Device, error) {
	dev, err := f.open(func(vector abi.IntrVector) { s.Trigger(vfiouser.IRQMSIX, uint32(vector)) })
	if err != nil {
		return nil, err // and not a Device that holds a nil pointer
	}
	return dev, nil
}

func (f *Function) open(interrupt func(abi.IntrVector)) (*session, error) {
	s := &session{fn: f, cfg: f.cfg, interrupt: interrupt, observer: f.cfg.Observer, grace: enableGrace}
	s.mem = f.cfg.Domain.NewSpace(f.cfg.Device.Name)
	s.mem.SetBarrier(f.cfg.Worker.Barrier)
	// DMA is off until the driver makes the function a bus master.
	s.mem.SetEnabled(false)
	s.config = f.powerOn
	if f.cfg.Doorbells == Poll {
		pages, err := guestmem.NewSharedPages("pvrdma-uar-"+f.cfg.Device.Name, int(f.cfg.Device.MaxUAR))
		if err != nil {
			_ = s.mem.Close()
			return nil, fmt.Errorf("open function of %s: %w", f.cfg.Device.Name, err)
		}
		s.doorbells = pages
	}
	s.events.init(s)
	dev, err := f.cfg.Worker.NewDevice(f.cfg.Device, s.mem, s.doorbells, &s.events, f.cfg.Observer)
	if err != nil {
		s.free()
		return nil, err
	}
	s.dev = dev
	f.link.attach(s)
	s.regs.power(dev.Version(), f.cfg.Device.MAC)
	s.watchEnable()
	f.device.Store(dev)
	return s, nil
}

// session is a function while a client is connected. The client's goroutine calls it, and so does the goroutine that
// handles a failure of the guest; mu keeps them apart.
type session struct {
	fn        *Function
	cfg       Config
	observer  pvrdma.Observer
	interrupt func(abi.IntrVector)
	mem       *guestmem.Space
	doorbells *guestmem.SharedPages
	dev       *pvrdma.Device
	events    eventRings
	failures  sync.WaitGroup

	mu     sync.Mutex
	config vfiouser.ConfigSpace // guarded by mu, like all below
	regs   registers
	dsr    loadedDSR
	shared sharedMemory
	// state is what keeps the device from serving its guest.
	state pvrdma.ErrorState
	// probed and enabled say that a driver has written the address of its shared region, and that somebody has enabled the
	// function, since the machine attached or was reset. watch waits for the latter for the time of grace.
	probed, enabled bool
	watch           *time.Timer
	grace           time.Duration
	// request is a copied command, which waits for Replied if requested is set; rung is a doorbell that waits for it.
	request   pvrdma.Request
	response  pvrdma.Response
	requested bool
	rung      rungDoorbell
	closed    bool
}

var _ vfiouser.Device = (*session)(nil)

func (s *session) name() string { return s.cfg.Device.Name }

func (s *session) violation(r pvrdma.GuestErrorReason, err error) {
	if s.observer != nil {
		s.observer.Observe(pvrdma.GuestError{Guest: pvrdma.Guest{Name: s.name()}, Reason: r, Err: err})
	}
}

// toIdle takes the device back to its state after power-on, except for the registers. When it returns, nothing touches the
// guest's memory any more.
func (s *session) toIdle(cause pvrdma.ResetCause, why error) {
	was := s.dev.Active()
	s.dsr = loadedDSR{}
	defer s.shared.release() // what it holds is not reached by it
	s.requested, s.rung.valid = false, false
	err := s.resetDevice()
	if err == nil {
		err = why
	}
	if was && s.observer != nil {
		s.observer.Observe(pvrdma.WasReset{Guest: pvrdma.Guest{Name: s.name()}, Cause: cause, Err: err})
	}
}

// resetDevice resets the device and lets go of the event rings, also if the engine panics.
func (s *session) resetDevice() error {
	defer s.events.stop(s.cfg.Worker)
	return s.dev.Reset()
}

// Reset implements vfiouser.Device.
func (s *session) Reset() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.toIdle(pvrdma.ResetByVMM, nil)
	s.regs.power(s.dev.Version(), s.cfg.Device.MAC)
	s.config = s.fn.powerOn
	s.mem.SetEnabled(false)
	s.enter(pvrdma.NoError, nil)
	s.probed = false
	s.watchEnable()
	return nil
}

// Close implements vfiouser.Device.
func (s *session) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	s.watch.Stop()
	s.toIdle(pvrdma.ResetByDisconnect, nil)
	s.enter(pvrdma.NoError, nil)
	s.mu.Unlock()
	s.failures.Wait()
	s.fn.link.detach()
	s.fn.detach(s.dev)
	s.free()
}

func (f *Function) detach(d *pvrdma.Device) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.past.Add(d.Counters())
	f.device.Store(nil)
}

func (s *session) free() {
	_ = s.mem.Close()
	if s.doorbells != nil {
		_ = s.doorbells.Close()
	}
}

// failed handles a device that cannot go on. The guest is told by an event, if its memory still takes one, and finds the
// device as after a reset. A failure of an incarnation that is over is no news.
func (s *session) failed(incarnation uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !s.dev.Active() || s.events.incarnation != incarnation {
		return
	}
	s.tellFatal()
	s.toIdle(pvrdma.ResetByFault, err)
	s.regs.err = uint32(unix.EIO)
	s.enter(pvrdma.ErrorFault, nil)
}

// fatalPort is the port that the driver reports a fatal event for, whatever the event says.
const fatalPort = 1

// tellFatal tells the guest that its device is gone. A fault in there is the one that is being handled.
func (s *session) tellFatal() {
	if s.events.lost() == asyncRing {
		return
	}
	s.cfg.Worker.Do(func() {
		var fault error
		defer s.cfg.Domain.Recover(&fault)
		s.events.AsyncEvent(abi.EventDeviceFatal, fatalPort)
	})
}

// survive is deferred by the goroutine that handles a failure: a panic in there would end the daemon.
func (s *session) survive(cause error) {
	if r := recover(); r != nil && s.observer != nil {
		s.observer.Observe(pvrdma.WasReset{
			Guest: pvrdma.Guest{Name: s.name()}, Cause: pvrdma.ResetByFault,
			Err: fmt.Errorf("reset after a failure (%w): %v", cause, r),
		})
	}
}

// MapDMA implements vfiouser.Device.
func (s *session) MapDMA(m vfiouser.DMAMap) error {
	var prot guestmem.Prot
	if m.Flags&vfiouser.DMARead != 0 {
		prot |= guestmem.ProtRead
	}
	if m.Flags&vfiouser.DMAWrite != 0 {
		prot |= guestmem.ProtWrite
	}
	return s.mem.Map(m.Addr, m.Size, m.FD, m.Offset, prot)
}

// UnmapDMA implements vfiouser.Device.
func (s *session) UnmapDMA(addr, size uint64) error {
	if err := s.mem.Unmap(addr, size); err != nil {
		return err
	}
	s.memoryTaken()
	return nil
}

// UnmapAllDMA implements vfiouser.Device.
func (s *session) UnmapAllDMA() error {
	s.mem.UnmapAll()
	s.memoryTaken()
	return nil
}
