// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"golang.org/x/sys/unix"
)

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

func TestDoReturnsWhenItsFunctionHasRun(t *testing.T) {
	r := newLiveRig(t)
	var wg sync.WaitGroup
	sum := 0 // the worker's: no lock
	for range 8 {
		wg.Go(func() {
			for range 200 {
				mine := 0
				r.worker.Do(func() { sum++; mine = sum })
				if mine == 0 {
					t.Error("Do returned before its function")
				}
			}
		})
	}
	wg.Wait()
	r.worker.Do(func() {
		if sum != 8*200 {
			t.Errorf("%d functions ran, want %d", sum, 8*200)
		}
	})
}

func TestAPanicInDoIsRaisedInTheCaller(t *testing.T) {
	r := newLiveRig(t)
	func() {
		defer func() {
			if p := recover(); p != "of fn" {
				t.Errorf("the caller got panic %v", p)
			}
		}()
		r.worker.Do(func() { panic("of fn") })
		t.Error("Do returned")
	}()
	r.worker.Do(func() {}) // the worker lives
}

func TestDoAfterCloseRunsOnTheCaller(t *testing.T) {
	e := newFakeEngine()
	w, err := NewWorker(WorkerConfig{Provider: e, Domain: guestmem.NewDomain()})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	ran := false
	w.Do(func() { ran = true })
	if !ran {
		t.Error("Do after Close did nothing")
	}
}

func TestDoAndCloseMeet(t *testing.T) {
	for range 50 {
		w, err := NewWorker(WorkerConfig{Provider: newFakeEngine(), Domain: guestmem.NewDomain()})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 20 {
					w.Do(func() {})
				}
			})
		}
		runtime.Gosched()
		_ = w.Close()
		wg.Wait()
	}
}

func TestTheEngineIsNotAskedForProgressAfterItsPollerIsClosed(t *testing.T) {
	for range 20 {
		e := newFakeEngine()
		// An engine that always has something to do keeps the worker in its loop.
		e.onProgress(func(int64) (bool, int64) { return true, 0 })
		w, err := NewWorker(WorkerConfig{Provider: e, Domain: guestmem.NewDomain()})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the worker runs", func() bool { return e.passes.Load() > 10 })
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if n := e.late.Load(); n != 0 {
			t.Fatalf("%d calls of Progress after Close of the poller", n)
		}
	}
}

func TestAnEngineWithoutAPollerStartsNoWorker(t *testing.T) {
	e := newFakeEngine()
	e.refuseWith("NewPoller", unix.ENODEV)
	_, err := NewWorker(WorkerConfig{Provider: e, Domain: guestmem.NewDomain()})
	wantErrno(t, err, unix.ENODEV)
}

