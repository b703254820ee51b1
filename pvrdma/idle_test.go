// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

func TestTheLongestIdleStepFollowsTheNumberOfPages(t *testing.T) {
	cases := []struct {
		pages int
		want  time.Duration
	}{
		{0, time.Hour},
		{1, time.Millisecond},
		{100, time.Millisecond},
		{200, 5 * time.Millisecond},
		{511, 17440 * time.Microsecond},
		{10_000, 20 * time.Millisecond},
	}
	for _, c := range cases {
		if got := maxIdleStep(c.pages); got != c.want.Nanoseconds() {
			t.Errorf("with %d pages the longest step is %v, want %v", c.pages, time.Duration(got), c.want)
		}
	}
}

func TestTheLongestIdleStepLeavesPassesAHundredthOfACore(t *testing.T) {
	for _, c := range []struct{ pass, min, want time.Duration }{
		{0, time.Millisecond, time.Millisecond},
		{time.Microsecond, time.Millisecond, time.Millisecond},
		{12 * time.Microsecond, time.Millisecond, 12 * 600 * time.Microsecond},
		{12 * time.Microsecond, 17 * time.Millisecond, 17 * time.Millisecond},
		{10 * time.Millisecond, time.Millisecond, 20 * time.Millisecond},
		{10 * time.Millisecond, time.Hour, time.Hour},
	} {
		i := &idler{}
		for range 200 {
			i.passed(c.pass.Nanoseconds())
		}
		if got := time.Duration(i.longest(c.min.Nanoseconds())); got > c.want || got < c.want-10*time.Microsecond {
			t.Errorf("with passes of %v the longest step of %v becomes %v, want %v", c.pass, c.min, got, c.want)
		}
	}
}

// steps returns the next n sleeps of an idler that finds no work.
func steps(i *idler, n int, maxSleep time.Duration) []time.Duration {
	var all []time.Duration
	for range n {
		all = append(all, time.Duration(i.sleep(0, 0, maxSleep.Nanoseconds())))
	}
	return all
}

func TestIdleStepsGrowToTheLongest(t *testing.T) {
	i := &idler{}
	last := time.Duration(0)
	for n, s := range steps(i, 8, time.Millisecond) {
		if n == 0 && s != 20*time.Microsecond {
			t.Errorf("the first step is %v", s)
		}
		if s < last || s > 2*last && n > 0 || s > time.Millisecond {
			t.Errorf("step %d is %v after %v", n, s, last)
		}
		last = s
	}
	if last != time.Millisecond {
		t.Errorf("steps grow to %v", last)
	}
	i.worked(0)
	if s := steps(i, 1, time.Millisecond)[0]; s != 20*time.Microsecond {
		t.Errorf("the first step after work is %v", s)
	}
}

func TestAWorkerWithNothingToPollSleepsForEver(t *testing.T) {
	i := &idler{}
	all := steps(i, 14, time.Duration(forever))
	if all[13] != time.Duration(forever) {
		t.Errorf("steps are %v, want the last to be an hour", all)
	}
}

func TestALongSleepEndsWhenThereIsSomethingToPoll(t *testing.T) {
	i := &idler{}
	steps(i, 14, time.Duration(forever))
	if s := steps(i, 1, time.Millisecond)[0]; s > time.Millisecond {
		t.Errorf("with a page to poll the worker sleeps %v", s)
	}
}

func TestATimerEndsASleep(t *testing.T) {
	i := &idler{}
	steps(i, 8, time.Millisecond)
	if s := i.sleep(1000, 1700, time.Millisecond.Nanoseconds()); s != 700 {
		t.Errorf("sleep of %d ns with a timer in 700 ns", s)
	}
	if s := i.sleep(1000, 900, time.Millisecond.Nanoseconds()); s > 0 {
		t.Errorf("sleep of %d ns with a timer that is due", s)
	}
}

func TestAWorkerSpinsForItsBudgetAfterWork(t *testing.T) {
	i := &idler{spin: 1000}
	i.worked(5000)
	if s := i.sleep(5999, 0, time.Millisecond.Nanoseconds()); s > 0 {
		t.Errorf("sleep of %d ns within the budget", s)
	}
	if s := i.sleep(6000, 0, time.Millisecond.Nanoseconds()); s != firstIdleStep {
		t.Errorf("sleep of %d ns when the budget is spent", s)
	}
}

// TestNoWakeUpIsLost lets a thread sleep for an hour unless it is woken, while another publishes one thing at a time and
// waits for it to be seen.
func TestNoWakeUpIsLost(t *testing.T) {
	i := &idler{}
	var published, seenUpTo atomic.Int64
	const rounds, end = 5_000, -1 // fewer on a machine that is slow today
	done := make(chan struct{})
	go func() {
		defer close(done)
		for last := int64(0); last != end; {
			i.beginPass()
			if v := published.Load(); v != last {
				last = v
				seenUpTo.Store(v)
				continue
			}
			i.nextStep = forever
			i.step(0, 0, forever)
		}
	}()
	publish := func(n int64) {
		published.Store(n)
		i.wake()
		for deadline := time.Now().Add(20 * time.Second); seenUpTo.Load() != n; {
			if time.Now().After(deadline) {
				t.Fatalf("wake-up %d was lost", n)
			}
			runtime.Gosched() // the sleeper may have to run on this processor
		}
	}
	began := time.Now()
	for n := int64(1); n <= rounds && (n <= rounds/10 || time.Since(began) < 10*time.Second); n++ {
		publish(n)
	}
	publish(end)
	<-done
}

func TestAWakeUpBeforeTheSleepKeepsTheWorkerAwake(t *testing.T) {
	i := &idler{nextStep: forever}
	i.beginPass()
	i.wake()
	began := time.Now()
	i.step(0, 0, forever)
	if d := time.Since(began); d > time.Minute {
		t.Errorf("the worker slept %v after it was woken", d)
	}
	if i.state.Load() != woken {
		t.Error("the wake-up is forgotten before the next pass")
	}
}
