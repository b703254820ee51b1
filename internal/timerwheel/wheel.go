// SPDX-License-Identifier: Apache-2.0

// Package timerwheel is a set of timers for one thread: the retry and RNR timers of queue pairs, from 10 microseconds
// to 4.096 microseconds * 2^31.
//
// Arm and Cancel take constant time and never allocate. A timer never fires early. It is due late by less than
// [Resolution] if its deadline is up to a millisecond after the last Advance, and by less than 1/31 of that distance
// otherwise: timers are kept in buckets that grow coarser with distance and are never sorted again. That is precise
// enough for RDMA, where a requester may wait four times the timeout.
//
// The package reads no clock and starts no goroutine. A Wheel and its Timers belong to one thread.
package timerwheel

import (
	"math"
	"math/bits"
)

const (
	tickShift = 12
	// Resolution is the length of a tick in nanoseconds: 4.096 microseconds, the unit of the InfiniBand local ACK
	// timeout.
	Resolution = 1 << tickShift

	// A level has 256 buckets, each 8 times as long as those of the level before. Nine levels reach 4.8 hours; the
	// longest timeout of a queue pair is 2.4 hours.
	buckets    = 256
	levelShift = 3
	levels     = 9
	// reach is how many buckets ahead a timer may lie on its level. Two less than there are, so that a timer rounded
	// up never meets the bucket of the present.
	reach = buckets - 2

	never = math.MaxInt64
)

// Timer is one timer, a part of what it times. The zero Timer with F set is ready to be armed.
type Timer struct {
	// F is called by Wheel.Advance with that call's time. It may arm and cancel any timer. It is set once, so that
	// arming costs nothing.
	F func(now int64)

	deadline   int64
	prev, next *Timer
	place      int16 // number of its bucket + 1, or 0: not armed
}

// Armed says whether the timer is waiting to fire.
func (t *Timer) Armed() bool { return t.place != 0 }

// Deadline is the time for which the timer was last armed, in nanoseconds.
func (t *Timer) Deadline() int64 { return t.deadline }

// list is a queue of timers.
type list struct{ head, tail *Timer }

// Wheel holds the armed timers of one thread.
type Wheel struct {
	cur int64 // the tick up to which everything has come due
	// next is the tick at which a bucket comes due next, or earlier; exact unless stale.
	next  int64
	stale bool
	n     int

	// due has the levels whose bucket of the present tick is being fired. No timer is put into such a bucket.
	due     uint16
	busy    uint16 // levels that have timers
	used    [levels][buckets / 64]uint64
	buckets [levels * buckets]list
}

// New returns a wheel without timers. now is the time in nanoseconds, on the clock that all calls use.
func New(now int64) *Wheel {
	return &Wheel{cur: now >> tickShift, next: never}
}

// Len is the number of armed timers.
func (w *Wheel) Len() int { return w.n }

// Arm makes t fire at deadline, in nanoseconds, or at the next tick if that is past. An armed timer is moved.
func (w *Wheel) Arm(t *Timer, deadline int64) {
	w.Cancel(t)
	t.deadline = deadline
	w.n++
	w.place(t)
}

// Cancel disarms t and says whether it was armed.
func (w *Wheel) Cancel(t *Timer) bool {
	if t.place == 0 {
		return false
	}
	w.remove(t)
	w.n--
	return true
}

// place puts a timer into the bucket of its deadline.
func (w *Wheel) place(t *Timer) {
	tick := max(ticks(t.deadline), w.cur+1)
	level := 0
	for delta := uint64(tick) - uint64(w.cur); level < levels-1 && delta >= reach<<(levelShift*level); {
		level++
	}
	shift := levelShift * level
	// Rounded up, and not further than the last level reaches: fire sends such a timer round again.
	bucket := min((tick-1)>>shift+1, w.cur>>shift+buckets-1)
	slot := int(bucket & (buckets - 1))
	i := level*buckets + slot
	w.buckets[i].push(t)
	t.place = int16(1 + i)
	w.used[level][slot/64] |= 1 << (slot % 64)
	w.busy |= 1 << level
	w.next = min(w.next, bucket<<shift)
}