// TestEachWorkersThreadHasANameOfItsOwn, which ps and top show: one that is busy can be told from one that is not. It has it when the
// worker has been started.
func TestEachWorkersThreadHasANameOfItsOwn(t *testing.T) {
	for _, index := range []int{0, 1, 15} {
		w, err := NewWorker(WorkerConfig{Provider: newFakeEngine(), Domain: guestmem.NewDomain(), Index: index})
		if err != nil {
			t.Fatal(err)
		}
		name, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/comm", w.tid.Load()))
		if want := fmt.Sprintf("pvrdma-worker%d\n", index); err != nil || string(name) != want {
			t.Errorf("the thread of worker %d is %q, want %q (%v)", index, name, want, err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestAnErrorOfThePollersCloseIsReturned(t *testing.T) {
	e := newFakeEngine()
	w, err := NewWorker(WorkerConfig{Provider: e, Domain: guestmem.NewDomain()})
	if err != nil {
		t.Fatal(err)
	}
	e.refuseWith("Poller.Close", unix.EBUSY)
	wantErrno(t, w.Close(), unix.EBUSY)
}

func TestAnIdleWorkerUsesNoProcessor(t *testing.T) {
	r := newLiveRig(t)
	g := r.newGuest()
	g.kernelQP(8) // a guest without user contexts has nothing to poll
	r.asleep()
	before := r.engine.passes.Load()
	time.Sleep(200 * time.Millisecond)
	if n := r.engine.passes.Load() - before; n != 0 {
		t.Errorf("%d passes in 200 ms without anything to poll", n)
	}
	g.createUC(1)
	time.Sleep(20 * time.Millisecond)
	before, began := r.engine.passes.Load(), time.Now()
	time.Sleep(200 * time.Millisecond)
	n, took := r.engine.passes.Load()-before, time.Since(began)
	if most := took.Milliseconds() * 5 / 4; n > most {
		t.Errorf("%d passes in %v with a doorbell page to poll, want one a millisecond", n, took)
	}
	eventually(t, "the page is polled", func() bool { return r.engine.passes.Load()-before >= 3 })
}

func TestAnEnginesTimerWakesTheWorker(t *testing.T) {
	r := newLiveRig(t)
	var due, fired atomic.Int64
	r.worker.Do(func() { due.Store(r.worker.clock() + (30 * time.Millisecond).Nanoseconds()) })
	r.engine.onProgress(func(now int64) (bool, int64) {
		if fired.Load() == 0 && now >= due.Load() {
			fired.Store(now)
		}
		if fired.Load() != 0 {
			return false, 0
		}
		return false, due.Load()
	})
	r.worker.Wake() // so that it asks the engine; from here on nothing wakes it but the time
	eventually(t, "the timer has fired", func() bool { return fired.Load() != 0 })
}

func TestEarlierKnowsThatZeroIsNever(t *testing.T) {
	for _, c := range []struct{ a, b, want int64 }{{0, 0, 0}, {0, 5, 5}, {5, 0, 5}, {3, 5, 3}, {5, 3, 3}} {
		if got := earlier(c.a, c.b); got != c.want {
			t.Errorf("earlier(%d, %d) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestAPanicInTheEngineResetsItsGuestsOnly(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	r.engine.onProgress(func(int64) (bool, int64) { panic("of the engine") })
	if worked, _ := r.step(); !worked {
		t.Error("a pass that failed did nothing")
	}
	r.engine.onProgress(nil)
	if errs := g.notifier.failures(); len(errs) != 1 {
		t.Fatalf("failures %v, want one", errs)
	}
	if err := g.dev.Reset(); err != nil {
		t.Fatal(err)
	}
	g.activate()
	q, _ := g.kernelQP(8)
	q.postSends(1)
	q.ring(0, 1<<30)
	r.settle()
	if got := ids(q.engine.taken()); len(got) != 1 {
		t.Errorf("the device took %v after its reset", got)
	}
}

func TestAPanicWithAnErrorKeepsIt(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	q, _ := g.kernelQP(8)
	cause := errors.New("the cause")
	q.engine.beforePost = func() { panic(cause) }
	q.postSends(1)
	q.ring(0, 1<<30)
	r.step()
	if errs := g.notifier.failures(); len(errs) != 1 || !errors.Is(errs[0], cause) {
		t.Errorf("failures %v, want one that wraps the cause", errs)
	}
	q.engine.beforePost = nil
}

func TestAFailedDeviceIsNotVisitedUntilItsReset(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	q, _ := g.kernelQP(8)
	calls := 0
	q.engine.beforePost = func() { calls++; panic("again") }
	q.postSends(1)
	for range 3 {
		q.ring(0, 1<<30)
		r.step()
	}
	if calls != 1 || len(g.notifier.failures()) != 1 {
		t.Errorf("%d calls of the engine and %d failures, want one of each", calls, len(g.notifier.failures()))
	}
	q.ring(0, 1<<30)
	g.must(q.destroyReq(), nil) // what a command destroys is gone, whatever state the device is in
	if calls != 1 || len(q.engine.c.qps()) != 0 {
		t.Errorf("%d calls of the engine, %d queue pairs in it", calls, len(q.engine.c.qps()))
	}
}
