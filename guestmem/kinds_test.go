// SPDX-License-Identifier: Apache-2.0

package guestmem_test

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"golang.org/x/sys/unix"
)

// hugeSize is the size of the huge pages of x86.
const hugeSize = 2 << 20

// reserveHugePages has the kernel set n huge pages aside until the test ends.
func reserveHugePages(t *testing.T, n int) {
	t.Helper()
	const file = "/proc/sys/vm/nr_hugepages"
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("the kernel has no huge pages, which guests commonly use; run this test where it has: %v", err)
	}
	before, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	set := func(n int) error { return os.WriteFile(file, []byte(strconv.Itoa(n)), 0) }
	if err := set(before + n); err != nil {
		t.Fatalf("reserve %d huge pages (as root, or set vm.nr_hugepages beforehand): %v", n, err)
	}
	t.Cleanup(func() {
		if err := set(before); err != nil {
			t.Error(err)
		}
	})
	if b, err = os.ReadFile(file); err != nil {
		t.Fatal(err)
	}
	if got, _ := strconv.Atoi(strings.TrimSpace(string(b))); got < before+n {
		t.Fatalf("the kernel has %d huge pages of %d: free memory is too fragmented, or there is too little", got, before+n)
	}
}

// hugeFile is a file of n huge pages as QEMU's memory-backend-memfd with hugetlb=on makes.
func hugeFile(t *testing.T, n int) int {
	t.Helper()
	reserveHugePages(t, n)
	fd, err := unix.MemfdCreate("guest-ram", unix.MFD_CLOEXEC|unix.MFD_HUGETLB|unix.MFD_HUGE_2MB)
	if err != nil {
		t.Fatalf("memfd_create: %v", err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, int64(n)*hugeSize); err != nil {
		t.Fatalf("ftruncate: %v", err)
	}
	return fd
}

func TestMemoryInHugePagesServesAsAListOfRuns(t *testing.T) {
	fd := hugeFile(t, 4)
	inBothForms(t, func(t *testing.T, f form) {
		d := f.domain()
		s, peer := d.NewSpace("huge"), newGuest(t, d, "peer", 1<<20)
		defer s.Close()
		// QEMU maps pieces that need not begin at a huge page: the firmware's, for example.
		for addr, off := range map[uint64]uint64{0: 0, 16 << 20: 3*hugeSize - 5*page} {
			if err := s.Map(addr, hugeSize+2*page, fd, off, rw); err != nil {
				t.Fatal(err)
			}
		}
		ram := mapped(t, fd, 4*hugeSize)
		list := []uint64{16<<20 + 4*page, 0, hugeSize + page, 3 * page}
		p, err := s.PinContiguous(list, rw)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Release()
		if err := p.Scattered(); f == windowed && (!errors.Is(err, guestmem.ErrScattered) || !strings.Contains(err.Error(), "4096")) {
			t.Fatalf("a list in huge pages has a window, or another reason for none: %v", err)
		}
		if n := s.Stats().WindowsDenied; p.Window() || n != 0 {
			t.Fatalf("window %v, %d denied", p.Window(), n)
		}
		remote := peer.pin(t, shuffled(0, 4))
		want := bytes.Repeat([]byte("huge page"), 4*page/9+1)[:4*page]
		if err := errors.Join(guestmem.CopyIn(remote, 0, want), guestmem.Copy(p, 0, remote, 0, 4*page)); err != nil {
			t.Fatal(err)
		}
		for i, off := range []int{3*hugeSize - page, 0, hugeSize + page, 3 * page} {
			if !bytes.Equal(ram[off:off+page], want[i*page:(i+1)*page]) {
				t.Fatalf("page %d is not at offset %#x of the file", i, off)
			}
		}
		// A word in the first page of the last huge page.
		ram[3*hugeSize] = 42
		var b [1]byte
		if err := s.Read(16<<20+5*page, b[:]); err != nil || b[0] != 42 {
			t.Fatalf("by address: %d, %v", b[0], err)
		}
	})
}

func TestATruncatedFileOfHugePagesIsAFault(t *testing.T) {
	fd := hugeFile(t, 2)
	inBothForms(t, func(t *testing.T, f form) {
		if err := unix.Ftruncate(fd, 2*hugeSize); err != nil {
			t.Fatal(err)
		}
		s := f.domain().NewSpace("huge")
		defer s.Close()
		if err := s.Map(0, 2*hugeSize, fd, 0, rw); err != nil {
			t.Fatal(err)
		}
		p, err := s.PinContiguous([]uint64{hugeSize + page, 0}, rw)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Release()
		if err := unix.Ftruncate(fd, hugeSize); err != nil {
			t.Fatal(err)
		}
		var fault *guestmem.FaultError
		err = guestmem.CopyIn(p, 16, []byte("x"))
		if !errors.As(err, &fault) || fault.Owner != "huge" || fault.Offset/hugeSize != 1 {
			t.Fatalf("error is %v", err)
		}
		if err := guestmem.CopyIn(p, page, []byte("x")); err != nil {
			t.Fatalf("the page that is there: %v", err)
		}
	})
}

// balloons are the ways in which a front-end discards pages, the first page of the file here, that are registered.
var balloons = map[string]func(g *guest) error{
	"fallocate(PUNCH_HOLE)": func(g *guest) error {
		return unix.Fallocate(g.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, page)
	},
	"madvise(MADV_REMOVE)": func(g *guest) error { return unix.Madvise(g.ram[:page], unix.MADV_REMOVE) },
}

// blocks is how many pages of a file have memory.
func blocks(t *testing.T, fd int) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512 / page
}

