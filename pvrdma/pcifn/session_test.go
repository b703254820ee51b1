// SPDX-License-Identifier: Apache-2.0

package pcifn

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"github.com/pvrdmad/pvrdmad/vfiouser"
	"golang.org/x/sys/unix"
)

func TestAFunctionNeedsAWorkerAndADomain(t *testing.T) {
	_, err := New(Config{Domain: guestmem.NewDomain()})
	if !errors.Is(err, unix.EINVAL) {
		t.Errorf("without a worker: %v", err)
	}
	_, err = New(Config{Worker: &pvrdma.Worker{}})
	if !errors.Is(err, unix.EINVAL) {
		t.Errorf("without a domain: %v", err)
	}
	cfg := attach(t, Poll).fn.cfg
	cfg.Device.MaxUAR = 3 // no BAR has that size
	if _, err := New(cfg); !errors.Is(err, unix.EINVAL) {
		t.Errorf("with three doorbell pages: %v", err)
	}
}

func TestAFunctionThatCannotBeOpenedLeavesNothing(t *testing.T) {
	d := attach(t, Poll)
	for _, mode := range []DoorbellMode{Poll, Trap} {
		cfg := d.fn.cfg
		cfg.Device.MaxUAR = 1 // a size that a BAR may have, and no device
		cfg.Doorbells = mode
		f, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		dev, err := f.Open(&vfiouser.Session{})
		if !errors.Is(err, unix.EINVAL) || dev != nil {
			t.Errorf("opened as %v, %v", dev, err)
		}
		if f.Attached() {
			t.Error("a client is attached")
		}
	}
	cfg := d.fn.cfg
	cfg.Device.Name = strings.Repeat("n", 300) // longer than a memfd's name may be
	f, _ := New(cfg)
	if dev, err := f.Open(&vfiouser.Session{}); err == nil || dev != nil {
		t.Errorf("opened as %v, %v", dev, err)
	}
}

func TestOpenGivesTheServerADevice(t *testing.T) {
	d := attach(t, Poll)
	f, err := New(d.fn.cfg)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := f.Open(&vfiouser.Session{})
	if err != nil || !f.Attached() {
		t.Fatal(err)
	}
	dev.Close()
	dev.Close() // once more changes nothing
	if f.Attached() {
		t.Error("a client is attached after Close")
	}
}

func TestObjectsAreCountedAsLongAsThereIsADevice(t *testing.T) {
	d := active(t, Poll)
	d.queuePair()
	if n := d.fn.Objects(); n != (pvrdma.Objects{PDs: 1, CQs: 1, QPs: 1}) {
		t.Errorf("objects of a kernel with a queue pair: %+v", n)
	}
	d.s.Close()
	if n := d.fn.Objects(); n != (pvrdma.Objects{}) {
		t.Errorf("objects without a client: %+v", n)
	}
}

func TestCountersOutliveTheConnection(t *testing.T) {
	d := active(t, Poll)
	for i := range uint64(3) {
		d.queuePair()
		h := d.engine.qp()
		d.onWorker(func() { _ = h.CompleteSend(&hostverbs.WC{WRID: i}) })
		if n := d.fn.Counters().CQEs; n != i+1 {
			t.Errorf("%d completions are counted, want %d", n, i+1)
		}
		d.s.Close()
		if n := d.fn.Counters().CQEs; n != i+1 {
			t.Errorf("%d completions are counted after Close, want %d", n, i+1)
		}
		d.connect()
		d.probe()
	}
	if n := len(seen[pvrdma.WasReset](d.seen)); n != 3 {
		t.Errorf("%d resets are reported, want 3", n)
	}
	for _, r := range seen[pvrdma.WasReset](d.seen) {
		if r.Cause != pvrdma.ResetByDisconnect {
			t.Errorf("reset by %v", r.Cause)
		}
	}
}

