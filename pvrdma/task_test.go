// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"sync"
	"testing"
	"time"
)

// asleep waits until the worker's thread sleeps for as long as it may.
func (r *rig) asleep() {
	r.t.Helper()
	eventually(r.t, "the worker sleeps", func() bool {
		return r.worker.idle.state.Load() == sleeping && r.worker.idle.until.Load()-r.worker.clock() > forever/2
	})
}

func TestACallOfAWorkerThatSleepsDoesNotWakeIt(t *testing.T) {
	r := newLiveRig(t)
	r.asleep()
	until, before := r.worker.idle.until.Load(), r.engine.passes.Load()
	ran := false
	r.worker.Do(func() { ran = true })
	if !ran || r.engine.passes.Load() != before+1 {
		t.Errorf("the call ran: %v, and %d passes followed it, want 1", ran, r.engine.passes.Load()-before)
	}
	time.Sleep(10 * time.Millisecond)
	if r.worker.idle.state.Load() != sleeping || r.worker.idle.until.Load() != until || r.engine.passes.Load() != before+1 {
		t.Error("the worker was woken")
	}
}

func TestAWorkerGoesOnWhenACallInItsPlaceLeavesWork(t *testing.T) {
	for name, progress := range map[string]func(left int) (bool, int64){
		"now":  func(left int) (bool, int64) { return left > 0, 0 },
		"soon": func(left int) (bool, int64) { return false, int64(left) }, // a time that has passed
	} {
		t.Run(name, func(t *testing.T) {
			r := newLiveRig(t)
			r.asleep()
			left := 5 // passes that the engine wants; the worker's, whoever takes its place
			r.engine.onProgress(func(int64) (bool, int64) {
				left = max(left-1, 0)
				return progress(left)
			})
			r.worker.Do(func() {})
			eventually(t, "the engine has had its passes", func() bool {
				done := false
				r.worker.Do(func() { done = left == 0 })
				return done
			})
		})
	}
}

func TestAWakeDuringACallInTheWorkersPlaceIsNotLost(t *testing.T) {
	r := newLiveRig(t)
	r.asleep()
	before := int64(0)
	r.worker.Do(func() {
		r.worker.Wake()
		before = r.engine.passes.Load()
	})
	eventually(t, "the worker looks", func() bool { return r.engine.passes.Load() >= before+2 })
}

func TestAPanicInTheWorkersPlaceIsTheCallersAndTheWorkerLives(t *testing.T) {
	r := newLiveRig(t)
	r.asleep()
	func() {
		defer func() {
			if v := recover(); v != "of the call" {
				t.Errorf("recovered %v", v)
			}
		}()
		r.worker.Do(func() { panic("of the call") })
	}()
	for range 3 {
		ran := false
		r.worker.Do(func() { ran = true })
		if !ran {
			t.Fatal("a call did not run")
		}
	}
}

// The race detector sees it if two are in the worker's place at once, or the worker and somebody else.
func TestCallsExcludeTheWorkerAndEachOther(t *testing.T) {
	r := newLiveRig(t)
	shared, passes := 0, 0
	r.engine.onProgress(func(now int64) (bool, int64) {
		shared++
		passes++
		return passes%3 == 0, now + int64(passes%7)*10_000 // work, sleeps of all lengths, and none
	})
	const callers, calls = 4, 2000
	var wg sync.WaitGroup
	for n := range callers {
		wg.Go(func() {
			for i := range calls {
				r.worker.Do(func() {
					shared++
					r.worker.Do(func() { shared++ })
				})
				switch (i + n) % 5 {
				case 0:
					time.Sleep(time.Duration(i%4) * 20 * time.Microsecond)
				case 1:
					r.worker.Wake()
				case 2:
					r.worker.attend()
				}
			}
		})
	}
	wg.Wait()
	r.worker.Do(func() {
		if shared != passes+2*callers*calls {
			t.Errorf("%d steps were counted, want %d", shared, passes+2*callers*calls)
		}
	})
	r.engine.onProgress(nil)
}

func TestAttendEndsLongSleepsOnly(t *testing.T) {
	for _, c := range []struct {
		left  time.Duration
		woken bool
	}{{time.Microsecond, false}, {time.Duration(attentive), false}, {time.Duration(attentive) + 1, true}, {time.Hour, true}} {
		i := &idler{}
		i.until.Store(1000 + c.left.Nanoseconds())
		i.state.Store(sleeping)
		i.attend(1000)
		if got := i.state.Load() == woken; got != c.woken || i.restart.Load() != c.woken {
			t.Errorf("a sleep of %v more: woken %v, steps start again %v", c.left, got, i.restart.Load())
		}
	}
}

func TestStepsStartAgainAfterAttend(t *testing.T) {
	i := &idler{}
	steps(i, 8, time.Millisecond)
	i.restart.Store(true)
	if s := steps(i, 1, time.Millisecond)[0]; s != time.Duration(firstIdleStep) {
		t.Errorf("the step after attend is %v", s)
	}
}