func TestPagesThatABalloonDiscardsReadAsZerosAndStayTheGuestsOwn(t *testing.T) {
	for name, discard := range balloons {
		t.Run(name, func(t *testing.T) {
			inBothForms(t, func(t *testing.T, f form) {
				g := newGuest(t, f.domain(), "vm1", 4*page)
				p := g.pin(t, []uint64{2 * page, 0})
				var got [5]byte
				if err := guestmem.CopyIn(p, page, []byte("stale")); err != nil {
					t.Fatal(err)
				}
				before := blocks(t, g.fd)

				if err := discard(g); err != nil {
					t.Fatal(err)
				}

				if n := blocks(t, g.fd); n != before-1 {
					t.Fatalf("%d pages have memory, %d before: the page was not given back", n, before)
				}
				// What was there is gone for the guest and for the device alike: never do we see the old page.
				if err := guestmem.CopyOut(got[:], p, page); err != nil || got != [5]byte{} || g.ram[0] != 0 {
					t.Fatalf("the device reads %q, %v; the guest %q", got, err, g.ram[:5])
				}
				// The page that comes in its place is one page, for both.
				if err := guestmem.CopyIn(p, page, []byte("fresh")); err != nil || string(g.ram[:5]) != "fresh" {
					t.Fatalf("the guest reads %q after the device wrote, %v", g.ram[:5], err)
				}
				copy(g.ram, "guest")
				if err := guestmem.CopyOut(got[:], p, page); err != nil || string(got[:]) != "guest" {
					t.Fatalf("the device reads %q after the guest wrote, %v", got, err)
				}
				// Access by the device takes the memory back from the balloon: that is not a leak, but it is not saved.
				if n := blocks(t, g.fd); n != before {
					t.Fatalf("%d pages have memory, want %d", n, before)
				}
			})
		})
	}
}

func TestABalloonThatInflatesDuringCopiesFaultsNobody(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		d := f.domain()
		g, peer := newGuest(t, d, "vm1", 64*page), newGuest(t, d, "peer", 64*page)
		dst, src := g.pin(t, shuffled(0, 64)), peer.pin(t, shuffled(0, 64))
		var wg sync.WaitGroup
		stop := make(chan struct{})
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					for _, discard := range balloons {
						if err := discard(g); err != nil {
							t.Error(err)
							return
						}
					}
				}
			}
		})
		for range 300 {
			if err := errors.Join(guestmem.Copy(dst, 0, src, 0, 64*page), guestmem.Copy(src, 0, dst, 0, 64*page)); err != nil {
				t.Fatal(err)
			}
		}
		close(stop)
		wg.Wait()
	})
}

// A front-end that maps the file privately (share=off) has pages that are in no file. Nothing here can notice that: the
// device works on the file, which the guest no longer looks at once it has written to a page.
func TestAPrivateMappingOfTheFrontEndIsNotSeen(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		g := newGuest(t, f.domain(), "vm1", 4*page)
		private, err := unix.Mmap(g.fd, 0, 4*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Munmap(private)
		p := g.pin(t, []uint64{2 * page, 0})
		copy(private, "the guest's")
		got := make([]byte, 6)
		if err := guestmem.CopyIn(p, page, []byte("device")); err != nil {
			t.Fatal(err)
		}
		if err := guestmem.CopyOut(got, p, page); err != nil || string(got) != "device" || string(private[:3]) != "the" {
			t.Fatalf("the device reads %q, %v, the guest %q", got, err, private[:3])
		}
	})
}

// The device may read a file that is not open for writing, also through a window, and is told before it writes: the
// fault would be the daemon's own.
func TestReadOnlyMemoryIsRefusedAndNotFaultedOn(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		d := f.domain()
		s, other := d.NewSpace("vm1"), newGuest(t, d, "other", page)
		defer s.Close()
		fd := memfd(t, 4*page)
		if _, err := unix.Pwrite(fd, []byte("firmware"), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err != nil {
			t.Fatal(err)
		}
		if err := s.Map(0, 4*page, fd, 0, guestmem.ProtRead); err != nil {
			t.Fatal(err)
		}
		list := []uint64{2 * page, 0}
		_, err := s.PinContiguous(list, rw)
		mustFail(t, err, unix.EFAULT, "vm1")
		if !strings.Contains(err.Error(), "does not allow it") {
			t.Fatalf("error %q does not say why", err)
		}
		p := d.pin(t, s, list, guestmem.ProtRead)
		got := make([]byte, 8)
		if err := guestmem.CopyOut(got, p, page); err != nil || string(got) != "firmware" {
			t.Fatalf("read %q, %v", got, err)
		}
		var fault *guestmem.FaultError
		for what, err := range map[string]error{
			"CopyIn": guestmem.CopyIn(p, 0, got), "Copy": guestmem.Copy(p, 0, other.Space, 0, 8), "Store32": p.Store32(0, 1),
			"Space.Write": s.Write(0, got), "Copy by address": guestmem.Copy(s, 0, other.Space, 0, 8),
		} {
			if !errors.Is(err, unix.EFAULT) || errors.As(err, &fault) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}
