// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func dmaFaults() []badFrame {
	args, body := FaultArgs, FaultBody
	return []badFrame{
		{"map-31-bytes", command(CommandDMAMap, 31), 0, body, unix.EINVAL, false},
		{"map-argsz-31", frame{command: CommandDMAMap, body: append(words(31, 3), longs(0, 0, 4096)...)}, 0, args, unix.EINVAL, false},
		{"map-no-access", mapFrame(0, 0, 0, 4096), 1, args, unix.EINVAL, false},
		{"map-unknown-flag", mapFrame(3|1<<4, 0, 0, 4096), 1, args, unix.EINVAL, false},
		{"map-size-0", mapFrame(3, 0, 0, 0), 1, args, unix.EINVAL, false},
		{"map-size-2048", mapFrame(3, 0, 0, 2048), 1, args, unix.EINVAL, false},
		{"map-address-2048", mapFrame(3, 0, 2048, 4096), 1, args, unix.EINVAL, false},
		{"map-offset-2048", mapFrame(3, 2048, 0, 4096), 1, args, unix.EINVAL, false},
		{"map-wrap", mapFrame(3, 0, math.MaxUint64-4095, 8192), 1, args, unix.EINVAL, false},
		{"map-to-the-end", mapFrame(3, 0, math.MaxUint64-4095, 4096), 1, args, unix.EINVAL, false},
		{"map-offset-negative", mapFrame(3, 1<<63, 0, 4096), 1, args, unix.EINVAL, false},
		{"map-offset-wrap", mapFrame(3, math.MaxInt64-4095, 0, 4096), 1, args, unix.EINVAL, false},
		{"map-mmap-no-fd", mapFrame(3|dmaFlagMMap, 0, 0, 4096), 0, FaultFDs, unix.EINVAL, false},
		{"map-file-io", mapFrame(3|dmaFlagFileIO, 0, 0, 4096), 1, FaultAbsent, unix.EOPNOTSUPP, false},
		{"unmap-23-bytes", command(CommandDMAUnmap, 23), 0, body, unix.EINVAL, false},
		{"unmap-bitmap", unmapFrame(1, 0, 4096), 0, args, unix.EINVAL, false},
		{"unmap-argsz-0", frame{command: CommandDMAUnmap, body: make([]byte, 24)}, 0, args, unix.EINVAL, false},
		{"unmap-unknown", unmapFrame(0, 4096, 4096), 0, FaultMapping, unix.ENOENT, false},
		{"unmap-all-address", unmapFrame(dmaUnmapAll, 4096, 0), 0, args, unix.EINVAL, false},
		{"unmap-all-size", unmapFrame(dmaUnmapAll, 0, 4096), 0, args, unix.EINVAL, false},
	}
}

func TestMappingsReachTheDeviceWithAndWithoutTheirFiles(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()
	memory := newMemFD(t, 1<<20)
	held := countFDs(t)

	c.must(mapFrame(3, 0x2000, 0x1000, 0x4000).with(memory))
	c.must(mapFrame(1, 0, 0xc0000, 0x1000))
	c.must(mapFrame(3|dmaFlagMMap, 0, 0x100000, 0x1000).with(memory))
	unmapped := c.must(unmapFrame(0, 0x1000, 0x4000))
	all := c.must(unmapFrame(dmaUnmapAll, 0, 0))

	want := []call{
		{Method: "MapDMA", DMA: DMAMap{Addr: 0x1000, Size: 0x4000, Offset: 0x2000, Flags: DMARead | DMAWrite}},
		{Method: "MapDMA", DMA: DMAMap{Addr: 0xc0000, Size: 0x1000, FD: -1, Flags: DMARead}},
		{Method: "MapDMA", DMA: DMAMap{Addr: 0x100000, Size: 0x1000, Flags: DMARead | DMAWrite}},
		{Method: "UnmapDMA", Addr: 0x1000, Size: 0x4000},
		{Method: "UnmapAllDMA"},
	}
	if diff := cmp.Diff(want, r.device().taken()); diff != "" {
		t.Error(diff)
	}
	if !slices.Equal(r.device().mapped, []bool{true, false, true}) {
		t.Errorf("files open in MapDMA: %v", r.device().mapped)
	}
	if !bytes.Equal(unmapped.body, unmapFrame(0, 0x1000, 0x4000).body) || !bytes.Equal(all.body, unmapFrame(dmaUnmapAll, 0, 0).body) {
		t.Errorf("got replies %v and %v", unmapped.body, all.body)
	}
	if n := countFDs(t); n != held {
		t.Errorf("%d file descriptors are open, %d before", n, held)
	}
}