func TestTheMachinesResetIsAPowerOn(t *testing.T) {
	d := active(t, Poll)
	d.queuePair()
	d.reg(abi.RegDSRLow, 0x1234)
	if err := d.s.Reset(); err != nil {
		t.Fatal(err)
	}
	before := d.snapshot()
	if diff := cmp.Diff(powerOn(), d.load(vfiouser.RegionBAR1, 0, bar1Size)); diff != "" {
		t.Errorf("BAR1 (-want +got):\n%s", diff)
	}
	if d.s.mem.Enabled() || d.cfg32(pciCommand)&0xffff != 0 || d.s.mem.Stats().Pinned != 0 || d.engine.contexts() != 0 {
		t.Errorf("after a reset: memory access %v, %d pinned pages", d.s.mem.Enabled(), d.s.mem.Stats().Pinned)
	}
	wantERR(t, "ACTIVATE", d.ctl(abi.DeviceCtlActivate), unix.ENODEV)
	d.reg(abi.RegDSRHigh, 0)
	d.unchanged(before, "after the machine's reset")
	if r := seen[pvrdma.WasReset](d.seen); len(r) != 1 || r[0].Cause != pvrdma.ResetByVMM {
		t.Errorf("resets %+v", r)
	}
	d.config(pciCommand, 2, pciCommandMaster)
	d.probe() // the memory is still mapped
	d.must(&abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD)}, nil)
}

func TestAnErrorOfTheEngineAtAResetIsReported(t *testing.T) {
	d := active(t, Poll)
	d.engine.plan(func(e *stubEngine) { e.refuse["Context.Close"] = unix.EIO })
	wantERR(t, "RESET", d.ctl(abi.DeviceCtlReset), 0)
	d.engine.plan(func(e *stubEngine) { e.refuse["Context.Close"] = nil })
	if r := seen[pvrdma.WasReset](d.seen); len(r) != 1 || !errors.Is(r[0].Err, unix.EIO) {
		t.Errorf("resets %+v", r)
	}
}

func TestMemoryIsMappedWithTheRightsOfTheClient(t *testing.T) {
	d := attach(t, Poll)
	fd, err := unix.MemfdCreate("ram", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Ftruncate(fd, 0x3000); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		flags       vfiouser.DMAFlags
		read, write bool
	}{{vfiouser.DMARead, true, false}, {vfiouser.DMAWrite, false, true}, {vfiouser.DMARead | vfiouser.DMAWrite, true, true}} {
		addr := uint64(i+1) << 32 * 4
		if err := d.s.MapDMA(vfiouser.DMAMap{Addr: addr, Size: 0x1000, FD: fd, Offset: uint64(i) << 12, Flags: c.flags}); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 8)
		if got := d.s.mem.Read(addr, b) == nil; got != c.read {
			t.Errorf("flags %v: readable %v", c.flags, got)
		}
		if got := d.s.mem.Write(addr, b) == nil; got != c.write {
			t.Errorf("flags %v: writable %v", c.flags, got)
		}
		if err := d.s.UnmapDMA(addr, 0x1000); err != nil {
			t.Error(err)
		}
	}
	if err := d.s.UnmapDMA(1<<40, 0x1000); !errors.Is(err, unix.ENOENT) {
		t.Errorf("unmap of nothing: %v", err)
	}
}

// fail is a device that reports that it cannot go on.
func (d *driver) fail() {
	d.onWorker(func() { d.s.events.Failed(errors.New("the test says so")) })
}

func TestAFailedDeviceIsResetAndTheGuestIsTold(t *testing.T) {
	d := active(t, Poll)
	d.queuePair()
	d.interrupts()
	d.fail()
	d.s.failures.Wait()
	if diff := cmp.Diff([]abi.EQE{{Type: abi.EventDeviceFatal, Info: 1}}, d.async.asyncs()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if n := d.interrupts(); n != [3]int64{0, 1, 0} {
		t.Errorf("interrupts %v, want vector 1 once", n)
	}
	wantERR(t, "after the failure", d.get(abi.RegErr), unix.EIO)
	if d.s.dev.Active() || d.s.mem.Stats().Pinned != 0 {
		t.Error("the device is active")
	}
	wantERR(t, "REQUEST", d.try(abi.RegRequest), unix.ENODEV)
	r := seen[pvrdma.WasReset](d.seen)
	if len(r) != 1 || r[0].Cause != pvrdma.ResetByFault || r[0].Err == nil || !strings.Contains(r[0].Err.Error(), "the test says so") {
		t.Errorf("resets %+v", r)
	}
	d.probe()
	d.must(&abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD)}, nil)
}

