// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"errors"
	"maps"
	"testing"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// fileGuest is a guest whose memory is a file, as a virtual machine's is, so that it can be truncated. Its objects are
// made in heap memory and copied into the file before the device sees them.
func (r *rig) fileGuest(name string) (*guest, int) {
	r.t.Helper()
	cfg := defaultConfig()
	cfg.Name = name
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = unix.Close(fd) })
	const size = guestPages * abi.PageSize
	if err := unix.Ftruncate(fd, size); err != nil {
		r.t.Fatal(err)
	}
	g := &guest{
		memory: fileMemory(r.t, fd, size), rig: r, notifier: &fakeNotifier{room: -1}, seen: &recorder{}, cfg: cfg,
	}
	g.space = r.domain.NewSpace(name)
	g.space.SetBarrier(func() { r.worker.Do(func() {}) })
	if err := g.space.Map(guestBase, size, fd, 0, rw); err != nil {
		r.t.Fatal(err)
	}
	g.makeDevice(true)
	g.activate()
	return g, fd
}

// fileMemory is the driver's view of a file.
func fileMemory(t *testing.T, fd int, size uint64) *memory {
	t.Helper()
	m := &memory{t: t, next: guestBase}
	driver := guestmem.NewDomain().NewSpace("driver")
	t.Cleanup(func() { _ = driver.Close() })
	if err := driver.Map(guestBase, size, fd, 0, rw); err != nil {
		t.Fatal(err)
	}
	all := make([]uint64, size/abi.PageSize)
	for i := range all {
		all[i] = guestBase + uint64(i)*abi.PageSize
	}
	var err error
	if m.view, err = driver.Pin(all, rw); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.view.Release)
	return m
}

// truncate takes the file away from under both.
func truncate(t *testing.T, fd int) {
	t.Helper()
	if err := unix.Ftruncate(fd, 0); err != nil {
		t.Fatal(err)
	}
}

// onlyOneFails checks that the device of a guest whose memory is gone has failed with a fault of that memory, and that the
// other guest's device works.
func onlyOneFails(t *testing.T, r *rig, broken, healthy *guest, hq *guestQP) {
	t.Helper()
	errs := broken.notifier.failures()
	var fault *guestmem.FaultError
	if len(errs) != 1 || !errors.As(errs[0], &fault) || fault.Owner != broken.cfg.Name {
		t.Fatalf("failures of the guest without memory: %v, want one fault", errs)
	}
	if errs := healthy.notifier.failures(); len(errs) != 0 {
		t.Fatalf("failures of the other guest: %v", errs)
	}
	hq.postSends(99)
	hq.ring(0, abi.UARQPSend)
	r.settle()
	if got := ids(hq.engine.taken()); len(got) != 1 || got[0] != 99 {
		t.Errorf("the other guest's device took %v", got)
	}
}

// way is one of the ways by which the device comes to a guest's memory.
type way func(t *testing.T, r *rig, g *guest, q *guestQP, c *guestCQ)

// ownWays are those that the guest itself takes.
func ownWays() map[string]way {
	return map[string]way{
		"a doorbell by message": func(_ *testing.T, r *rig, _ *guest, q *guestQP, _ *guestCQ) {
			q.ring(0, abi.UARQPSend)
			r.step()
		},
		"a polled doorbell": func(_ *testing.T, r *rig, _ *guest, q *guestQP, _ *guestCQ) {
			q.ring(userPage, abi.UARQPSend)
			r.step()
		},
		"an arm": func(_ *testing.T, r *rig, _ *guest, _ *guestQP, c *guestCQ) {
			c.ring(0, abi.UARCQArm)
			r.step()
		},
		"a doorbell before a command": func(_ *testing.T, _ *rig, g *guest, q *guestQP, _ *guestCQ) {
			q.ring(0, abi.UARQPSend)
			_, _ = g.exec(&abi.CmdQueryPortReq{Hdr: hdr(abi.CmdQueryPort), PortNum: 1})
		},
		"more doorbells than may wait": func(_ *testing.T, _ *rig, _ *guest, q *guestQP, _ *guestCQ) {
			for range maxTrapped {
				q.ring(0, abi.UARQPSend)
			}
		},
		"a move to another state": func(t *testing.T, _ *rig, g *guest, q *guestQP, _ *guestCQ) {
			_, err := g.exec(q.modifyReq(hostverbs.StateErr))
			wantErrno(t, err, unix.EIO)
		},
	}
}

