// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func accessFaults() []badFrame {
	args, limit := FaultArgs, FaultLimit
	return []badFrame{
		{"read-index-9", readFrame(NumRegions, 0, 4), 0, args, unix.EINVAL, false},
		{"read-index-max", readFrame(math.MaxUint32, 0, 4), 0, args, unix.EINVAL, false},
		{"read-no-region", readFrame(RegionROM, 0, 4), 0, args, unix.EINVAL, false},
		{"read-across-end", readFrame(RegionBAR1, 4093, 4), 0, args, unix.EINVAL, false},
		{"read-behind-end", readFrame(RegionConfig, 257, 1), 0, args, unix.EINVAL, false},
		{"read-wrap", readFrame(RegionBAR0, math.MaxUint64-1, 4), 0, args, unix.EINVAL, false},
		{"read-4097", readFrame(RegionBAR0, 0, MaxTransfer+1), 0, limit, unix.EINVAL, false},
		{"read-4-gib", readFrame(RegionBAR0, 0, math.MaxUint32), 0, limit, unix.EINVAL, false},
		{"write-no-region", writeFrame(RegionVGA, 0, 1), 0, args, unix.EINVAL, false},
		{"write-read-only", writeFrame(RegionBAR3, 0, 1), 0, args, unix.EACCES, false},
		{"write-across-end", writeFrame(RegionBAR1, 4095, 1, 2), 0, args, unix.EINVAL, false},
		{"write-wrap", writeFrame(RegionBAR1, math.MaxUint64, 1, 2), 0, args, unix.EINVAL, false},
		{"write-4097", writeFrame(RegionBAR0, 0, make([]byte, MaxTransfer+1)...), 0, limit, unix.EINVAL, false},
	}
}

