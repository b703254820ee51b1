// SPDX-License-Identifier: Apache-2.0

package timerwheel_test

import (
	"container/heap"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/internal/timerwheel"
	"pgregory.net/rapid"
)

const unlimited = 1 << 30

// late is how far beyond its deadline a timer may fire when Advance is called all the time: it was armed for d ahead.
func late(d int64) int64 { return timerwheel.Resolution + max(d, 0)/31 }

func TestATimerFiresAtItsDeadlineAndNeverBefore(t *testing.T) {
	for _, d := range []time.Duration{
		1, 10 * time.Microsecond, 655 * time.Microsecond, time.Millisecond, 67 * time.Millisecond,
		time.Second, 4096 << 31,
	} {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			const start = 12345678901
			w := timerwheel.New(start)
			var fired int64
			timer := timerwheel.Timer{F: func(now int64) { fired = now }}

			w.Arm(&timer, start+int64(d))

			due := w.Next()
			if due < start+int64(d) || due > start+int64(d)+late(int64(d)) {
				t.Fatalf("Next is %d ns from the deadline", due-start-int64(d))
			}
			if n := w.Advance(due-1, unlimited); n != 0 || !timer.Armed() {
				t.Fatalf("Advance before Next fired %d", n)
			}
			if n := w.Advance(due, unlimited); n != 1 || fired != due || timer.Armed() || w.Next() != 0 {
				t.Fatalf("Advance at Next fired %d at %d, want 1 at %d", n, fired, due)
			}
		})
	}
}

func TestADeadlineInThePastFiresAtTheNextTick(t *testing.T) {
	w := timerwheel.New(1 << 40)
	n := 0
	timer := timerwheel.Timer{F: func(int64) { n++ }}
	w.Arm(&timer, -5)
	w.Advance(1<<40+timerwheel.Resolution, unlimited)
	if n != 1 {
		t.Fatalf("fired %d times", n)
	}
}

func TestATimerBeyondTheLastLevelDoesNotFireEarly(t *testing.T) {
	w := timerwheel.New(0)
	const far = int64(30 * 24 * time.Hour)
	var at int64
	timer := timerwheel.Timer{F: func(now int64) { at = now }}
	w.Arm(&timer, far)
	calls := 0
	for w.Len() > 0 {
		if calls++; calls > 500 {
			t.Fatal("no end")
		}
		w.Advance(w.Next(), unlimited)
	}
	if at < far || at > far+late(far) {
		t.Fatalf("fired at %d, armed for %d", at, far)
	}

	w.Arm(&timer, math.MaxInt64)
	w.Advance(far*2, unlimited)
	if !timer.Armed() {
		t.Fatal("the end of time has come early")
	}
}

func TestAClockThatGoesBackChangesNothing(t *testing.T) {
	const now = int64(time.Hour)
	w := timerwheel.New(now)
	var first, second timerwheel.Timer
	w.Arm(&first, now+int64(time.Millisecond))

	w.Advance(0, unlimited)
	w.Arm(&second, now+10_000)

	if next := w.Next(); next < now+10_000 || next > now+10_000+late(10_000) {
		t.Fatalf("Next is %d ns from the deadline", next-now-10_000)
	}
}

func TestACallbackMayArmAndCancelAnyTimer(t *testing.T) {
	w := timerwheel.New(0)
	var log []string
	var self, other, third timerwheel.Timer
	rounds := 0
	self.F = func(now int64) {
		log = append(log, "self")
		w.Cancel(&other)
		if rounds++; rounds < 3 {
			w.Arm(&self, now) // already past: must not fire within this call again and again
		}
		w.Arm(&third, now) // each round moves it
	}
	other.F = func(int64) { log = append(log, "other") }
	third.F = func(int64) { log = append(log, "third") }
	w.Arm(&self, 1000)
	w.Arm(&other, 1000)

	now := int64(0)
	for w.Len() > 0 && now < 1<<20 {
		now += timerwheel.Resolution
		w.Advance(now, unlimited)
	}

	if got, want := fmt.Sprint(log), "[self self self third]"; got != want {
		t.Fatalf("fired %v, want %v", got, want)
	}
}

func TestOneCallVisitsNoMoreTimersThanItsLimit(t *testing.T) {
	w := timerwheel.New(0)
	fired := 0
	timers := make([]timerwheel.Timer, 1000)
	for i := range timers {
		timers[i].F = func(int64) { fired++ }
		w.Arm(&timers[i], 5_000_000)
	}
	calls := 0
	for now := w.Next(); w.Len() > 0; calls++ {
		if n := w.Advance(now, 64); n > 64 {
			t.Fatalf("fired %d in one call", n)
		}
		if w.Len() > 0 && w.Next() > now {
			t.Fatal("Next is in the future while timers are due")
		}
	}
	if fired != 1000 || calls != 16 {
		t.Fatalf("fired %d in %d calls", fired, calls)
	}
}

