// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"sync/atomic"
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
			release := make(chan struct{})
			var once atomic.Bool
			r := start(t, nil, func(d *recordingDevice) {
				d.before = func(method string) error {
					if method == at && once.CompareAndSwap(false, true) {
						<-release
					}
					return nil
				}
			})
			c := r.client()
			c.must(writeFrame(RegionBAR0, 0, 1))
			c.close()

			next := dial(t, r.path)
			next.send(frame{command: CommandVersion, body: versionBody(0, 0, "")})
			time.Sleep(20 * time.Millisecond)
			close(release)

			next.answer(CommandVersion)
			if n := len(events(&r.seen, &r.seen.busy)); n != 0 {
				t.Errorf("%d clients were refused", n)
			}
		})
	}
}

func TestAClientThatGoesAwayAtAnyByteLeavesNothingBehind(t *testing.T) {
	r := start(t, nil, nil)
	fd := newEventFD(t)
	probe := &client{t: t}
	stream := probe.bytes(frame{command: CommandVersion, body: versionBody(0, 0, "{}\x00")})
	boundary := map[int]bool{0: true, len(stream): true}
	stream = append(stream, probe.bytes(irqFrame(assignFlags, IRQMSIX, 0, 1))...)
	boundary[len(stream)] = true
	held := countFDs(t)

	for cut := range len(stream) + 1 {
		c := dial(t, r.path)
		if cut > 0 {
			c.write(stream[:min(cut, 23)])
		}
		if cut > 23 {
			c.write(stream[23:cut], fd)
		}
		c.close()

		got := r.disconnect(cut + 1)
		// A client that dies with answers unread is seen as a reset.
		if clean := got.Reason == ReasonClientClosed; clean != boundary[cut] && !errors.Is(got.Err, unix.ECONNRESET) && !errors.Is(got.Err, unix.EPIPE) {
			t.Errorf("cut at %d: got %+v", cut, got)
		}
	}

	eventually(t, "all file descriptors are closed", func() bool { return countFDs(t) <= held })
}

func TestAClientThatSaysNothingMakesRoomForTheNext(t *testing.T) {
	for name, begin := range map[string][]byte{"nothing at all": nil, "half a header": make([]byte, 8)} {
		t.Run(name, func(t *testing.T) {
			r := start(t, func(cfg *Config) { cfg.HandshakeTimeout = 50 * time.Millisecond }, nil)
			c := dial(t, r.path)
			if begin != nil {
				c.write(begin)
			}

			c.ended()

			if got := r.disconnect(1); got.Reason != ReasonHandshake || got.Opened {
				t.Errorf("got %+v", got)
			}
			r.client().alive()
		})
	}
}

func TestAnIdleClientIsNotHurriedAfterItsHandshake(t *testing.T) {
	r := start(t, func(cfg *Config) { cfg.HandshakeTimeout = 30 * time.Millisecond }, nil)
	c := r.client()

	time.Sleep(100 * time.Millisecond)

	c.alive()
}

func TestAClientThatDoesNotReadItsAnswersIsDropped(t *testing.T) {
	r := start(t, func(cfg *Config) { cfg.WriteTimeout = 50 * time.Millisecond }, nil)
	c := r.client()
	if err := c.conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	read := c.bytes(readFrame(RegionBAR0, 0, MaxTransfer))

	// More than both sockets' buffers hold.
	_, err := c.conn.Write(bytes.Repeat(read, 20000))

	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the client could write everything: %v", err)
	}
	if got := r.disconnect(1); got.Reason != ReasonSlow {
		t.Errorf("got %+v", got)
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
	var replied atomic.Int32
	var stop func()
	r := start(t, nil, func(d *recordingDevice) {
		d.before = func(method string) error {
			if method == "Replied" && replied.Add(1) == 3 {
				go stop()
				time.Sleep(50 * time.Millisecond)
			}
			return nil
		}
	})
	stop = r.stop
	c := r.client()

	c.send(posted(multiFrame(slices.Repeat([]access{{0, RegionBAR0, 4}}, 2000)...)))
	r.stop()

	if n := replied.Load(); n > 3 {
		t.Errorf("the device worked on %d writes", n)
	}
}

