// SPDX-License-Identifier: Apache-2.0

package pcifn

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"github.com/pvrdmad/pvrdmad/vfiouser"
	"golang.org/x/sys/unix"
)

// driver is a guest whose driver talks to the function as the client of a vfio-user socket would: by region accesses, each
// write followed by Replied.
type driver struct {
	*memory
	engine *stubEngine
	worker *pvrdma.Worker
	domain *guestmem.Domain
	fn     *Function
	s      *session
	seen   *recorder
	irqs   [abi.MaxInterrupts]atomic.Int64

	dsr       abi.DSR
	dsrAddr   uint64
	async, cq *driverRing
}

const uarPFN = 0xfd000

func testConfig(mode DoorbellMode) Config {
	return Config{
		Device: pvrdma.Config{
			Name: "vm1", MAC: [6]byte{0x52, 0x54, 0, 1, 2, 3}, GIDType: hostverbs.GIDTypeRoCEv2, MaxUAR: 8,
		},
		Doorbells: mode,
	}
}

// attach returns a driver whose function is powered on and a bus master, in the state before the first register write.
func attach(t *testing.T, mode DoorbellMode) *driver {
	t.Helper()
	return attachTo(t, testConfig(mode))
}

// attachTo is attach for a function of a given configuration.
func attachTo(t *testing.T, cfg Config) *driver {
	t.Helper()
	d := &driver{memory: newMemory(t), engine: newStubEngine(), domain: guestmem.NewDomain(), seen: &recorder{}}
	var err error
	if d.worker, err = pvrdma.NewWorker(pvrdma.WorkerConfig{Provider: d.engine, Domain: d.domain}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.worker.Close() })
	cfg.Worker, cfg.Domain, cfg.Observer = d.worker, d.domain, d.seen
	if d.fn, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	d.connect()
	t.Cleanup(func() {
		d.s.Close()
		if n := d.engine.contexts(); n != 0 {
			t.Errorf("%d contexts of the engine are open after Close", n)
		}
		if st := d.s.mem.Stats(); st.Pinned != 0 {
			t.Errorf("%d pages are pinned after Close", st.Pinned)
		}
	})
	return d
}

// connect opens the function and maps the guest's memory in two regions.
func (d *driver) connect() {
	d.t.Helper()
	var err error
	if d.s, err = d.fn.open(func(v abi.IntrVector) { d.irqs[v].Add(1) }); err != nil {
		d.t.Fatal(err)
	}
	half := len(d.bytes) / 2
	d.ok(d.s.mem.MapBytes(guestBase, d.bytes[:half], rw))
	d.ok(d.s.mem.MapBytes(guestBase+uint64(half), d.bytes[half:], rw))
	d.config(pciCommand, 2, pciCommandMemory|pciCommandMaster)
}

// active returns a driver whose device is active.
func active(t *testing.T, mode DoorbellMode) *driver {
	t.Helper()
	d := attach(t, mode)
	d.probe()
	return d
}

// layout allocates what a driver shares with the device at its probe.
func (d *driver) layout() {
	d.async, d.cq = d.ring(4, abi.EQESize), d.ring(4, abi.CQNESize)
	d.dsr = abi.DSR{
		DriverVersion: 20, GOSInfo: abi.GOSInfo{GOSBits: 2, GOSType: 1, GOSVer: 1}, CmdSlotDMA: d.page(), RespSlotDMA: d.page(),
		AsyncRingPages: abi.RingPageInfo{NumPages: 4, PDirDMA: d.async.pdir},
		CQRingPages:    abi.RingPageInfo{NumPages: 4, PDirDMA: d.cq.pdir}, UARPFN64: uarPFN,
	}
	d.dsrAddr = d.page()
}

// loadDSR writes the shared region and its address, and returns ERR.
func (d *driver) loadDSR() uint32 {
	b := make([]byte, abi.DSRSize)
	d.dsr.Encode(b)
	d.write(d.dsrAddr, b[:abi.DSRCapsOffset])
	d.reg(abi.RegDSRLow, uint32(d.dsrAddr))
	d.reg(abi.RegDSRHigh, uint32(d.dsrAddr>>32))
	return d.get(abi.RegErr)
}

// caps returns what the device has written into the shared region.
func (d *driver) caps() abi.DeviceCaps {
	var c abi.DeviceCaps
	d.ok(c.Decode(d.read(d.dsrAddr+abi.DSRCapsOffset, abi.DeviceCapsSize)))
	return c
}

