// SPDX-License-Identifier: Apache-2.0

package guestmem_test

import (
	"errors"
	"testing"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"golang.org/x/sys/unix"
)

func newShared(t *testing.T, pages int) (*guestmem.SharedPages, []byte) {
	t.Helper()
	s, err := guestmem.NewSharedPages("doorbells", pages)
	if err != nil {
		t.Fatal(err)
	}
	peer, err := unix.Mmap(s.FD(), 0, pages*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatalf("a front-end cannot map the pages: %v", err)
	}
	t.Cleanup(func() {
		unix.Munmap(peer)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
	})
	return s, peer
}

func TestWhatAFrontEndStoresInSharedPagesIsSeen(t *testing.T) {
	s, peer := newShared(t, 2)
	peer[page+4] = 7
	if v := s.Load32(page + 4); v != 7 {
		t.Fatalf("Load32 is %d", v)
	}
	if v := s.Swap32(page+4, 9); v != 7 || peer[page+4] != 9 {
		t.Fatalf("Swap32 gave %d and left %d", v, peer[page+4])
	}
	s.Store32(0, 1)
	s.Zero(1)
	if peer[0] != 1 || peer[page+4] != 0 {
		t.Fatalf("Zero left %d and %d", peer[0], peer[page+4])
	}
	if s.Len() != 2*page {
		t.Fatalf("Len is %d", s.Len())
	}
}

func TestSharedPagesCannotBeTakenAwayByAFrontEnd(t *testing.T) {
	s, _ := newShared(t, 2)
	if err := unix.Ftruncate(s.FD(), page); !errors.Is(err, unix.EPERM) {
		t.Errorf("shrinking: %v", err)
	}
	if err := unix.Ftruncate(s.FD(), 3*page); !errors.Is(err, unix.EPERM) {
		t.Errorf("growing: %v", err)
	}
	if _, err := unix.FcntlInt(uintptr(s.FD()), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); !errors.Is(err, unix.EPERM) {
		t.Errorf("sealing: %v", err)
	}
	// What it can do is to punch holes, and those are zeroes.
	s.Store32(8, 1)
	if err := unix.Fallocate(s.FD(), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, page); err != nil {
		t.Fatal(err)
	}
	if v := s.Load32(8); v != 0 {
		t.Fatalf("a hole holds %d", v)
	}
}

// A front-end may keep the file for ever, and come back for another one.
func TestAFrontEndThatKeepsSharedPagesKeepsNoMemoryOfOurs(t *testing.T) {
	const pages = 64
	s, err := guestmem.NewSharedPages("doorbells", pages)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := unix.FcntlInt(uintptr(s.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(kept)
	peer, err := unix.Mmap(kept, 0, pages*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(peer)
	peer[5] = 1
	blocks := func() int64 {
		var st unix.Stat_t
		if err := unix.Fstat(kept, &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512
	}
	if n := blocks(); n != pages*page {
		t.Fatalf("the file takes %d bytes, want all %d: they are faulted in at once", n, pages*page)
	}

	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	if n := blocks(); n != 0 {
		t.Errorf("%d bytes stay allocated", n)
	}
	if peer[5] != 0 {
		t.Errorf("what was mapped holds %d", peer[5])
	}
}

func TestABadNumberOfSharedPagesIsRefused(t *testing.T) {
	for _, n := range []int{-1, 0, 16385} {
		if _, err := guestmem.NewSharedPages("doorbells", n); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%d pages: %v", n, err)
		}
	}
}

func TestAnOffsetOutsideOfSharedPagesPanics(t *testing.T) {
	s, _ := newShared(t, 1)
	for name, f := range map[string]func(){
		"beyond":     func() { s.Load32(page) },
		"negative":   func() { s.Store32(-4, 0) },
		"misaligned": func() { s.Swap32(2, 0) },
		"page":       func() { s.Zero(1) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Fatal("no panic")
				}
			}()
			f()
		})
	}
}