func TestAPanicInACommandFailsIt(t *testing.T) {
	d := active(t, Poll)
	d.engine.plan(func(e *stubEngine) { e.panics["AllocPD"] = true })
	e, h, _ := d.command(&abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD)})
	d.s.failures.Wait()
	wantERR(t, "CREATE_PD", e, unix.EIO)
	if h.Ack != 0 || d.s.dev.Active() {
		t.Errorf("ack %#x, active %v", h.Ack, d.s.dev.Active())
	}
	d.engine.plan(func(e *stubEngine) { e.panics["AllocPD"] = false })
	d.probe()
	d.must(&abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD)}, nil)
}

// TestAFailureOfTheTimeBeforeAResetIsForgotten: the driver has reset the device and brought it up again before the failure
// was handled.
func TestAFailureOfTheTimeBeforeAResetIsForgotten(t *testing.T) {
	d := active(t, Poll)
	d.s.mu.Lock() // a register access is being handled
	d.onWorker(func() { d.s.events.Failed(errors.New("of the time before")) })
	d.s.toIdle(pvrdma.ResetByDriver, nil)
	d.s.mu.Unlock()
	// The failure may be handled now or later. Neither may harm what comes next.
	d.probe()
	d.s.failures.Wait()
	if !d.s.dev.Active() {
		t.Error("the new device was reset for the old one's failure")
	}
	d.must(&abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD)}, nil)
}

func TestAFailureThatComesAfterANewStartIsForgotten(t *testing.T) {
	d := active(t, Poll)
	before := d.s.events.incarnation
	wantERR(t, "RESET", d.ctl(abi.DeviceCtlReset), 0)
	d.probe()
	d.s.failed(before, errors.New("of the time before"))
	if !d.s.dev.Active() {
		t.Error("the new device was reset for the old one's failure")
	}
}

func TestAPanicWhileAFailureIsHandledIsSurvived(t *testing.T) {
	d := active(t, Poll)
	d.queuePair()
	d.engine.plan(func(e *stubEngine) { e.panics["Context.Close"] = true })
	d.onWorker(func() { d.s.events.Failed(errors.New("the first")) })
	d.s.failures.Wait()
	d.engine.plan(func(e *stubEngine) { e.panics["Context.Close"] = false })
	r := seen[pvrdma.WasReset](d.seen)
	if len(r) != 1 || r[0].Err == nil || !strings.Contains(r[0].Err.Error(), "Context.Close") {
		t.Errorf("resets %+v", r)
	}
	if d.s.dev.Active() || d.s.mem.Stats().Pinned != 0 {
		t.Errorf("active %v, %d pages are pinned", d.s.dev.Active(), d.s.mem.Stats().Pinned)
	}
	d.probe()
	if qp, _ := d.queuePair(); qp != 1 {
		t.Errorf("the first queue pair of the new start has handle %d", qp)
	}
}

func TestCloseWhileAFailureIsHandled(t *testing.T) {
	for range 20 {
		d := active(t, Poll)
		d.queuePair()
		var wg sync.WaitGroup
		d.onWorker(func() { d.s.events.Failed(errors.New("meanwhile")) })
		wg.Go(d.s.Close)
		wg.Wait()
		before := d.snapshot()
		if d.s.dev.Active() || d.s.mem.Stats().Pinned != 0 {
			t.Fatal("the device is active after Close")
		}
		d.onWorker(func() {})
		d.unchanged(before, "after Close")
	}
}

