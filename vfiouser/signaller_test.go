// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"math"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestAnEventFDThatIsMadeToBlockHoldsTriggerUpForAMomentAndEndsTheSession(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()
	fd := newEventFD(t)
	c.must(irqFrame(assignFlags, IRQMSIX, 0, 1).with(fd))
	s := r.session()
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(fd, longs(math.MaxUint64-1)); err != nil {
		t.Fatal(err)
	}

	returned := make(chan struct{})
	go func() {
		defer close(returned)
		s.Trigger(IRQMSIX, 0)
		s.Trigger(IRQMSIX, 0) // not even tried
	}()
	select {
	case <-returned:
	case <-time.After(patience):
		var p [8]byte
		_, _ = unix.Read(fd, p[:]) // lets the test end
		t.Fatal("Trigger blocks")
	}

	if got := r.disconnect(1); got.Reason != ReasonBlockingEventFD {
		t.Errorf("got %+v", got)
	}
	begin := time.Now()
	r.client().alive()
	if waited := time.Since(begin); waited < penalty/2 {
		t.Errorf("the next client was let in after %v", waited)
	}
}

func TestNothingIsWrittenAnyMoreAfterAWriteWasBlocked(t *testing.T) {
	reported := make(chan struct{})
	var w signaller
	w.prepare(func() { close(reported) })
	defer w.stop()
	fd := newEventFD(t)
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(fd, longs(math.MaxUint64-1)); err != nil {
		t.Fatal(err)
	}

	first := w.write(fd)
	<-reported
	second := w.write(fd)

	if !first || second {
		t.Errorf("written: %v, then %v", first, second)
	}
}

func TestAWriterThatIsOnlySlowIsNotTakenForBlocked(t *testing.T) {
	var w signaller
	w.prepare(func() { t.Error("the client was reported") })
	defer w.stop()
	fd := newEventFD(t)
	w.writing.Store(int64(fd))
	w.seq.Store(1) // as if the thread had lost its CPU in the middle of write
	if _, err := unix.Write(fd, longs(7)); err != nil {
		t.Fatal(err)
	}

	for range 5 {
		w.look()
	}

	wantEvents(t, fd, 7)
	if w.broken.Load() {
		t.Error("nothing is written any more")
	}
	w.seq.Store(2)
}

func TestTheTimerStopsWhenInterruptsDoAndStartsAgainWithThem(t *testing.T) {
	var w signaller
	w.prepare(func() { t.Error("the client was reported") })
	defer w.stop()
	fd := newEventFD(t)
	for range 3 {
		w.write(fd)
		if !w.armed.Load() {
			t.Fatal("nobody looks after the write")
		}
		eventually(t, "the timer has stopped", func() bool { return !w.armed.Load() })
	}
}

func TestAnEventFDThatIsFullIsLeftAlone(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()
	fd := newEventFD(t)
	c.must(irqFrame(assignFlags, IRQMSIX, 0, 1).with(fd))
	if _, err := unix.Write(fd, longs(math.MaxUint64-1)); err != nil {
		t.Fatal(err)
	}

	r.session().Trigger(IRQMSIX, 0)
	time.Sleep(5 * blockedTick)

	c.alive()
	wantEvents(t, fd, math.MaxUint64-1)
}
