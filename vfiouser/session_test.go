// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

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
	r := start(t, func(cfg *Config) { cfg.HandshakeTimeout = time.Second }, nil)
	c := r.client()

	time.Sleep(1500 * time.Millisecond)

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

func TestADeviceWithMoreThanThereCanBeIsNotServed(t *testing.T) {
	for name, spoil := range map[string]func(*recordingDevice){
		"regions": func(d *recordingDevice) { d.regions = append(d.regions, Region{}) },
		"vectors": func(d *recordingDevice) { d.irqs[IRQMSIX] = MaxVectors + 1 },
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, nil, spoil)
			c := dial(t, r.path)

			got := c.call(frame{command: CommandVersion, body: versionBody(0, 0, "")})

			if unix.Errno(got.errno) != unix.EINVAL {
				t.Errorf("got errno %v", unix.Errno(got.errno))
			}
			if got := r.disconnect(1); got.Reason != ReasonOpen {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestAResetThatFailsForgetsNoInterrupt(t *testing.T) {
	r := start(t, nil, func(d *recordingDevice) {
		d.before = func(string) error { return unix.EBUSY }
	})
	c := r.client()
	fd := newEventFD(t)
	r.session().Trigger(IRQMSIX, 0)

	got := c.call(frame{command: CommandDeviceReset})
	c.must(irqFrame(assignFlags, IRQMSIX, 0, 1).with(fd))

	if unix.Errno(got.errno) != unix.EBUSY {
		t.Errorf("got errno %v", unix.Errno(got.errno))
	}
	wantEvents(t, fd, 1)
}

func TestErrorsSayWhatWasAskedAndWhatIsWrong(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()

	c.call(readFrame(RegionBAR1, 4093, 4))
	c.call(mapFrame(3, 0, 2048, 4096))

	want := []string{
		"access to BAR1 at 0xffd+0x4, which has 0x1000 bytes: invalid argument",
		"DMA_MAP of 0x800+0x1000: invalid argument",
	}
	for i, refused := range r.refusals() {
		if refused.Err.Error() != want[i] {
			t.Errorf("got %q, want %q", refused.Err, want[i])
		}
	}
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