func TestAPanicOfTheDeviceEndsItsSessionAndNoMore(t *testing.T) {
	memory := newMemFD(t, 1<<20)
	for _, tc := range []struct {
		method string
		frame  frame
	}{
		{"Regions", frame{}},
		{"ReadRegion", readFrame(RegionBAR0, 0, 4)},
		{"WriteRegion", writeFrame(RegionBAR0, 0, 1)},
		{"Replied", writeFrame(RegionBAR0, 0, 1)},
		{"Replied", posted(multiFrame(access{0, RegionBAR0, 1}, access{0, RegionBAR0, 1}))},
		{"MapDMA", mapFrame(3, 0, 0, 4096).with(memory)},
		{"UnmapDMA", unmapFrame(0, 0x10000, 4096)},
		{"UnmapAllDMA", unmapFrame(dmaUnmapAll, 0, 0)},
		{"Reset", frame{command: CommandDeviceReset}},
		{"Close", frame{}},
	} {
		t.Run(tc.method, func(t *testing.T) {
			var armed atomic.Bool
			armed.Store(true)
			r := start(t, nil, func(d *recordingDevice) {
				d.before = func(method string) error {
					if method == tc.method && armed.CompareAndSwap(true, false) {
						var nowhere *int
						*nowhere = 1
					}
					return nil
				}
			})
			c := dial(t, r.path)
			c.send(frame{command: CommandVersion, body: versionBody(0, 0, "")})
			if tc.method != "Regions" {
				c.answer(CommandVersion)
			}
			if tc.method == "UnmapDMA" {
				c.must(mapFrame(3, 0, 0x10000, 4096))
			}
			switch tc.frame.command {
			case 0:
			case CommandRegionWrite:
				c.send(tc.frame)
			default:
				c.send(tc.frame)
				c.ended()
			}
			if tc.method == "Close" {
				c.close()
			}

			got := r.disconnect(1)

			if want := ReasonPanic; got.Reason != want && tc.method != "Close" {
				t.Errorf("got %+v", got)
			}
			<-r.device().closed
			panics := events(&r.seen, &r.seen.panics)
			if len(panics) != 1 || !bytes.Contains(panics[0].Stack, []byte("session_test.go")) {
				t.Errorf("got panics %+v", panics)
			}
			r.client().alive()
		})
	}
}

func TestTheObserverIsToldHowLongEachMessageTook(t *testing.T) {
	r := start(t, nil, func(d *recordingDevice) {
		d.before = func(method string) error {
			switch method {
			case "WriteRegion":
				time.Sleep(10 * time.Millisecond)
			case "Replied":
				time.Sleep(30 * time.Millisecond)
			}
			return nil
		}
	})
	c := r.client()

	c.must(writeFrame(RegionBAR0, 0, 1))
	c.call(readFrame(99, 0, 1))
	c.alive()

	handled := events(&r.seen, &r.seen.handled)
	write, read := handled[1], handled[2]
	if write.Command != CommandRegionWrite || write.Answer < 10*time.Millisecond || write.Total < write.Answer+30*time.Millisecond {
		t.Errorf("got %+v", write)
	}
	if read.Command != CommandRegionRead || read.Errno != unix.EINVAL {
		t.Errorf("got %+v", read)
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
	time.Sleep(100 * time.Millisecond)
	failed := len(events(&r.seen, &r.seen.accepts))
	setLimit(limit.Cur)

	// 5, 10, 20, 40, 80 ms
	if failed < 2 || failed > 6 {
		t.Errorf("accept failed %d times in 100 ms", failed)
	}
	eventually(t, "the client is accepted", func() bool {
		_ = unix.Shutdown(fd, unix.SHUT_WR)
		return len(events(&r.seen, &r.seen.gone)) == 1
	})
}

func TestFilesThatThisProcessCannotTakeAreEMFILE(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()
	fd := newEventFD(t)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}

	got := c.call(irqFrame(assignFlags, IRQMSIX, 0, 1).with(fd))

	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if unix.Errno(got.errno) != unix.EMFILE {
		t.Errorf("got errno %v", unix.Errno(got.errno))
	}
	c.must(irqFrame(assignFlags, IRQMSIX, 0, 1).with(fd))
}
