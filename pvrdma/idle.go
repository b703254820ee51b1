// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Idle steps. A pass over 100 user pages takes a few microseconds, so that one a millisecond costs well below 1 % of a
// core; more pages make a pass longer and the step with it.
const (
	firstIdleStep   = int64(20 * time.Microsecond)
	shortestMaxStep = int64(time.Millisecond)
	longestMaxStep  = int64(20 * time.Millisecond)
	stepPerPage     = int64(40 * time.Microsecond)
	// idleBudget is how much longer than a pass a step is at least once steps have grown. What wakes up around a pass, the
	// kernel's timer, this thread, and the Go runtime's monitor, takes five times as long as the pass itself among many guests:
	// together about 1 % of a core.
	idleBudget = 600
	// forever is how long a worker sleeps that has nothing to poll: a wake-up ends it.
	forever = int64(time.Hour)
)

// maxIdleStep returns the longest sleep in nanoseconds when pages user pages are polled.
func maxIdleStep(pages int) int64 {
	if pages == 0 {
		return forever
	}
	return min(max(int64(pages)*stepPerPage-(100*stepPerPage-shortestMaxStep), shortestMaxStep), longestMaxStep)
}

// Values of idler.state.
const (
	awake    uint32 = iota
	sleeping        // in a futex wait, or about to be
	woken           // somebody called wake since the pass began
	borrowed        // it sleeps, or is about to wake up and wait, and somebody has taken its place
	wanted          // the same, and it must make a pass afterwards
)

// attentive is how long a sleep may still last when a guest has shown that it does something, nanoseconds.
const attentive = int64(100 * time.Microsecond)

// idler decides when the worker's thread spins, sleeps and wakes.
type idler struct {
	// spin is how long to poll without work before sleeping, nanoseconds. Constant.
	spin int64
	// lastWork and nextStep belong to the worker.
	lastWork, nextStep int64
	// passCost is what a pass without work takes, nanoseconds, averaged. With many guests it takes longer than one would
	// think: none of what it looks at is in a cache. Worker.
	passCost int64
	// state is written by the worker and by wakers; see the constants.
	state atomic.Uint32
	// until is when the present sleep ends by itself. Written by the worker.
	until atomic.Int64
	// restart says that steps are to be short again. Written by attend, and taken back by the worker.
	restart atomic.Bool
}

// threadName is the name of a worker's thread for ps, top and taskset, but for its number: 15 bytes at most with that.
const threadName = "pvrdma-worker"

// prepareThread names the thread tid of worker number index, and makes its sleeps as exact as the kernel can: the default slack of 50 us
// is more than the first idle step.
func (i *idler) prepareThread(tid int32, index int) {
	// A failure leaves the process's name, and the default slack, which costs latency and nothing else.
	_ = os.WriteFile(fmt.Sprintf("/proc/self/task/%d/comm", tid), fmt.Appendf(nil, "%s%d", threadName, index), 0)
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
}

// beginPass starts a look at all sources of work: what is rung after it ends the sleep that may follow. It waits for who
// has taken the worker's place.
func (i *idler) beginPass() {
	for {
		switch s := i.state.Load(); s {
		case awake: // a store that others look at would wait for all stores before it
			return
		case borrowed:
			i.state.CompareAndSwap(borrowed, wanted)
		case wanted:
			futexWait(&i.state, wanted, forever)
		default:
			if i.state.CompareAndSwap(s, awake) {
				return
			}
		}
	}
}

// worked notes that the pass found something.
func (i *idler) worked(now int64) {
	i.lastWork = now
	i.nextStep = firstIdleStep
}

// passed notes how long a pass without work took.
func (i *idler) passed(took int64) { i.passCost += (took - i.passCost) / 8 }

// spins says whether the worker polls without sleeping now.
func (i *idler) spins(now int64) bool { return now-i.lastWork < i.spin }

// longest is the longest step, given the one that the number of pages asks for.
func (i *idler) longest(maxSleep int64) int64 {
	if maxSleep >= forever {
		return maxSleep
	}
	return max(maxSleep, min(i.passCost*idleBudget, longestMaxStep))
}

// step idles after a pass without work: until next (0: never) at the latest, for at most maxSleep, or longer if passes take
// long. It reports whether time went by.
func (i *idler) step(now, next, maxSleep int64) (slept bool) {
	sleep := i.sleep(now, next, i.longest(maxSleep))
	if sleep <= 0 {
		return false
	}
	i.until.Store(now + sleep)
	if !i.state.CompareAndSwap(awake, sleeping) {
		return false
	}
	futexWait(&i.state, sleeping, sleep)
	return true
}

// borrow takes the place of a worker that sleeps, and reports whether it does. giveBack ends it; again says that the worker
// must make a pass. Any goroutine.
func (i *idler) borrow() bool { return i.state.CompareAndSwap(sleeping, borrowed) }

func (i *idler) giveBack(again bool) {
	if !again && i.state.CompareAndSwap(borrowed, sleeping) {
		return
	}
	i.state.Store(woken)
	futexWake(&i.state)
}

// sleep returns how long to sleep now, 0 or less for not at all, and prepares the step after this one.
func (i *idler) sleep(now, next, maxSleep int64) int64 {
	if i.spins(now) {
		return 0
	}
	if i.restart.Load() {
		i.restart.Store(false)
		i.nextStep = firstIdleStep
	}
	// nextStep may be from a time when fewer pages were polled: it must not outlast maxSleep.
	sleep := min(max(i.nextStep, firstIdleStep), maxSleep)
	i.nextStep = min(sleep*2, maxSleep)
	if maxSleep >= forever && i.nextStep > longestMaxStep {
		i.nextStep = forever
	}
	if next != 0 {
		sleep = min(sleep, next-now)
	}
	return sleep
}

// wake ends a sleep, or keeps the worker from starting one before it has looked again. Any goroutine.
func (i *idler) wake() {
	for {
		switch s := i.state.Load(); s {
		case awake:
			if i.state.CompareAndSwap(awake, woken) {
				return
			}
		case sleeping:
			if i.state.CompareAndSwap(sleeping, woken) {
				futexWake(&i.state)
				return
			}
		case borrowed:
			if i.state.CompareAndSwap(borrowed, wanted) {
				return
			}
		default:
			return
		}
	}
}

// attend ends a sleep that lasts for long, and makes those that follow short. Any goroutine.
func (i *idler) attend(now int64) {
	if i.until.Load()-now <= attentive {
		return
	}
	i.restart.Store(true)
	if i.state.Load() == sleeping {
		i.wake()
	}
}