func TestArmingAllocatesNothing(t *testing.T) {
	w := timerwheel.New(0)
	now := int64(0)
	timer := timerwheel.Timer{F: func(int64) {}}
	n := testing.AllocsPerRun(1000, func() {
		w.Arm(&timer, now+1_000_000)
		w.Cancel(&timer)
		w.Arm(&timer, now+10_000)
		now += 20_000
		w.Advance(now, 10)
		w.Next()
	})
	if n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

// model is the obvious implementation: a heap of deadlines.
type model struct{ items []item }

type item struct {
	id              int
	deadline, armed int64
}

func (m *model) Len() int           { return len(m.items) }
func (m *model) Less(i, j int) bool { return m.items[i].deadline < m.items[j].deadline }
func (m *model) Swap(i, j int)      { m.items[i], m.items[j] = m.items[j], m.items[i] }
func (m *model) Push(x any)         { m.items = append(m.items, x.(item)) }
func (m *model) Pop() any {
	x := m.items[len(m.items)-1]
	m.items = m.items[:len(m.items)-1]
	return x
}

func (m *model) drop(id int) {
	for i := range m.items {
		if m.items[i].id == id {
			heap.Remove(m, i)
			return
		}
	}
}

// world runs a wheel and the model side by side.
type world struct {
	w      *timerwheel.Wheel
	m      model
	now    int64
	base   int64 // up to here the wheel has surely been advanced
	timers []timerwheel.Timer
	fired  map[int]int64
}

func newWorld(start int64) *world {
	x := &world{w: timerwheel.New(start), now: start, base: start, timers: make([]timerwheel.Timer, 40), fired: map[int]int64{}}
	for i := range x.timers {
		x.timers[i].F = func(now int64) { x.fired[i] = max(now, x.now) }
	}
	return x
}

// check compares after the clock has moved: what fired was due, what is overdue beyond tolerance has fired.
func (x *world) check(t *rapid.T, complete bool) {
	for id, at := range x.fired {
		for _, it := range x.m.items {
			if it.id == id && at < it.deadline {
				t.Fatalf("timer %d fired at %d, %d ns early", id, at, it.deadline-at)
			}
		}
		x.m.drop(id)
		delete(x.fired, id)
	}
	if complete {
		x.base = x.now
	}
	if x.w.Len() != x.m.Len() {
		t.Fatalf("wheel holds %d timers, model %d", x.w.Len(), x.m.Len())
	}
	if x.m.Len() == 0 {
		if x.w.Next() != 0 {
			t.Fatalf("Next is %d without timers", x.w.Next())
		}
		return
	}
	first := x.m.items[0]
	// A deadline that is past when the timer is armed stands for the present: nothing fires before it is asked for.
	due := max(first.deadline, first.armed)
	if complete && x.now > due+late(first.deadline-first.armed) {
		t.Fatalf("timer %d is overdue by %d ns", first.id, x.now-due)
	}
	latest := int64(math.MaxInt64)
	for _, it := range x.m.items {
		latest = min(latest, max(it.deadline, it.armed)+late(it.deadline-it.armed))
	}
	if next := x.w.Next(); next > latest+timerwheel.Resolution {
		t.Fatalf("Next is %d, a timer must fire by %d", next, latest)
	} else if complete && next <= x.now {
		t.Fatalf("Next is %d, not after %d, though everything due has fired", next, x.now)
	}
}

func TestTheWheelAgreesWithAHeap(t *testing.T) {
	span := func(t *rapid.T) int64 {
		scale := rapid.IntRange(0, 43).Draw(t, "scale") // up to 2.4 hours
		return rapid.Int64Range(-100, int64(1)<<scale).Draw(t, "span")
	}
	rapid.Check(t, func(t *rapid.T) {
		x := newWorld(rapid.Int64Range(0, 1<<50).Draw(t, "start"))
		t.Repeat(map[string]func(*rapid.T){
			"arm": func(t *rapid.T) {
				id := rapid.IntRange(0, len(x.timers)-1).Draw(t, "id")
				d := x.now + span(t)
				x.m.drop(id)
				heap.Push(&x.m, item{id: id, deadline: d, armed: x.base})
				x.w.Arm(&x.timers[id], d)
			},
			"cancel": func(t *rapid.T) {
				id := rapid.IntRange(0, len(x.timers)-1).Draw(t, "id")
				was := x.timers[id].Armed()
				x.m.drop(id)
				if got := x.w.Cancel(&x.timers[id]); got != was || x.timers[id].Armed() {
					t.Fatalf("Cancel says %v, want %v", got, was)
				}
			},
			"advance": func(t *rapid.T) {
				x.now += max(span(t), 0)
				x.w.Advance(x.now, unlimited)
				x.check(t, true)
			},
			"advance to next": func(t *rapid.T) {
				next := x.w.Next()
				if next == 0 {
					t.Skip("nothing armed")
				}
				if next-1 > x.now && x.w.Advance(next-1, unlimited) != 0 {
					t.Fatal("something fired before Next")
				}
				x.now = max(x.now, next)
				if x.w.Advance(x.now, unlimited) == 0 {
					t.Fatal("nothing fired at Next")
				}
				x.check(t, true)
			},
			"clock goes back": func(t *rapid.T) {
				x.w.Advance(x.now-max(span(t), 0), unlimited)
				x.check(t, false)
			},
			"advance a little": func(t *rapid.T) {
				x.now += max(span(t), 0)
				x.w.Advance(x.now, rapid.IntRange(0, 3).Draw(t, "limit"))
				x.check(t, false)
			},
		})
	})
}

func BenchmarkArmAndCancel(b *testing.B) {
	for _, others := range []int{0, 10000} {
		b.Run(fmt.Sprintf("besides=%d", others), func(b *testing.B) {
			w := timerwheel.New(0)
			rest := make([]timerwheel.Timer, others)
			for i := range rest {
				w.Arm(&rest[i], int64(i+1)*1_000_000)
			}
			var t timerwheel.Timer
			for b.Loop() {
				w.Arm(&t, 67_000_000)
				w.Advance(1000, 16)
				w.Cancel(&t)
			}
		})
	}
}