// ticks rounds a time up to ticks.
func ticks(ns int64) int64 {
	t := ns >> tickShift
	if ns&(Resolution-1) != 0 {
		t++
	}
	return t
}

// remove takes a timer out of its bucket.
func (w *Wheel) remove(t *Timer) {
	i := int(t.place - 1)
	t.place = 0
	w.buckets[i].unlink(t)
	if w.buckets[i].head != nil {
		return
	}
	level, slot := i/buckets, i%buckets
	u := &w.used[level]
	u[slot/64] &^= 1 << (slot % 64)
	if u[0]|u[1]|u[2]|u[3] == 0 {
		w.busy &^= 1 << level
	}
	w.stale = true
}

// first returns the timer to fire next of those that are due, or nil.
func (w *Wheel) first() *Timer {
	for w.due != 0 {
		level := bits.TrailingZeros16(w.due)
		if t := w.buckets[w.present(level)].head; t != nil {
			return t
		}
		w.due &^= 1 << level
	}
	return nil
}

// present is the number of a level's bucket that holds the present tick.
func (w *Wheel) present(level int) int {
	return level*buckets + int(w.cur>>(levelShift*level)&(buckets-1))
}

// Next returns the time of the next firing in nanoseconds, 0 if no timer is armed. It is in the past if timers are
// due already. Advance fires nothing before that time.
func (w *Wheel) Next() int64 {
	if w.n == 0 {
		return 0
	}
	if w.first() != nil {
		return w.cur << tickShift
	}
	w.refresh()
	return w.next << tickShift
}

// refresh makes next exact.
func (w *Wheel) refresh() {
	if !w.stale {
		return
	}
	w.stale = false
	w.next = never
	for rest := w.busy; rest != 0; rest &= rest - 1 {
		level := bits.TrailingZeros16(rest)
		shift := levelShift * level
		now := w.cur >> shift
		w.next = min(w.next, (now+w.ahead(level, int(now&(buckets-1))))<<shift)
	}
}

// ahead returns how many buckets after slot the next used one of a level is, 1 to 256, counting round the end. The
// level has one.
func (w *Wheel) ahead(level, slot int) int64 {
	u := &w.used[level]
	from := (slot + 1) % buckets
	word := from / 64
	if m := u[word] >> (from % 64); m != 0 {
		return int64(1 + bits.TrailingZeros64(m))
	}
	dist := 64 - from%64
	for range buckets / 64 {
		word = (word + 1) % (buckets / 64)
		if m := u[word]; m != 0 {
			return int64(1 + dist + bits.TrailingZeros64(m))
		}
		dist += 64
	}
	return buckets // not reached: the level has a timer
}

// Advance fires the timers whose time has come and returns how many. It visits at most limit timers; what is left
// fires with the next call. A time before that of an earlier call fires nothing new.
func (w *Wheel) Advance(now int64, limit int) (fired int) {
	tick := now >> tickShift
	for range limit {
		t := w.first()
		if t == nil {
			if t = w.step(tick); t == nil {
				w.cur = max(w.cur, tick)
				return fired
			}
		}
		w.remove(t)
		if ticks(t.deadline) > w.cur {
			w.place(t) // it was too far away for the last level
			continue
		}
		w.n--
		fired++
		t.F(now)
	}
	return fired
}

// step moves on to the next tick, not beyond a limit, at which timers are due, and returns the first of them.
func (w *Wheel) step(limit int64) *Timer {
	if limit < w.next {
		return nil
	}
	w.refresh()
	if limit < w.next {
		return nil
	}
	w.cur = w.next
	w.stale = true
	for level := range levels {
		if w.cur&(1<<(levelShift*level)-1) != 0 {
			break // nor does a bucket of a coarser level begin here
		}
		w.due |= 1 << level
	}
	w.due &= w.busy
	return w.first()
}

// push appends a timer.
func (l *list) push(t *Timer) {
	t.prev, t.next = l.tail, nil
	if l.tail == nil {
		l.head = t
	} else {
		l.tail.next = t
	}
	l.tail = t
}

// unlink takes a timer out.
func (l *list) unlink(t *Timer) {
	if t.prev == nil {
		l.head = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		l.tail = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.prev, t.next = nil, nil
}
