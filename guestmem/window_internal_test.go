// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// fileSpace is a Space with a file of four pages at 0, in a Domain that gives every list a window.
func fileSpace(t *testing.T) *Space {
	t.Helper()
	fd, err := unix.MemfdCreate("guest-ram", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 4*PageSize); err != nil {
		t.Fatal(err)
	}
	s := NewDomainWith(Windows{Budget: 64, MinPages: 1, MaxRun: 1}).NewSpace("vm1")
	t.Cleanup(func() { s.Close() })
	if err := s.Map(0, 4*PageSize, fd, 0, ProtRead|ProtWrite); err != nil {
		t.Fatal(err)
	}
	return s
}

// checkDenied pins a list that is to have a window, and must get none.
func checkDenied(t *testing.T, s *Space, want error) {
	t.Helper()
	before := s.Stats()
	index := len(*s.dom.index.Load())
	p, err := s.PinContiguous([]uint64{2 * PageSize, 0}, ProtRead|ProtWrite)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Scattered(); p.Window() || !errors.Is(err, want) {
		t.Fatalf("window %v, error %v, want %v", p.Window(), err, want)
	}
	if err := CopyIn(p, PageSize-2, []byte("list")); err != nil {
		t.Fatalf("the list does not serve: %v", err)
	}
	p.Release()
	after := s.Stats()
	if after.WindowsDenied != before.WindowsDenied+1 {
		t.Fatalf("%d windows denied, then %d", before.WindowsDenied, after.WindowsDenied)
	}
	after.WindowsDenied = before.WindowsDenied
	if after != before || s.pieces != 0 || s.dom.pieces != 0 || len(*s.dom.index.Load()) != index {
		t.Fatalf("something is left: %+v, before %+v; %d pieces", after, before, s.pieces)
	}
}

func TestAWindowThatTheKernelRefusesLeavesAListAndNothingElse(t *testing.T) {
	s := fileSpace(t)
	var m *mapping
	for m = range s.maps {
	}
	base := m.base
	private, err := unix.Mmap(-1, 0, 4*PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(private)
	m.base = ptrTo(private) // memory that cannot be mapped twice
	defer func() { m.base = base }()
	checkDenied(t, s, unix.EINVAL)
}

func TestAWindowWithoutAddressSpaceIsAnError(t *testing.T) {
	w := &window{space: &Space{owner: "vm1"}, span: math.MaxInt64 &^ (PageSize - 1)}
	if err := w.build(); !errors.Is(err, unix.ENOMEM) {
		t.Fatalf("error is %v", err)
	}
}

func TestTheAddressSpaceOfWindowsIsLimited(t *testing.T) {
	s := fileSpace(t)
	s.windowBytes = maxWindowBytes - PageSize
	checkDenied(t, s, unix.ENOMEM)
	s.windowBytes, s.dom.bytes = 0, maxDomainBytes-PageSize
	checkDenied(t, s, unix.ENOMEM)
	s.dom.bytes = 4 * PageSize
}

// A guest that goes may leave tens of thousands of windows. If the index were copied for each, the next one would wait for
// seconds.
func TestTheIndexIsCopiedOnceForAllWindowsThatGo(t *testing.T) {
	const n = 1000
	s := fileSpace(t)
	s.dom.windows.Budget = 8 * n
	lists := make([]*Pages, n)
	for i := range lists {
		p, err := s.PinContiguous([]uint64{2 * PageSize, 0}, ProtRead)
		if err != nil || !p.Window() {
			t.Fatalf("window %d: %v, %v", i, err, p.Scattered())
		}
		lists[i] = p
	}
	s.reaping.Lock() // all are given back before the first is unmapped
	for _, p := range lists {
		p.Release()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s.reaping.Unlock()

	s.reap(idleKeep)

	runtime.ReadMemStats(&after)
	const entry, copies = 64, 8 // bytes and more, and what else is allocated
	if got := after.TotalAlloc - before.TotalAlloc; got > copies*entry*n {
		t.Errorf("%d bytes were allocated to take %d windows out of the index", got, n)
	}
	if left := len(*s.dom.index.Load()); left != 1 || s.dom.pieces != 0 {
		t.Errorf("%d entries and %d mappings are left, want the file alone", left, s.dom.pieces)
	}
}

func TestTheMemoryOfPageListsIsLimited(t *testing.T) {
	s := fileSpace(t)
	s.listBytes = maxListBytes - 16
	p, err := s.Pin([]uint64{2 * PageSize, 0}, ProtRead)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Pin([]uint64{2 * PageSize, 0}, ProtRead); !errors.Is(err, unix.ENOMEM) {
		t.Fatalf("error is %v", err)
	}
	p.Release()
	if p, err = s.Pin([]uint64{2 * PageSize, 0}, ProtRead); err != nil {
		t.Fatalf("after a list was given back: %v", err)
	}
	p.Release()
	if s.pages != 0 || s.pins != 0 || s.listBytes != maxListBytes-16 {
		t.Fatalf("%d pages, %d uses and %d bytes are left", s.pages, s.pins, s.listBytes)
	}
}

func TestTheLimitOfMappingsIsTheKernels(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]int{"65530\n": 65530, "262144": 262144, "": 65530, "many": 65530, "-1\n": 65530} {
		file := filepath.Join(dir, "max_map_count")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := readMapCount(file); got != want {
			t.Errorf("%q is read as %d, want %d", text, got, want)
		}
	}
	if got := readMapCount(filepath.Join(dir, "absent")); got != 65530 {
		t.Errorf("without the file: %d", got)
	}
	if w := DefaultWindows(); w.Budget != min(maxMapCount()/2, maxWindowBudget) {
		t.Errorf("budget is %d of %d", w.Budget, maxMapCount())
	}
}
