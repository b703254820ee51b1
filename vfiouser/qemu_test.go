// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// dmaMapping is a piece of guest memory in a replay.
type dmaMapping struct {
	flags              uint32
	offset, addr, size uint64
	file               bool
}

// firmwareMemory is how a guest of 1 GiB looks to QEMU while its firmware runs: below 1 MiB it is in pieces, some to
// be read only, some of them a ROM without a file.
func firmwareMemory() []dmaMapping {
	return []dmaMapping{
		{3, 0, 0, 0xa0000, true},
		{1, 0, 0xc0000, 0xb000, false},
		{3, 0xcb000, 0xcb000, 0x3000, true},
		{1, 0xce000, 0xce000, 0x1a000, true},
		{1, 0, 0xe8000, 0x18000, false},
		{3, 0x100000, 0x100000, 0x3ff00000, true},
		{1, 0, 0xfffc0000, 0x40000, false},
	}
}

// readWhole reads the whole of the config space, as QEMU begins.
func (c *client) readWhole() []byte {
	c.t.Helper()
	return c.must(readFrame(RegionConfig, 0, 256)).body[regionAccessSize:]
}

// regionInfoTwice asks for region info as QEMU does: with room for the bare structure, and again if that was not
// enough.
func (c *client) regionInfoTwice(t *testing.T, index RegionIndex) info {
	t.Helper()
	first := parseInfo(t, c.must(regionInfoFrame(regionInfoSize, index)))
	if first.Argsz == regionInfoSize {
		return first
	}
	if first.File || first.CapOffset != 0 {
		t.Errorf("%s: got %+v, too early", index, first)
	}
	return parseInfo(t, c.must(regionInfoFrame(first.Argsz, index)))
}

// realize replays what QEMU 11.1.3 sends while it realizes a vfio-user-pci device. It returns the regions' info and
// the eventfd of ERR.
func (c *client) realize(t *testing.T, memory int) map[RegionIndex]info {
	t.Helper()
	c.handshake()
	c.must(mapFrame(3, 0, 0, 0x40000000).with(memory))
	if got := c.must(frame{command: CommandDeviceGetInfo, body: words(16, 0, 0, 0)}); !bytes.Equal(got.body, words(16, 3, 9, 5)) {
		t.Errorf("device info: got %v", got.body)
	}
	infos := map[RegionIndex]info{}
	for _, index := range []RegionIndex{0, 1, 2, 3, 4, 5, 7} {
		infos[index] = c.regionInfoTwice(t, index)
	}
	for index, want := range map[IRQIndex][]byte{IRQErr: words(16, 1, 3, 1), IRQMSIX: words(16, 1, 2, 3)} {
		if got := c.must(irqInfoFrame(index)); !bytes.Equal(got.body, want) {
			t.Errorf("IRQ info: got %v, want %v", got.body, want)
		}
	}
	c.readWhole()
	for off := uint64(0x10); off < 0x28; off += 4 {
		c.must(readFrame(RegionConfig, off, 4))
	}
	c.must(irqFrame(assignFlags, IRQErr, 0, 1).with(newEventFD(t)))
	c.must(frame{command: CommandDeviceReset})
	for off := uint64(0x10); off < 0x28; off += 4 {
		c.must(writeFrame(RegionConfig, off, 0xff, 0xff, 0xff, 0xff))
	}
	return infos
}

// splitMemory replays the firmware's changes below 1 MiB: all maps and unmaps of a burst are sent before the first
// answer is read.
func (c *client) splitMemory(memory int) {
	c.t.Helper()
	pieces := firmwareMemory()
	c.send(unmapFrame(0, 0, 0x40000000))
	first := c.id
	for _, p := range pieces {
		f := mapFrame(p.flags, p.offset, p.addr, p.size)
		if p.file {
			f = f.with(memory)
		}
		c.send(f)
	}
	for i := range len(pieces) + 1 {
		r, err := c.receive()
		if err != nil || r.errno != 0 || r.id != first+uint16(i) {
			c.t.Fatalf("answer %d of the burst: %+v, %v", i, r.header, err)
		}
	}
}

// enableMSIX replays how a driver's vectors are enabled where they cannot be added one by one: for each vector, what
// is there is taken away, everything is disabled, and all is set again with one more.
func (c *client) enableMSIX(fds []int) {
	c.t.Helper()
	for n := 1; n <= len(fds); n++ {
		c.must(irqFrame(assignFlags, IRQMSIX, uint32(n-1), 1))
		c.must(irqFrame(noneTrigger, IRQMSIX, 0, 0))
		c.must(irqFrame(assignFlags, IRQMSIX, 0, uint32(n)).with(fds[:n]...))
	}
}