// engineWays are those that the engine takes, perhaps for another guest.
func engineWays() map[string]way {
	return map[string]way{
		"a completion of a send": func(t *testing.T, _ *rig, _ *guest, q *guestQP, _ *guestCQ) {
			if err := q.complete(hostverbs.WC{}); err != nil { // it is written with others, at the end of the visit
				t.Error(err)
			}
		},
		"a completion of a receive": func(t *testing.T, _ *rig, _ *guest, q *guestQP, _ *guestCQ) {
			var err error
			for n := 0; err == nil && n <= stageLen; n++ { // until the others must be written
				err = q.engine.h.CompleteRecv(&hostverbs.WC{})
			}
			wantErrno(t, err, unix.EFAULT)
		},
		"a receive for a peer's message": func(t *testing.T, _ *rig, _ *guest, q *guestQP, _ *guestCQ) {
			_, err := q.engine.h.PullRecv(&hostverbs.RecvWR{})
			wantErrno(t, err, unix.EFAULT)
		},
		"an event while the engine works": func(t *testing.T, r *rig, g *guest, q *guestQP, _ *guestCQ) {
			// The event ring lies in the memory that is gone.
			g.notifier.onAsync = func() { g.store(q.pageOf()) }
			returned := false
			r.engine.onProgress(func(int64) (bool, int64) {
				q.engine.h.Event(hostverbs.EventCommEst)
				returned = true
				return true, 0
			})
			r.step()
			r.engine.onProgress(nil)
			if !returned {
				t.Error("the fault came out in the middle of the engine's work")
			}
		},
		"a copy that the engine has made": func(t *testing.T, r *rig, _ *guest, q *guestQP, _ *guestCQ) {
			var fault *guestmem.FaultError
			if err := guestmem.CopyIn(q.pageOf(), 0, make([]byte, 8)); !errors.As(err, &fault) {
				t.Fatalf("copied into memory that is gone: %v", err)
			}
			r.worker.MemoryFault(fault)
		},
		"the engine's own access": func(_ *testing.T, r *rig, g *guest, q *guestQP, _ *guestCQ) {
			r.engine.onProgress(func(int64) (bool, int64) { g.store(q.pageOf()); return true, 0 })
			r.step()
			r.engine.onProgress(nil)
		},
	}
}

func TestAMemoryFaultResetsItsOwnerOnly(t *testing.T) {
	ways := ownWays()
	maps.Copy(ways, engineWays())
	for name, touch := range ways {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			healthy := r.newGuest()
			hq, _ := healthy.kernelQP(8)
			g, fd := r.fileGuest("vm2")
			q, c := g.rcQP(userPage, 8)
			q.postSends(1)
			truncate(t, fd)
			touch(t, r, g, q, c)
			onlyOneFails(t, r, g, healthy, hq)
			if err := g.dev.Reset(); err != nil {
				t.Error(err)
			}
			if g.space.Stats().Pinned != 0 {
				t.Errorf("%d pages are pinned after the reset", g.space.Stats().Pinned)
			}
		})
	}
}

// pageOf returns the device's hold of the queue pair's memory.
func (q *guestQP) pageOf() *guestmem.Pages { return q.dev().pages }

// store writes a word by way of the device's page list: without a guard of its own.
func (g *guest) store(p *guestmem.Pages) { _ = p.Store32(0, 1) }

