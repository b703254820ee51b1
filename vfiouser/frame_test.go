// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// badFrame is a message that is not served, and what happens then.
type badFrame struct {
	name  string
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
		{"a size of 1", info.sized(1), 0, FaultSize, 0, true},
		{"a size just below the header's", info.sized(15), 0, FaultSize, 0, true},
		{"a size just above the limit", info.sized(MaxFrame + 1), 0, FaultTooLong, 0, true},
		{"the largest size there is", info.sized(0xffffffff), 0, FaultTooLong, 0, true},
		{"an unsolicited reply", info.flagged(typeReply), 0, FaultReply, 0, true},
		{"an unsolicited error reply", info.flagged(typeReply | headerError), 0, FaultReply, 0, true},
		{"a message of type 2", info.flagged(2), 0, FaultType, 0, true},
		{"a message of type 15", info.flagged(15), 0, FaultType, 0, true},
		{"a command with the error bit", info.flagged(headerError), 0, FaultFlags, unix.EINVAL, false},
		{"a command with an unknown flag", info.flagged(1 << 31), 0, FaultFlags, unix.EINVAL, false},
		{"command 0", command(0, 16), 0, FaultCommand, unix.ENOSYS, false},
		{"a command behind the last", command(numCommands, 0), 0, FaultCommand, unix.ENOSYS, false},
		{"command 65535", command(65535, 4), 0, FaultCommand, unix.ENOSYS, false},
		{"an unknown command with a file", command(99, 4), 1, FaultCommand, unix.ENOSYS, false},
		{"DMA_READ from a client", command(CommandDMARead, 16), 0, FaultDirection, unix.EINVAL, false},
		{"DMA_WRITE from a client", command(CommandDMAWrite, 16), 0, FaultDirection, unix.EINVAL, false},
		{"region io fds", command(CommandDeviceGetRegionIOFDs, 16), 0, FaultAbsent, unix.EOPNOTSUPP, false},
		{"dirty pages", command(CommandDirtyPages, 8), 0, FaultAbsent, unix.EOPNOTSUPP, false},
		{"a device feature", command(CommandDeviceFeature, 8), 0, FaultAbsent, unix.ENOTTY, false},
		{"migration data to read", command(CommandMigDataRead, 8), 0, FaultAbsent, unix.EOPNOTSUPP, false},
		{"migration data to write", command(CommandMigDataWrite, 8), 0, FaultAbsent, unix.EOPNOTSUPP, false},
		{"another VERSION", frame{command: CommandVersion, body: versionBody(0, 0, "{}\x00")}, 0, FaultRepeatedVersion, unix.EINVAL, false},
	}
}