func TestQEMUsRealizeAndADriversProbeAreServed(t *testing.T) {
	r := start(t, nil, nil)
	memory := newMemFD(t, 0x40000000)
	c := dial(t, r.path)

	infos := c.realize(t, memory)
	want := map[RegionIndex]info{
		0: {Argsz: 32, Flags: 3, Size: 16 << 10},
		1: {Argsz: 48, Flags: 15, Index: 1, CapOffset: 32, Size: 4096, CapID: 1, CapVersion: 1},
		2: {
			Argsz: 80, Flags: 15, Index: 2, CapOffset: 32, Size: 16 << 10, CapID: 1, CapVersion: 1, File: true,
			Areas: []MMapArea{{0x1000, 0x1000}, {0x2000, 0x2000}},
		},
		3: {Argsz: 32, Flags: 1, Index: 3, Size: 4096},
		4: {Argsz: 32, Index: 4},
		5: {Argsz: 32, Index: 5},
		7: {Argsz: 32, Flags: 3, Index: 7, Size: 256},
	}
	if diff := cmp.Diff(want, infos); diff != "" {
		t.Error(diff)
	}
	c.splitMemory(memory)

	fds := []int{newEventFD(t), newEventFD(t), newEventFD(t)}
	c.enableMSIX(fds[:1])
	r.session().Trigger(IRQMSIX, 0)
	c.enableMSIX(fds)
	for i, want := range []uint64{1, 0, 0} {
		wantEvents(t, fds[i], want)
	}

	// A command: the slot is written by memory, the register by a message, its result read.
	r.device().taken()
	c.must(writeFrame(RegionBAR1, 0x1c, 0, 0, 0, 0))
	c.must(readFrame(RegionBAR1, 0x20, 4))
	if got := r.device().methods(); !slices.Equal(got, []string{"WriteRegion", "Replied", "ReadRegion"}) {
		t.Errorf("a command: %v", got)
	}
	for _, refused := range r.refusals() {
		t.Errorf("refused: %v", refused.Err)
	}
}

func TestQEMUsSystemResetIsServed(t *testing.T) {
	r := start(t, nil, nil)
	memory := newMemFD(t, 0x40000000)
	c := dial(t, r.path)
	c.realize(t, memory)
	fds := []int{newEventFD(t), newEventFD(t)}
	c.enableMSIX(fds)
	r.device().taken()

	c.must(irqFrame(noneTrigger, IRQMSIX, 0, 0))
	c.must(writeFrame(RegionConfig, 4, 0, 0))
	r.session().Trigger(IRQMSIX, 1)
	c.must(frame{command: CommandDeviceReset})
	c.splitMemory(memory)
	c.must(unmapFrame(dmaUnmapAll, 0, 0))
	c.must(mapFrame(3, 0, 0, 0x40000000).with(memory))
	c.enableMSIX(fds)

	wantEvents(t, fds[1], 0) // it was raised before the reset
	if got := r.device().methods(); !slices.Contains(got, "Reset") {
		t.Errorf("got %v", got)
	}
	for _, refused := range r.refusals() {
		t.Errorf("refused: %v", refused.Err)
	}
}

func TestPostedWritesAloneAndManyAtATimeKeepTheirOrder(t *testing.T) {
	const most = 200 // of QEMU's writes in one message
	r := start(t, nil, nil)
	c := r.client()
	var want []uint64
	next := func() access {
		want = append(want, uint64(len(want))*4%4096)
		return access{want[len(want)-1], RegionBAR1, 4}
	}
	for range 20 {
		for range 8 {
			a := next()
			c.send(posted(writeFrame(RegionBAR1, a.off, binary.NativeEndian.AppendUint32(nil, uint32(a.off))...)))
		}
		var many []access
		for range most {
			many = append(many, next())
		}
		c.send(posted(multiFrame(many...)))
	}
	c.alive()

	var got []uint64
	for i, call := range r.device().taken() {
		if wanted := []string{"WriteRegion", "Replied"}[i%2]; call.Method != wanted {
			t.Fatalf("call %d is %s, want %s", i, call.Method, wanted)
		}
		if call.Method == "WriteRegion" {
			got = append(got, call.Off)
		}
	}
	if !slices.Equal(want, got) {
		t.Errorf("got %d writes, want %d in their order", len(got), len(want))
	}
}
