// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// badFrame is a message that is not served, and what happens then.
type badFrame struct {
	id    string // in testdata/cases.tsv
	frame frame
	files int // eventfds sent along
	fault Fault
	errno unix.Errno // 0: no answer
	ends  bool
}

// command makes a frame with n bytes of payload.
func command(c Command, n int) frame { return frame{command: c, body: make([]byte, n)} }

// sized gives a frame another size in its header.
func (f frame) sized(n uint32) frame {
	f.size = n
	return f
}

// flagged gives a frame header flags.
func (f frame) flagged(flags uint32) frame {
	f.flags = flags
	return f
}

func framingFaults() []badFrame {
	info := frame{command: CommandDeviceGetInfo, body: words(deviceInfoSize, 0, 0, 0)}
	return []badFrame{
		{"size-1", info.sized(1), 0, FaultSize, 0, true},
		{"size-15", info.sized(15), 0, FaultSize, 0, true},
		{"size-65537", info.sized(MaxFrame + 1), 0, FaultTooLong, 0, true},
		{"size-max", info.sized(0xffffffff), 0, FaultTooLong, 0, true},
		{"type-reply", info.flagged(typeReply), 0, FaultReply, 0, true},
		{"type-error-reply", info.flagged(typeReply | headerError), 0, FaultReply, 0, true},
		{"type-2", info.flagged(2), 0, FaultType, 0, true},
		{"type-15", info.flagged(15), 0, FaultType, 0, true},
		{"flag-error", info.flagged(headerError), 0, FaultFlags, unix.EINVAL, false},
		{"flag-unknown", info.flagged(1 << 31), 0, FaultFlags, unix.EINVAL, false},
		{"command-0", command(0, 16), 0, FaultCommand, unix.ENOSYS, false},
		{"command-19", command(numCommands, 0), 0, FaultCommand, unix.ENOSYS, false},
		{"command-65535", command(65535, 4), 0, FaultCommand, unix.ENOSYS, false},
		{"command-99-fd", command(99, 4), 1, FaultCommand, unix.ENOSYS, false},
		{"dma-read", command(CommandDMARead, 16), 0, FaultDirection, unix.EINVAL, false},
		{"dma-write", command(CommandDMAWrite, 16), 0, FaultDirection, unix.EINVAL, false},
		{"region-io-fds", command(CommandDeviceGetRegionIOFDs, 16), 0, FaultAbsent, unix.EOPNOTSUPP, false},
		{"dirty-pages", command(CommandDirtyPages, 8), 0, FaultAbsent, unix.EOPNOTSUPP, false},
		{"device-feature", command(CommandDeviceFeature, 8), 0, FaultAbsent, unix.ENOTTY, false},
		{"mig-data-read", command(CommandMigDataRead, 8), 0, FaultAbsent, unix.EOPNOTSUPP, false},
		{"mig-data-write", command(CommandMigDataWrite, 8), 0, FaultAbsent, unix.EOPNOTSUPP, false},
		{"version-twice", frame{command: CommandVersion, body: versionBody(0, 0, "{}\x00")}, 0, FaultRepeatedVersion, unix.EINVAL, false},
	}
}

