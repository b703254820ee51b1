// SPDX-License-Identifier: Apache-2.0

package guestmem_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"golang.org/x/sys/unix"
)

// inode is the number of a file as /proc/self/maps shows it.
func inode(t *testing.T, fd int) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(st.Ino)
}

// mappings counts how often the process has a file mapped.
func mappings(t *testing.T, fd int) int {
	t.Helper()
	ino := inode(t, fd)
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(maps)) {
		if f := strings.Fields(line); len(f) > 5 && f[4] == ino && strings.HasPrefix(f[5], "/memfd:") {
			n++
		}
	}
	return n
}

func TestAFileIsMappedOnceAndKeptAcrossABurst(t *testing.T) {
	s := noLists().NewSpace("vm1")
	fd := memfd(t, 64*page)
	// As QEMU's firmware phase does: take the memory away and bring it back in pieces, again and again.
	for range 20 {
		for i := range uint64(16) {
			if err := s.Map(i*4*page, 4*page, fd, i*4*page, rw); err != nil {
				t.Fatal(err)
			}
		}
		if n := mappings(t, fd); n != 1 {
			t.Fatalf("16 regions of one file take %d mappings", n)
		}
		s.UnmapAll()
		if n := mappings(t, fd); n != 1 {
			t.Fatalf("within a burst the file has %d mappings", n)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := mappings(t, fd); n != 0 {
		t.Fatalf("after Close %d mappings are left", n)
	}
}

func TestAnIdleFileIsUnmappedAfterAWhile(t *testing.T) {
	s := noLists().NewSpace("vm1")
	defer s.Close()
	if err := s.Map(0, page, memfd(t, page), 0, rw); err != nil {
		t.Fatal(err)
	}
	s.UnmapAll()
	if st := s.Stats(); st.Files != 1 || st.Bytes != page {
		t.Fatalf("right after Unmap: %+v", st)
	}
	for end := time.Now().Add(time.Minute); s.Stats().Files != 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the idle file is still mapped: %+v", s.Stats())
		}
	}
}

func TestAFileThatHasGrownIsMappedAgain(t *testing.T) {
	s := noLists().NewSpace("vm1")
	defer s.Close()
	fd := memfd(t, page)
	if err := s.Map(0, page, fd, 0, rw); err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, 2*page); err != nil {
		t.Fatal(err)
	}
	if err := s.Map(page, page, fd, page, rw); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(0, make([]byte, 2*page)); err != nil {
		t.Fatal(err)
	}
	if err := s.Unmap(0, page); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); mappings(t, fd) != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d mappings, want the short one gone", mappings(t, fd))
		}
	}
	if err := s.Write(2*page-4, []byte("tail")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := unix.Pread(fd, got, 2*page-4); err != nil || string(got) != "tail" {
		t.Fatalf("the file ends with %q, %v", got, err)
	}
}

func TestAFileSealedAgainstWritingServesReadOnlyRegions(t *testing.T) {
	fd := memfd(t, page)
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err != nil {
		t.Fatal(err)
	}
	s := noLists().NewSpace("vm1")
	defer s.Close()
	mustFail(t, s.Map(0, page, fd, 0, rw), unix.EACCES, "vm1")
	if err := s.Map(0, page, fd, 0, guestmem.ProtRead); err != nil {
		t.Fatal(err)
	}
	if err := s.Read(0, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	mustFail(t, s.Write(0, make([]byte, 8)), unix.EFAULT, "vm1")
}

func TestTheNumberOfFilesIsLimitedAndIdleOnesGiveWay(t *testing.T) {
	s := noLists().NewSpace("vm1")
	defer s.Close()
	add := func(i uint64) error {
		fd, err := unix.MemfdCreate("guest-ram", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if err := unix.Ftruncate(fd, page); err != nil {
			t.Fatal(err)
		}
		return s.Map(i*page, page, fd, 0, rw)
	}
	const limit = 512
	for i := range uint64(limit) {
		if err := add(i); err != nil {
			t.Fatalf("file %d: %v", i, err)
		}
	}
	mustFail(t, add(limit), unix.ENOMEM, "vm1")
	if err := s.Unmap(0, page); err != nil {
		t.Fatal(err)
	}
	if err := add(limit); err != nil {
		t.Fatalf("with one file idle: %v", err)
	}
}

func TestTheAddressSpaceThatAGuestTakesIsLimited(t *testing.T) {
	s := noLists().NewSpace("vm1")
	defer s.Close()
	mustFail(t, s.Map(0, page, memfd(t, 1<<40+page), 0, rw), unix.ENOMEM, "vm1")
	if err := s.Map(0, page, memfd(t, 5<<37), 0, rw); err != nil {
		t.Fatal(err)
	}
	mustFail(t, s.Map(page, page, memfd(t, 5<<37), 0, rw), unix.ENOMEM, "vm1")
}

func TestPagesReleasedAfterCloseGiveTheMappingBack(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		s := f.domain().NewSpace("vm1")
		fd := memfd(t, page)
		if err := s.Map(0, page, fd, 0, rw); err != nil {
			t.Fatal(err)
		}
		p, err := s.PinContiguous([]uint64{0, 0}, rw)
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		want := 1
		if p.Window() {
			want += p.Runs()
		}
		if n := mappings(t, fd); n != want {
			t.Fatalf("%d mappings while pages are pinned, want %d", n, want)
		}
		p.Release()
		p.Release()
		for end := time.Now().Add(time.Minute); mappings(t, fd) != 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the mapping is still there")
			}
		}
	})
}
