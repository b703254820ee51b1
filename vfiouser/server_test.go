// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestASecondClientIsClosedAtOnceAndReported(t *testing.T) {
	r := start(t, nil, nil)
	first := r.client()

	second := dial(t, r.path)
	second.ended()

	first.alive()
	busy := events(&r.seen, &r.seen.busy)
	if len(busy) != 1 || busy[0].PID != int32(unix.Getpid()) {
		t.Errorf("got %+v", busy)
	}
}

func TestTheNextClientIsServedAtOnceAfterALoss(t *testing.T) {
	r := start(t, nil, nil)
	for i := range 20 {
		c := r.client()
		c.alive()
		c.close()
		if got := r.disconnect(i + 1); got.Reason != ReasonClientClosed || got.Err != nil || !got.Opened {
			t.Fatalf("got %+v", got)
		}
	}
	if n := len(events(&r.seen, &r.seen.busy)); n != 0 {
		t.Errorf("%d clients were refused", n)
	}
}

func TestTheNextClientWaitsWhileTheLastOneIsCleanedUpAfter(t *testing.T) {
	for _, at := range []string{"Replied", "Close"} {
		t.Run(at, func(t *testing.T) {
			r, _, release := startHeld(t, at, 1)
			c := r.client()
			c.must(writeFrame(RegionBAR0, 0, 1))
			c.close()

			next := dial(t, r.path)
			next.send(frame{command: CommandVersion, body: versionBody(0, 0, "")})
			time.Sleep(20 * time.Millisecond)
			release()

			next.answer(CommandVersion)
			if n := len(events(&r.seen, &r.seen.busy)); n != 0 {
				t.Errorf("%d clients were refused", n)
			}
		})
	}
}

func TestTheEndOfTheContextEndsASessionAndWaitsForItsDevice(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()
	c.must(writeFrame(RegionBAR0, 0, 1))

	r.stop()

	select {
	case <-r.device().closed:
	default:
		t.Error("Serve has returned and the device is open")
	}
	c.ended()
	if got := r.disconnect(1); got.Reason != ReasonShutdown || got.Err != nil {
		t.Errorf("got %+v", got)
	}
	if _, err := net.Dial("unix", r.path); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("the listener is not closed: %v", err)
	}
}

func TestTheEndOfTheContextComesBetweenManyWrites(t *testing.T) {
	r, reached, release := startHeld(t, "Replied", 3)
	c := r.client()
	c.send(posted(multiFrame(slices.Repeat([]access{{0, RegionBAR0, 4}}, 2000)...)))
	<-reached

	time.AfterFunc(50*time.Millisecond, release)
	r.stop()

	replied := 0
	for _, method := range r.device().methods() {
		if method == "Replied" {
			replied++
		}
	}
	if replied != 3 {
		t.Errorf("the device worked on %d writes", replied)
	}
}

func TestTheEndOfTheContextDoesNotWaitForAClientThatWaits(t *testing.T) {
	r, _, release := startHeld(t, "Replied", 1)
	c := r.client()
	c.must(writeFrame(RegionBAR0, 0, 1))
	c.close()
	next := dial(t, r.path)
	time.Sleep(20 * time.Millisecond)

	time.AfterFunc(20*time.Millisecond, release)
	r.stop()

	next.ended()
	if n := len(events(&r.seen, &r.seen.gone)); n != 1 {
		t.Errorf("%d sessions", n)
	}
}

func TestServeIsForOnce(t *testing.T) {
	l, err := Listen(filepath.Join(t.TempDir(), "s"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(l, Config{Open: func(*Session) (Device, error) { return nil, unix.ENODEV }})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()

	first, second := s.Serve(ctx), s.Serve(ctx)

	if first != nil || !errors.Is(second, unix.EBUSY) {
		t.Errorf("got %v, then %v", first, second)
	}
}

func TestServeWithoutOpenIsRefused(t *testing.T) {
	l, err := Listen(filepath.Join(t.TempDir(), "s"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	if err := NewServer(l, Config{}).Serve(context.Background()); !errors.Is(err, unix.EINVAL) {
		t.Errorf("got %v", err)
	}
}

func TestServeEndsWithAnErrorWhenTheListenerIsTakenAway(t *testing.T) {
	l, err := Listen(filepath.Join(t.TempDir(), "s"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(l, Config{Open: func(*Session) (Device, error) { return nil, unix.ENODEV }})
	time.AfterFunc(10*time.Millisecond, func() { _ = l.Close() })

	if err := s.Serve(context.Background()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestAProcessOutOfFileDescriptorsDoesNotSpinAndRecovers(t *testing.T) {
	r := start(t, nil, nil)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	setLimit := func(cur uint64) {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: cur, Max: limit.Max}); err != nil {
			t.Fatal(err)
		}
	}
	defer setLimit(limit.Cur)

	setLimit(0)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: r.path}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	eventually(t, "accept fails again and again", func() bool { return len(events(&r.seen, &r.seen.accepts)) >= 4 })
	took := time.Since(began)
	setLimit(limit.Cur)

	// After 5, 10 and 20 ms; the first may have been before we looked.
	if took < 25*time.Millisecond {
		t.Errorf("accept failed four times in %v", took)
	}
	eventually(t, "the client is accepted", func() bool {
		_ = unix.Shutdown(fd, unix.SHUT_WR)
		return len(events(&r.seen, &r.seen.gone)) == 1
	})
}