func TestAReadReturnsWhatTheDevicePutIn(t *testing.T) {
	for _, count := range []uint32{1, 2, 4, 8, 3, 256, MaxTransfer} {
		t.Run(fmt.Sprintf("%d bytes", count), func(t *testing.T) {
			r := start(t, nil, nil)
			c := r.client()

			got := c.must(readFrame(RegionBAR0, 5, count))

			want := access{5, RegionBAR0, count}.append(nil)
			for i := range count {
				want = append(want, byte(5+i))
			}
			if diff := cmp.Diff(want, got.body); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAnAccessOfNoBytesIsAnsweredWithoutTheDevice(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()

	read := c.must(readFrame(RegionConfig, 256, 0))
	write := c.must(writeFrame(RegionBAR0, 0))

	if len(read.body) != regionAccessSize || len(write.body) != regionAccessSize {
		t.Errorf("got %d and %d bytes", len(read.body), len(write.body))
	}
	if calls := r.device().taken(); len(calls) > 0 {
		t.Errorf("the device was called: %+v", calls)
	}
}

func TestTheAnswerToAWriteGoesOutBeforeTheWorkBehindIt(t *testing.T) {
	r, _, release := startHeld(t, "Replied", 1)
	c := r.client()

	c.must(writeFrame(RegionBAR1, 0x1c, 0, 0, 0, 0)) // comes back although Replied does not
	c.send(readFrame(RegionBAR1, 0x20, 4))
	if got := r.device().methods(); !slices.Equal(got, []string{"WriteRegion"}) {
		t.Errorf("before the work is done: %v", got)
	}
	release()
	c.answer(CommandRegionRead)

	if got := r.device().methods(); !slices.Equal(got, []string{"Replied", "ReadRegion"}) {
		t.Errorf("after the work is done: %v", got)
	}
}

func TestAWriteThatTheDeviceRefusesIsAnsweredWithItsErrnoAndNoWork(t *testing.T) {
	r := start(t, nil, func(d *recordingDevice) {
		d.before = func(string) error { return fmt.Errorf("not now: %w", unix.EBUSY) }
	})
	c := r.client()

	write := c.call(writeFrame(RegionBAR0, 0, 1))
	read := c.call(readFrame(RegionBAR0, 0, 1))
	c.alive()

	if unix.Errno(write.errno) != unix.EBUSY || unix.Errno(read.errno) != unix.EBUSY {
		t.Errorf("got errno %d and %d", write.errno, read.errno)
	}
	for _, f := range r.refusals() {
		if f.Fault != FaultDevice || f.Errno != unix.EBUSY || f.Fatal {
			t.Errorf("got %+v", f)
		}
	}
}

func TestAnErrorWithoutErrnoReachesTheClientAsEIO(t *testing.T) {
	r := start(t, nil, func(d *recordingDevice) {
		d.before = func(string) error { return fmt.Errorf("no errno in here") }
	})
	c := r.client()

	if got := unix.Errno(c.call(readFrame(RegionBAR0, 0, 1)).errno); got != unix.EIO {
		t.Errorf("got errno %v", got)
	}
}

func TestManyWritesAreDoneOneByOneInOrderEachWithItsWork(t *testing.T) {
	writes := []access{{0x10, RegionBAR0, 4}, {0, RegionBAR1, 1}, {0x2000, RegionBAR2, 8}}
	want := []call{
		{Method: "WriteRegion", Index: RegionBAR0, Off: 0x10, Data: "01020304"},
		{Method: "Replied"},
		{Method: "WriteRegion", Index: RegionBAR1, Data: "01"},
		{Method: "Replied"},
		{Method: "WriteRegion", Index: RegionBAR2, Off: 0x2000, Data: "0102030405060708"},
		{Method: "Replied"},
	}
	for _, tc := range []struct {
		name  string
		frame frame
	}{{"posted", posted(multiFrame(writes...))}, {"answered", multiFrame(writes...)}} {
		t.Run(tc.name, func(t *testing.T) {
			r := start(t, nil, nil)
			c := r.client()

			c.send(tc.frame)
			if tc.name == "answered" {
				if got := c.answer(CommandRegionWriteMulti); !bytes.Equal(got.body, longs(3)) {
					t.Errorf("got %v", got.body)
				}
			}
			c.alive()

			if diff := cmp.Diff(want, r.device().taken()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOneOfManyWritesThatFailsIsLeftOutAndReported(t *testing.T) {
	for _, tc := range []struct {
		name  string
		bad   access
		fault Fault
	}{
		{"of no bytes", access{0, RegionBAR0, 0}, FaultArgs},
		{"of nine bytes", access{0, RegionBAR0, 9}, FaultArgs},
		{"of 4 GiB", access{0, RegionBAR0, math.MaxUint32}, FaultLimit},
		{"to a tenth region", access{0, 9, 4}, FaultArgs},
		{"behind the end", access{1 << 63, RegionBAR0, 8}, FaultArgs},
		{"to a region to be read only", access{0, RegionBAR3, 4}, FaultArgs},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := start(t, nil, nil)
			c := r.client()

			got := c.must(multiFrame(access{0, RegionBAR0, 1}, tc.bad, access{1, RegionBAR0, 1}, tc.bad))

			if !bytes.Equal(got.body, longs(2)) {
				t.Errorf("got %v writes", got.body)
			}
			c.alive()
			if got := r.device().methods(); !slices.Equal(got, []string{"WriteRegion", "Replied", "WriteRegion", "Replied"}) {
				t.Errorf("got %v", got)
			}
			if got := r.refusals(); len(got) != 1 || got[0].Fault != tc.fault || got[0].Fatal {
				t.Errorf("got refusals %+v", got)
			}
		})
	}
}

// info is a region info reply, taken apart.
type info struct {
	Argsz, Flags, Index, CapOffset uint32
	Size, Offset                   uint64
	CapID, CapVersion              uint16
	Areas                          []MMapArea
	File                           bool
}

func parseInfo(t *testing.T, r reply) info {
	t.Helper()
	b, order := r.body, binary.NativeEndian
	got := info{
		Argsz: order.Uint32(b), Flags: order.Uint32(b[4:]), Index: order.Uint32(b[8:]), CapOffset: order.Uint32(b[12:]),
		Size: order.Uint64(b[16:]), Offset: order.Uint64(b[24:]), File: len(r.fds) == 1,
	}
	for _, fd := range r.fds {
		_ = unix.Close(fd)
	}
	if got.CapOffset == 0 {
		return got
	}
	b = b[got.CapOffset:]
	got.CapID, got.CapVersion = order.Uint16(b), order.Uint16(b[2:])
	if next := order.Uint32(b[4:]); next != 0 {
		t.Errorf("a capability at %d follows", next)
	}
	count := order.Uint32(b[8:])
	for b = b[16:]; count > 0; count-- {
		got.Areas = append(got.Areas, MMapArea{order.Uint64(b), order.Uint64(b[8:])})
		b = b[16:]
	}
	if len(b) != 0 {
		t.Errorf("%d bytes behind the areas", len(b))
	}
	return got
}

func TestRegionInfoSaysWhatTheClientMayMap(t *testing.T) {
	const rw = uint32(RegionRead | RegionWrite)
	areas := []MMapArea{{PageSize, PageSize}, {2 * PageSize, 2 * PageSize}}
	plain := `{"capabilities":{"max_msg_fds":8}}` + "\x00"
	for _, tc := range []struct {
		name    string
		version string
		argsz   uint32
		index   RegionIndex
		want    info
	}{
		{"registers", qemuVersionData, 32, RegionBAR0, info{Argsz: 32, Flags: rw, Size: 16 << 10}},
		{"a region that does not exist", qemuVersionData, 32, RegionROM, info{Argsz: 32, Index: 6}},
		{
			"an empty list, first without room for it", qemuVersionData, 32, RegionBAR1,
			info{Argsz: 48, Flags: rw | 4, Index: 1, Size: 4096},
		},
		{
			"an empty list", qemuVersionData, 48, RegionBAR1,
			info{Argsz: 48, Flags: rw | 4 | 8, Index: 1, CapOffset: 32, Size: 4096, CapID: 1, CapVersion: 1},
		},
		{"an empty list, not for a client that would map everything", plain, 48, RegionBAR1, info{Argsz: 32, Flags: rw, Index: 1, Size: 4096}},
		{
			"areas, without room for them", qemuVersionData, 79, RegionBAR2,
			info{Argsz: 80, Flags: rw | 4, Index: 2, Size: 16 << 10},
		},
		{
			"areas", qemuVersionData, 80, RegionBAR2,
			info{Argsz: 80, Flags: rw | 4 | 8, Index: 2, CapOffset: 32, Size: 16 << 10, CapID: 1, CapVersion: 1, Areas: areas, File: true},
		},
		{
			"areas for a client that posts nothing", plain, 1024, RegionBAR2,
			info{Argsz: 80, Flags: rw | 4 | 8, Index: 2, CapOffset: 32, Size: 16 << 10, CapID: 1, CapVersion: 1, Areas: areas, File: true},
		},
		{
			"areas, not for a client that takes no files", `{"capabilities":{"max_msg_fds":0}}` + "\x00", 1024, RegionBAR2,
			info{Argsz: 32, Flags: rw, Index: 2, Size: 16 << 10},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := start(t, nil, nil)
			c := dial(t, r.path)
			c.must(frame{command: CommandVersion, body: versionBody(0, 0, tc.version+"\x00")})

			got := parseInfo(t, c.must(regionInfoFrame(tc.argsz, tc.index)))

			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTheFileOfARegionIsTheDevices(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()

	got := c.must(regionInfoFrame(1024, RegionBAR2))

	if len(got.fds) != 1 || !sameFile(t, got.fds[0], r.device().regions[RegionBAR2].FD) {
		t.Errorf("got files %v", got.fds)
	}
	for _, fd := range got.fds {
		_ = unix.Close(fd)
	}
}

func TestADeviceThatDescribesItselfWronglyIsNotServed(t *testing.T) {
	const rwm = RegionRead | RegionWrite | RegionMMap
	page := []MMapArea{{0, PageSize}}
	for _, tc := range []struct {
		name   string
		region Region
	}{
		{"an unknown flag", Region{Size: 4096, Flags: 1 << 3}},
		{"a size that is negative as a file offset", Region{Size: 1 << 63}},
		{"areas without the flag", Region{Size: 4096, Flags: RegionRead, MMapAreas: page}},
		{"areas without a file", Region{Size: 4096, Flags: rwm, MMapAreas: page, FD: -1}},
		{"an area behind the end", Region{Size: 4096, Flags: rwm, MMapAreas: []MMapArea{{PageSize, PageSize}}}},
		{"an area whose end wraps", Region{Size: 4096, Flags: rwm, MMapAreas: []MMapArea{{1<<64 - PageSize, PageSize}}}},
		{"an area that is no page", Region{Size: 4096, Flags: rwm, MMapAreas: []MMapArea{{0, 2048}}}},
		{"an area that is empty", Region{Size: 4096, Flags: rwm, MMapAreas: []MMapArea{{0, 0}}}},
		{"areas out of order", Region{Size: 8192, Flags: rwm, MMapAreas: []MMapArea{{PageSize, PageSize}, {0, PageSize}}}},
		{"areas that overlap", Region{Size: 8192, Flags: rwm, MMapAreas: []MMapArea{{0, 8192}, {PageSize, PageSize}}}},
		{"too many areas", Region{Size: 4096, Flags: rwm, MMapAreas: slices.Repeat(page, MaxMMapAreas+1)}},
		{"a crooked file offset", Region{Size: 4096, Flags: rwm, MMapAreas: page, FDOffset: 1}},
		{"a file offset that is negative", Region{Size: 4096, Flags: rwm, MMapAreas: page, FDOffset: 1 << 63}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := start(t, nil, func(d *recordingDevice) { d.regions[RegionBAR4] = tc.region })
			c := dial(t, r.path)

			got := c.call(frame{command: CommandVersion, body: versionBody(0, 0, "")})

			if unix.Errno(got.errno) != unix.EINVAL {
				t.Errorf("got errno %v", unix.Errno(got.errno))
			}
			c.ended()
			if got := r.disconnect(1); got.Reason != ReasonOpen || !got.Opened {
				t.Errorf("got %+v", got)
			}
			<-r.device().closed
		})
	}
}

func TestWithinNeverWraps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		edge := rapid.OneOf(rapid.Uint64(), rapid.SampledFrom([]uint64{0, 1, 4095, 4096, 1 << 63, math.MaxUint64}))
		off, n, size := edge.Draw(t, "off"), edge.Draw(t, "n"), edge.Draw(t, "size")

		got := within(off, n, size)

		want := off <= size && n <= size && n+off >= n && off+n <= size
		if got != want {
			t.Fatalf("within(%#x, %#x, %#x) = %v", off, n, size, got)
		}
	})
}