func payloadFaults() []badFrame {
	body, fds := FaultBody, FaultFDs
	return []badFrame{
		{"device info without payload", command(CommandDeviceGetInfo, 0), 0, body, unix.EINVAL, false},
		{"device info, short", command(CommandDeviceGetInfo, 15), 0, body, unix.EINVAL, false},
		{"device info, long", command(CommandDeviceGetInfo, 17), 0, body, unix.EINVAL, false},
		{"device info with no room for it", command(CommandDeviceGetInfo, 16), 0, FaultArgs, unix.EINVAL, false},
		{"region info, short", command(CommandDeviceGetRegionInfo, 31), 0, body, unix.EINVAL, false},
		{"region info with no room for it", regionInfoFrame(31, RegionBAR0), 0, FaultArgs, unix.EINVAL, false},
		{"region info of a tenth region", regionInfoFrame(32, 9), 0, FaultArgs, unix.EINVAL, false},
		{"region info of the last number", regionInfoFrame(32, 0xffffffff), 0, FaultArgs, unix.EINVAL, false},
		{"IRQ info, short", command(CommandDeviceGetIRQInfo, 12), 0, body, unix.EINVAL, false},
		{"IRQ info of a sixth index", irqInfoFrame(NumIRQs), 0, FaultArgs, unix.EINVAL, false},
		{"IRQ info with no room for it", command(CommandDeviceGetIRQInfo, 16), 0, FaultArgs, unix.EINVAL, false},
		{"a reset with payload", command(CommandDeviceReset, 1), 0, body, unix.EINVAL, false},
		{"a reset with a file", command(CommandDeviceReset, 0), 1, fds, unix.EINVAL, false},
		{"device info with a file", frame{command: CommandDeviceGetInfo, body: words(16, 0, 0, 0)}, 1, fds, unix.EINVAL, false},
		{"a read with 16 files", readFrame(RegionBAR0, 0, 4), 16, fds, unix.EINVAL, false},
		{"a write with a file", writeFrame(RegionBAR0, 0, 1), 1, fds, unix.EINVAL, false},
		{"a mapping with two files", mapFrame(3, 0, 0, 4096), 2, fds, unix.EINVAL, false},
		{"17 files, one more than fit", irqFrame(irqDataEventFD|irqActionTrigger, IRQMSIX, 0, 3), 17, fds, unix.EINVAL, false},
		{"253 files, the kernel's limit", irqFrame(irqDataEventFD|irqActionTrigger, IRQMSIX, 0, 3), 253, fds, unix.EINVAL, false},
		{"253 files with an unknown command", command(77, 0), 253, FaultCommand, unix.ENOSYS, false},
		{"253 files with a message of type 3", command(CommandDeviceReset, 0).flagged(3), 253, FaultType, 0, true},
		{"a read, short", command(CommandRegionRead, 15), 0, body, unix.EINVAL, false},
		{"a read with data", command(CommandRegionRead, 20), 0, body, unix.EINVAL, false},
		{"a write without its fields", command(CommandRegionWrite, 15), 0, body, unix.EINVAL, false},
		{"a write of more than it has", frame{command: CommandRegionWrite, body: append(access{0, 0, 4}.append(nil), 1, 2, 3)}, 0, body, unix.EINVAL, false},
		{"a write of less than it has", frame{command: CommandRegionWrite, body: append(access{0, 0, 4}.append(nil), 1, 2, 3, 4, 5)}, 0, body, unix.EINVAL, false},
		{"many writes without a count", command(CommandRegionWriteMulti, 7), 0, body, unix.EINVAL, false},
		{"many writes, one missing", frame{command: CommandRegionWriteMulti, body: longs(2, 0, 0, 0)}, 0, body, unix.EINVAL, false},
		{"many writes, one cut", frame{command: CommandRegionWriteMulti, body: longs(1, 0, 0)}, 0, body, unix.EINVAL, false},
		{"2^61 writes, whose length wraps", frame{command: CommandRegionWriteMulti, body: longs(1 << 61)}, 0, body, unix.EINVAL, false},
		{"a SET_IRQS, short", command(CommandDeviceSetIRQs, 19), 0, body, unix.EINVAL, false},
	}
}

func TestAFrameThatBreaksTheRulesIsRefusedAndChangesNothing(t *testing.T) {
	for _, tc := range slices.Concat(framingFaults(), payloadFaults(), accessFaults(), irqFaults(), dmaFaults()) {
		t.Run(tc.name, func(t *testing.T) { tc.check(t) })
	}
}

func TestThereIsAFrameForEveryFault(t *testing.T) {
	ends := map[Fault]bool{}
	for _, tc := range slices.Concat(framingFaults(), payloadFaults(), accessFaults(), irqFaults(), dmaFaults()) {
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

func TestMoreFilesThanFitInPiecesAreClosedAndRefused(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()
	p := c.bytes(irqFrame(assignFlags, IRQMSIX, 0, 1))
	many := slices.Repeat([]int{newEventFD(t)}, MaxMessageFDs)
	held := countFDs(t)

	c.write(p[:1], many...)
	c.write(p[1:], many...)

	if got := unix.Errno(c.answer(CommandDeviceSetIRQs).errno); got != unix.EINVAL {
		t.Errorf("got errno %v", got)
	}
	if n := countFDs(t); n != held {
		t.Errorf("%d file descriptors are open, %d before", n, held)
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