func payloadFaults() []badFrame {
	body, fds := FaultBody, FaultFDs
	return []badFrame{
		{"info-0-bytes", command(CommandDeviceGetInfo, 0), 0, body, unix.EINVAL, false},
		{"info-15-bytes", command(CommandDeviceGetInfo, 15), 0, body, unix.EINVAL, false},
		{"info-17-bytes", command(CommandDeviceGetInfo, 17), 0, body, unix.EINVAL, false},
		{"info-argsz-0", command(CommandDeviceGetInfo, 16), 0, FaultArgs, unix.EINVAL, false},
		{"region-info-31-bytes", command(CommandDeviceGetRegionInfo, 31), 0, body, unix.EINVAL, false},
		{"region-info-argsz-31", regionInfoFrame(31, RegionBAR0), 0, FaultArgs, unix.EINVAL, false},
		{"region-info-index-9", regionInfoFrame(32, 9), 0, FaultArgs, unix.EINVAL, false},
		{"region-info-index-max", regionInfoFrame(32, 0xffffffff), 0, FaultArgs, unix.EINVAL, false},
		{"irq-info-12-bytes", command(CommandDeviceGetIRQInfo, 12), 0, body, unix.EINVAL, false},
		{"irq-info-index-5", irqInfoFrame(NumIRQs), 0, FaultArgs, unix.EINVAL, false},
		{"irq-info-argsz-0", command(CommandDeviceGetIRQInfo, 16), 0, FaultArgs, unix.EINVAL, false},
		{"reset-payload", command(CommandDeviceReset, 1), 0, body, unix.EINVAL, false},
		{"reset-fd", command(CommandDeviceReset, 0), 1, fds, unix.EINVAL, false},
		{"info-fd", frame{command: CommandDeviceGetInfo, body: words(16, 0, 0, 0)}, 1, fds, unix.EINVAL, false},
		{"read-16-fds", readFrame(RegionBAR0, 0, 4), 16, fds, unix.EINVAL, false},
		{"write-fd", writeFrame(RegionBAR0, 0, 1), 1, fds, unix.EINVAL, false},
		{"map-2-fds", mapFrame(3, 0, 0, 4096), 2, fds, unix.EINVAL, false},
		{"fds-17", irqFrame(assignFlags, IRQMSIX, 0, 3), 17, FaultTooManyFDs, unix.EINVAL, true},
		{"fds-253", irqFrame(assignFlags, IRQMSIX, 0, 3), 253, FaultTooManyFDs, unix.EINVAL, true},
		{"fds-253-command-77", command(77, 0), 253, FaultTooManyFDs, unix.EINVAL, true},
		{"fds-253-type-3", command(CommandDeviceReset, 0).flagged(3), 253, FaultType, 0, true},
		{"read-15-bytes", command(CommandRegionRead, 15), 0, body, unix.EINVAL, false},
		{"read-20-bytes", command(CommandRegionRead, 20), 0, body, unix.EINVAL, false},
		{"write-15-bytes", command(CommandRegionWrite, 15), 0, body, unix.EINVAL, false},
		{"write-data-short", frame{command: CommandRegionWrite, body: append(access{0, 0, 4}.append(nil), 1, 2, 3)}, 0, body, unix.EINVAL, false},
		{"write-data-long", frame{command: CommandRegionWrite, body: append(access{0, 0, 4}.append(nil), 1, 2, 3, 4, 5)}, 0, body, unix.EINVAL, false},
		{"multi-7-bytes", command(CommandRegionWriteMulti, 7), 0, body, unix.EINVAL, false},
		{"multi-missing", frame{command: CommandRegionWriteMulti, body: longs(2, 0, 0, 0)}, 0, body, unix.EINVAL, false},
		{"multi-cut", frame{command: CommandRegionWriteMulti, body: longs(1, 0, 0)}, 0, body, unix.EINVAL, false},
		{"multi-wrap", frame{command: CommandRegionWriteMulti, body: longs(1 << 61)}, 0, body, unix.EINVAL, false},
		{"irqs-19-bytes", command(CommandDeviceSetIRQs, 19), 0, body, unix.EINVAL, false},
	}
}

func TestAFrameThatBreaksTheRulesIsRefusedAndChangesNothing(t *testing.T) {
	for _, tc := range openFaults() {
		t.Run(tc.id, func(t *testing.T) { tc.check(t) })
	}
}

func TestThereIsAFrameForEveryFault(t *testing.T) {
	ends := map[Fault]bool{}
	for _, tc := range openFaults() {
		ends[tc.fault] = tc.ends
	}
	for _, tc := range handshakeFaults() {
		if _, known := ends[tc.fault]; !known {
			ends[tc.fault] = tc.ends
		}
	}
	for f := FaultDevice + 1; f < numFaults; f++ {
		if end, known := ends[f]; !known || end != f.Ends() {
			t.Errorf("%s: ends the session %v, tested %v with %v", f, f.Ends(), known, end)
		}
	}
}

func (tc badFrame) check(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()
	for range tc.files {
		tc.frame.fds = append(tc.frame.fds, newEventFD(t))
	}
	held := countFDs(t)

	c.send(tc.frame)

	if tc.errno != 0 {
		if got := unix.Errno(c.answer(tc.frame.command).errno); got != tc.errno {
			t.Errorf("got errno %v, want %v", got, tc.errno)
		}
	}
	if tc.ends {
		c.ended()
		if got := r.disconnect(1); got.Reason != ReasonProtocol || faultOf(got.Err) != tc.fault || !got.Opened {
			t.Errorf("got %+v", got)
		}
	} else {
		c.alive()
		if n := countFDs(t); n != held {
			t.Errorf("%d file descriptors are open, %d before", n, held)
		}
	}
	refused := r.refusals()
	if len(refused) != 1 || refused[0].Fault != tc.fault || refused[0].Fatal != tc.ends || refused[0].Command != tc.frame.command {
		t.Errorf("got refusals %+v", refused)
	}
	if calls := slices.DeleteFunc(r.device().methods(), func(m string) bool { return m == "Close" }); len(calls) > 0 {
		t.Errorf("the device was called: %v", calls)
	}
}