func TestAFaultOfAGuestOfAnotherWorkerFailsTheOneThatWasVisited(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	q, _ := g.kernelQP(8)
	stranger := r.domain.NewSpace("stranger")
	fd, err := unix.MemfdCreate("stranger", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := errors.Join(unix.Ftruncate(fd, 4096), stranger.Map(0x1000, 4096, fd, 0, rw)); err != nil {
		t.Fatal(err)
	}
	p, err := stranger.Pin([]uint64{0x1000}, rw)
	if err != nil {
		t.Fatal(err)
	}
	truncate(t, fd)
	q.engine.beforePost = func() { g.store(p) }
	q.postSends(1)
	q.ring(0, abi.UARQPSend)
	r.step()
	q.engine.beforePost = nil
	if len(g.notifier.failures()) != 1 {
		t.Errorf("failures %v", g.notifier.failures())
	}
	_ = g.dev.Reset()
	g.activate()
	r.engine.onProgress(func(int64) (bool, int64) { g.store(p); return true, 0 })
	r.step()
	r.engine.onProgress(nil)
	if len(g.notifier.failures()) != 2 {
		t.Errorf("failures %v: nobody was blamed for the engine's fault", g.notifier.failures())
	}
	p.Release()
	_ = stranger.Close()
}

func TestAPanicForOneGuestLeavesTheOthersWorking(t *testing.T) {
	r := newLiveRig(t)
	broken, healthy := r.newGuest(), r.newGuest()
	bq, _ := broken.kernelQP(8)
	hq, _ := healthy.kernelQP(8)
	bq.engine.mu.Lock()
	bq.engine.beforePost = func() { panic("of the engine") }
	bq.engine.mu.Unlock()
	bq.postSends(1)
	bq.ring(0, abi.UARQPSend)
	eventually(t, "the device has failed", func() bool { return len(broken.notifier.failures()) == 1 })
	hq.postSends(1)
	hq.ring(0, abi.UARQPSend)
	eventually(t, "the other device takes its request", func() bool { return len(hq.engine.taken()) == 1 })
	if len(healthy.notifier.failures()) != 0 {
		t.Errorf("failures of the other guest: %v", healthy.notifier.failures())
	}
}

func TestAMemoryFaultOnTheWorkersThreadIsSurvived(t *testing.T) {
	r := newLiveRig(t)
	healthy := r.newGuest()
	hq, _ := healthy.kernelQP(8)
	g, fd := r.fileGuest("vm2")
	q, _ := g.rcQP(userPage, 8)
	q.postSends(1)
	truncate(t, fd)
	q.ring(userPage, abi.UARQPSend)
	eventually(t, "the device has failed", func() bool { return len(g.notifier.failures()) == 1 })
	hq.postSends(1)
	hq.ring(0, abi.UARQPSend)
	eventually(t, "the other device takes its request", func() bool { return len(hq.engine.taken()) == 1 })
}

// TestAFaultOfTheTimeBeforeAResetIsNotTheNextStarts: another worker has found it, and this one hears of it when the device was
// switched off and on again.
func TestAFaultOfTheTimeBeforeAResetIsNotTheNextStarts(t *testing.T) {
	r := newRig(t)
	r.newGuest()
	g, fd := r.fileGuest("vm2")
	q, _ := g.rcQP(userPage, 8)
	truncate(t, fd)
	var fault *guestmem.FaultError
	if err := guestmem.CopyIn(q.pageOf(), 0, make([]byte, 8)); !errors.As(err, &fault) {
		t.Fatalf("copied into memory that is gone: %v", err)
	}
	found := r.worker.activations.Load()
	if err := g.dev.Reset(); err != nil {
		t.Fatal(err)
	}
	g.activate()

	if r.worker.blameUntil(fault, found) || len(g.notifier.failures()) != 0 {
		t.Errorf("failures %v of a device that was switched on after the fault", g.notifier.failures())
	}
	if !r.worker.blame(fault) || len(g.notifier.failures()) != 1 {
		t.Errorf("failures %v after a fault of the present, want one", g.notifier.failures())
	}
}

func TestAFaultThatAnotherWorkerHasFoundResetsItsOwner(t *testing.T) {
	r := newLiveRig(t)
	healthy := r.newGuest()
	g, fd := r.fileGuest("vm2")
	q, _ := g.rcQP(userPage, 8)
	truncate(t, fd)
	var fault *guestmem.FaultError
	if err := guestmem.CopyIn(q.pageOf(), 0, make([]byte, 8)); !errors.As(err, &fault) {
		t.Fatalf("copied into memory that is gone: %v", err)
	}

	r.worker.MemoryFault(fault) // this is not the worker's thread

	eventually(t, "the device has failed", func() bool { return len(g.notifier.failures()) == 1 })
	if len(healthy.notifier.failures()) != 0 {
		t.Errorf("failures of the other guest: %v", healthy.notifier.failures())
	}
}