func TestCloseWaitsForTheFailureThatIsBeingHandled(t *testing.T) {
	d := active(t, Poll)
	hold := make(chan struct{})
	d.engine.plan(func(e *stubEngine) { e.wait["Context.Close"] = hold })
	d.onWorker(func() { d.s.events.Failed(errors.New("slow")) })
	eventually(t, "the failure is being handled", func() bool {
		free := d.s.mu.TryLock()
		if free {
			d.s.mu.Unlock()
		}
		return !free
	})
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		d.s.Close()
	}()
	select {
	case <-closed:
		t.Error("Close did not wait")
	case <-time.After(20 * time.Millisecond):
	}
	close(hold)
	<-closed
	d.engine.plan(func(e *stubEngine) { delete(e.wait, "Context.Close") })
}

// beside returns a driver of another guest with the same worker, whose memory is a file as a virtual machine's is.
func (d *driver) beside(t *testing.T) (other *driver, fd int) {
	t.Helper()
	fn, err := New(d.fn.cfg)
	if err != nil {
		t.Fatal(err)
	}
	other = &driver{
		memory: newMemory(t), engine: d.engine, worker: d.worker, domain: d.domain, fn: fn, seen: &recorder{},
	}
	fn.cfg.Observer = other.seen
	if other.s, err = fn.open(func(v abi.IntrVector) { other.irqs[v].Add(1) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.s.Close)
	if fd, err = unix.MemfdCreate("ram", unix.MFD_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	const size = guestPages * abi.PageSize
	d.ok(unix.Ftruncate(fd, size))
	d.ok(other.s.MapDMA(vfiouser.DMAMap{Addr: guestBase, Size: size, FD: fd, Flags: vfiouser.DMARead | vfiouser.DMAWrite}))
	driverView := guestmem.NewDomain().NewSpace("driver")
	t.Cleanup(func() { _ = driverView.Close() })
	d.ok(driverView.Map(guestBase, size, fd, 0, rw))
	all := make([]uint64, guestPages)
	for i := range all {
		all[i] = guestBase + uint64(i)*abi.PageSize
	}
	other.view, err = driverView.Pin(all, rw)
	d.ok(err)
	t.Cleanup(other.view.Release)
	other.config(pciCommand, 2, pciCommandMaster)
	other.probe()
	return other, fd
}

// TestATruncatedMemoryResetsOneGuest lets two guests share a worker, and takes the memory of one away.
func TestATruncatedMemoryResetsOneGuest(t *testing.T) {
	for name, touch := range map[string]func(d *driver, qp uint32){
		"by a doorbell": func(d *driver, qp uint32) { d.doorbell(0, abi.UARQPOffset, abi.UARQPSend|qp) },
		"by a command":  func(d *driver, _ uint32) { d.reg(abi.RegRequest, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			healthy := active(t, Poll)
			healthy.queuePair()
			d, fd := healthy.beside(t)
			qp, _ := d.queuePair()
			d.must(&abi.CmdModifyQPReq{Hdr: hdr(abi.CmdModifyQP), QPHandle: qp, AttrMask: 1, Attrs: abi.QPAttr{QPState: 3}}, nil)
			d.ok(unix.Ftruncate(fd, 0))
			touch(d, qp)
			eventually(t, "the guest's device is reset", func() bool { return d.get(abi.RegErr) == uint32(unix.EIO) })
			if d.s.dev.Active() {
				t.Error("the device is active")
			}
			d.inState(pvrdma.ErrorFault)
			wantERR(t, "DSRHIGH", d.tryDSR(), unix.EFAULT)
			healthy.must(&abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD)}, nil)
			if !healthy.s.dev.Active() {
				t.Error("the other guest's device was reset")
			}
			healthy.inState(pvrdma.NoError)
		})
	}
}

// tryDSR writes the region's address and returns ERR.
func (d *driver) tryDSR() uint32 {
	d.reg(abi.RegDSRLow, uint32(d.dsrAddr))
	d.reg(abi.RegDSRHigh, uint32(d.dsrAddr>>32))
	return d.get(abi.RegErr)
}