// probe brings the device up as the driver does.
func (d *driver) probe() {
	d.t.Helper()
	d.layout()
	if e := d.loadDSR(); e != 0 {
		d.t.Fatalf("DSRHIGH: ERR is %d", e)
	}
	d.reg(abi.RegIMR, 0)
	if e := d.ctl(abi.DeviceCtlActivate); e != 0 {
		d.t.Fatalf("ACTIVATE: ERR is %d", e)
	}
}

// store writes to a region as a client does.
func (d *driver) store(index vfiouser.RegionIndex, off uint64, p []byte) {
	d.t.Helper()
	if err := d.s.WriteRegion(index, off, p); err != nil {
		d.t.Errorf("write of %d bytes at %#x of region %d: %v", len(p), off, index, err)
		return
	}
	d.s.Replied()
}

// load reads from a region.
func (d *driver) load(index vfiouser.RegionIndex, off uint64, n int) []byte {
	d.t.Helper()
	p := make([]byte, n)
	if err := d.s.ReadRegion(index, off, p); err != nil {
		d.t.Errorf("read of %d bytes at %#x of region %d: %v", n, off, index, err)
	}
	return p
}

func (d *driver) reg(off uint64, v uint32) {
	d.t.Helper()
	d.store(vfiouser.RegionBAR1, off, binary.LittleEndian.AppendUint32(nil, v))
}

func (d *driver) get(off uint64) uint32 {
	d.t.Helper()
	return binary.LittleEndian.Uint32(d.load(vfiouser.RegionBAR1, off, 4))
}

// ctl writes CTL and returns ERR.
func (d *driver) ctl(c abi.DeviceCtl) uint32 {
	d.reg(abi.RegCtl, uint32(c))
	return d.get(abi.RegErr)
}

// config writes n bytes of configuration space.
func (d *driver) config(off uint64, n int, v uint32) {
	d.t.Helper()
	d.store(vfiouser.RegionConfig, off, binary.LittleEndian.AppendUint32(nil, v)[:n])
}

// request is a command's structure.
type request interface{ Encode(b []byte) }

// command executes a command as pvrdma_cmd_post does, and returns ERR and the response.
func (d *driver) command(req request) (errReg uint32, h abi.RespHeader, body []byte) {
	d.t.Helper()
	slot := make([]byte, abi.CmdReqSize)
	for i := range slot {
		slot[i] = 0xa5
	}
	req.Encode(slot)
	d.write(d.dsr.CmdSlotDMA, slot)
	d.reg(abi.RegRequest, 0)
	errReg = d.get(abi.RegErr)
	body = d.read(d.dsr.RespSlotDMA, abi.CmdRespSize)
	d.ok(h.Decode(body))
	return errReg, h, body
}

// must executes a command that succeeds.
func (d *driver) must(req request, resp interface{ Decode(b []byte) error }) {
	d.t.Helper()
	e, h, body := d.command(req)
	if e != 0 || h.Err != 0 || h.Ack&abi.AckFirst == 0 {
		d.t.Fatalf("%T: ERR %d, header %+v", req, e, h)
	}
	if resp != nil {
		d.ok(resp.Decode(body))
	}
}

func (d *driver) doorbell(page, off, v uint32) {
	d.t.Helper()
	d.store(vfiouser.RegionBAR2, uint64(page*abi.UARPageSize+off), binary.LittleEndian.AppendUint32(nil, v))
}

// onWorker runs something on the worker's thread, as the engine's callbacks do.
func (d *driver) onWorker(fn func()) { d.worker.Do(fn) }

// interrupts returns how often each vector was raised since the last call.
func (d *driver) interrupts() [abi.MaxInterrupts]int64 {
	var n [abi.MaxInterrupts]int64
	for v := range d.irqs {
		n[v] = d.irqs[v].Swap(0)
	}
	return n
}

func hdr(c abi.Cmd) abi.CmdHeader { return abi.CmdHeader{Cmd: c} }

// eventually waits for something that another goroutine brings about.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !cond(); {
		if time.Now().After(deadline) {
			t.Fatal("still not: " + what)
		}
		time.Sleep(50 * time.Microsecond)
	}
}

// recorder is an Observer.
type recorder struct {
	mu     sync.Mutex
	events []pvrdma.Event
}

func (r *recorder) Observe(e pvrdma.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// seen returns the events of one type.
func seen[T pvrdma.Event](r *recorder) []T {
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
func (r *recorder) violations() map[pvrdma.GuestErrorReason]int {
	n := map[pvrdma.GuestErrorReason]int{}
	for _, e := range seen[pvrdma.GuestError](r) {
		n[e.Reason]++
	}
	return n
}

func wantERR(t *testing.T, what string, got uint32, want unix.Errno) {
	t.Helper()
	if got != uint32(want) {
		t.Errorf("%s: ERR is %d, want %d (%v)", what, got, uint32(want), want)
	}
}