func TestAMappingOverAnotherIsEEXIST(t *testing.T) {
	for _, tc := range []struct {
		name       string
		addr, size uint64
	}{
		{"the same", 0x4000, 0x2000},
		{"inside", 0x5000, 0x1000},
		{"around", 0x3000, 0x4000},
		{"over its begin", 0x3000, 0x2000},
		{"over its end", 0x5000, 0x2000},
		{"over two", 0x5000, 0x4000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := start(t, nil, nil)
			c := r.client()
			c.must(mapFrame(3, 0, 0x4000, 0x2000))
			c.must(mapFrame(3, 0, 0x8000, 0x2000))
			r.device().taken()

			got := c.call(mapFrame(3, 0, tc.addr, tc.size).with(newMemFD(t, 4096)))

			if unix.Errno(got.errno) != unix.EEXIST {
				t.Errorf("got errno %v", unix.Errno(got.errno))
			}
			if calls := r.device().methods(); len(calls) != 0 {
				t.Errorf("the device was called: %v", calls)
			}
			c.must(mapFrame(3, 0, 0x6000, 0x2000)) // beside both
		})
	}
}

func TestAnUnmappingCutsNoMapping(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()
	c.must(mapFrame(3, 0, 0x4000, 0x2000))
	r.device().taken()

	for _, tc := range []struct {
		addr, size uint64
		want       unix.Errno
	}{
		{0x4000, 0x1000, unix.EINVAL},
		{0x3000, 0x2000, unix.EINVAL},
		{0x5000, 0x1000, unix.ENOENT},
		{0x5000, 0x4000, unix.ENOENT},
		{0x2000, 0x2000, unix.ENOENT},
		{0x6000, 0x2000, unix.ENOENT},
		{0x4000, 0, unix.EINVAL},
		{0x4000, math.MaxUint64, unix.EINVAL},
	} {
		if got := unix.Errno(c.call(unmapFrame(0, tc.addr, tc.size)).errno); got != tc.want {
			t.Errorf("%#x+%#x: got errno %v, want %v", tc.addr, tc.size, got, tc.want)
		}
	}
	if calls := r.device().methods(); len(calls) != 0 {
		t.Errorf("the device was called: %v", calls)
	}
	c.must(unmapFrame(0, 0x4000, 0x2000))

	if got := unix.Errno(c.call(unmapFrame(0, 0x4000, 0x2000)).errno); got != unix.ENOENT {
		t.Errorf("the second time: got errno %v", got)
	}
}

// QEMU's virtual IOMMUs map page by page, and take back with one message what one page table covers.
func TestAnUnmappingTakesBackAllMappingsInItsRange(t *testing.T) {
	r := start(t, nil, nil)
	c := r.client()
	for _, addr := range []uint64{0x1ff000, 0x200000, 0x201000, 0x3ff000, 0x400000} {
		c.must(mapFrame(3, 0, addr, 0x1000))
	}
	r.device().taken()

	c.must(unmapFrame(0, 0x200000, 0x200000))

	want := []call{{Method: "UnmapDMA", Addr: 0x200000, Size: 0x200000}}
	if diff := cmp.Diff(want, r.device().taken()); diff != "" {
		t.Error(diff)
	}
	c.must(mapFrame(3, 0, 0x200000, 0x200000)) // all of it is free again
	c.must(unmapFrame(0, 0x1ff000, 0x1000))
	c.must(unmapFrame(0, 0x400000, 0x1000))
}

func TestAMappingThatTheDeviceRefusesIsNotKept(t *testing.T) {
	var refuse atomic.Bool
	refuse.Store(true)
	r := start(t, nil, func(d *recordingDevice) {
		d.before = func(string) error {
			if refuse.Load() {
				return fmt.Errorf("no room: %w", unix.ENOMEM)
			}
			return nil
		}
	})
	c := r.client()

	if got := unix.Errno(c.call(mapFrame(3, 0, 0, 4096)).errno); got != unix.ENOMEM {
		t.Errorf("got errno %v", got)
	}
	refuse.Store(false)
	c.must(mapFrame(3, 0, 0, 4096))
	refuse.Store(true)
	if got := unix.Errno(c.call(unmapFrame(0, 0, 4096)).errno); got != unix.ENOMEM {
		t.Errorf("got errno %v", got)
	}
	refuse.Store(false)
	c.must(unmapFrame(0, 0, 4096)) // it was still there
}

func TestMappingsAreLimited(t *testing.T) {
	s := &Session{dev: newRecordingDevice(-1), maps: make(mappings, MaxDMAMaps)}
	for i := range s.maps {
		s.maps[i] = mapping{uint64(i) * PageSize, PageSize}
	}
	f := mapFrame(3, 0, MaxDMAMaps*PageSize, PageSize)

	_, err := s.dmaMap(&message{body: f.body})

	if errnoOf(err) != unix.ENOSPC || faultOf(err) != FaultLimit || len(s.maps) != MaxDMAMaps {
		t.Errorf("got %v", err)
	}
}

func TestOverlapsAgreeWithAModelOfPages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ms mappings
		pages := map[uint64]bool{}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			n := mapping{rapid.Uint64Range(0, 40).Draw(t, "addr"), rapid.Uint64Range(1, 8).Draw(t, "size")}
			want := false
			for p := n.addr; p < n.addr+n.size; p++ {
				want = want || pages[p]
			}

			got := ms.overlaps(n)

			if got != want {
				t.Fatalf("%v over %v: %v", n, ms, got)
			}
			if got {
				continue
			}
			i, _ := ms.find(n.addr)
			ms = slices.Insert(ms, i, n)
			for p := n.addr; p < n.addr+n.size; p++ {
				pages[p] = true
			}
		}
	})
}