func TestAFrameThatWantsNoReplyGetsNoneEvenIfItIsRefused(t *testing.T) {
	for _, f := range []frame{
		command(99, 4), command(CommandDeviceFeature, 8), readFrame(99, 0, 4), readFrame(RegionBAR0, 0, 4),
		writeFrame(RegionBAR0, 1<<40, 1), command(CommandDeviceGetInfo, 3), multiFrame(access{0, 99, 4}),
	} {
		t.Run(f.command.String(), func(t *testing.T) {
			r := start(t, nil, nil)
			c := r.client()

			c.send(posted(f))

			c.alive() // reads the very next reply
		})
	}
}

func TestFilesBehindTheHeaderAreClosedAndRefused(t *testing.T) {
	for _, tc := range []struct {
		name string
		at   int
	}{
		{"with the payload", headerSize}, {"in the payload", headerSize + 5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := start(t, nil, nil)
			c := r.client()
			p := c.bytes(irqFrame(irqDataEventFD|irqActionTrigger, IRQMSIX, 0, 1))
			fd := newEventFD(t)
			held := countFDs(t)

			c.write(p[:tc.at])
			c.write(p[tc.at:], fd)

			if got := unix.Errno(c.answer(CommandDeviceSetIRQs).errno); got != unix.EINVAL {
				t.Errorf("got errno %v", got)
			}
			c.alive()
			if n := countFDs(t); n != held {
				t.Errorf("%d file descriptors are open, %d before", n, held)
			}
		})
	}
}

func TestFilesMayComeWithAnyByteOfTheHeader(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()
	for at := range headerSize {
		p := c.bytes(irqFrame(assignFlags, IRQMSIX, 0, 1))

		if at > 0 {
			c.write(p[:at])
		}
		c.write(p[at:], newEventFD(t))

		if got := unix.Errno(c.answer(CommandDeviceSetIRQs).errno); got != 0 {
			t.Errorf("at byte %d: got errno %v", at, got)
		}
	}
}

func TestMoreFilesThanFitInPiecesAreClosedAndEndTheSession(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()
	p := c.bytes(irqFrame(assignFlags, IRQMSIX, 0, 1))
	many := slices.Repeat([]int{newEventFD(t)}, MaxMessageFDs)

	c.write(p[:1], many...)
	c.write(p[1:], many...)

	if got := unix.Errno(c.answer(CommandDeviceSetIRQs).errno); got != unix.EINVAL {
		t.Errorf("got errno %v", got)
	}
	c.ended()
	if got := r.refusals(); len(got) != 1 || got[0].Fault != FaultTooManyFDs || !got[0].Fatal {
		t.Errorf("got refusals %+v", got)
	}
}

func TestFilesStayWithTheirOwnMessageWhenSeveralAreSentAtOnce(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()
	fd := newEventFD(t)

	c.write(append(c.bytes(posted(writeFrame(RegionBAR0, 0, 1))), c.bytes(posted(writeFrame(RegionBAR0, 1, 2)))...))
	c.send(irqFrame(irqDataEventFD|irqActionTrigger, IRQMSIX, 1, 1).with(fd))

	if got := c.answer(CommandDeviceSetIRQs); got.errno != 0 {
		t.Fatalf("got errno %v", unix.Errno(got.errno))
	}
	r.session().Trigger(IRQMSIX, 1)
	wantEvents(t, fd, 1)
}

func TestAMessageMayComeInSingleBytes(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()

	for _, b := range c.bytes(writeFrame(RegionBAR0, 8, 0xaa, 0xbb)) {
		c.write([]byte{b})
	}

	if got := c.answer(CommandRegionWrite); got.errno != 0 {
		t.Fatalf("got errno %v", unix.Errno(got.errno))
	}
	c.alive()
	if calls := r.device().taken(); len(calls) != 2 || calls[0].Data != "aabb" {
		t.Errorf("got %+v", calls)
	}
}

func TestAFrameOfTheGreatestLengthIsServed(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()
	most := (MaxFrame - headerSize - multiHeaderSize) / multiWriteSize
	writes := slices.Repeat([]access{{0, RegionBAR0, 8}}, most)

	got := c.must(multiFrame(writes...))
	c.alive()

	if want := longs(uint64(most)); !slices.Equal(got.body, want) {
		t.Errorf("got %v writes, want %v", got.body, want)
	}
	if calls := r.device().taken(); len(calls) != 2*most {
		t.Errorf("got %d calls, want %d", len(calls), 2*most)
	}
}
