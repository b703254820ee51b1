// SPDX-License-Identifier: Apache-2.0

package guestmem_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"golang.org/x/sys/unix"
)

const page = guestmem.PageSize

// mustFail checks that err wraps errno and names the guest.
func mustFail(t *testing.T, err, want error, owner string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error is %v, want %v", err, want)
	}
	if !strings.Contains(err.Error(), `guest "`+owner+`"`) {
		t.Fatalf("error does not name guest %q: %v", owner, err)
	}
}

// otherDescriptors opens a file that cannot be written and one end of a pipe.
func otherDescriptors(t *testing.T) (readOnly, pipe int) {
	t.Helper()
	readOnly, err := unix.Open("/proc/self/exe", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, fd := range []int{readOnly, ends[0], ends[1]} {
			unix.Close(fd)
		}
	})
	return readOnly, ends[0]
}

func TestAMapThatCannotBeIsRefusedWithItsErrno(t *testing.T) {
	ram := memfd(t, 16*page)
	readOnly, pipe := otherDescriptors(t)

	for _, c := range []struct {
		name         string
		addr, size   uint64
		fd           int
		offset       uint64
		prot         guestmem.Prot
		want         error
		inTheMessage string
	}{
		{"size 0", 0x100000, 0, ram, 0, rw, unix.EINVAL, "multiples"},
		{"misaligned address", 0x100001, page, ram, 0, rw, unix.EINVAL, "multiples"},
		{"misaligned size", 0x100000, page + 8, ram, 0, rw, unix.EINVAL, "multiples"},
		{"misaligned offset", 0x100000, page, ram, 8, rw, unix.EINVAL, "multiples"},
		{"address wraps", math.MaxUint64 - page + 1, 2 * page, ram, 0, rw, unix.EINVAL, "wraps"},
		{"offset wraps", 0x100000, 2 * page, ram, math.MaxUint64 - page + 1, rw, unix.EINVAL, "wraps"},
		{"beyond the file", 0x100000, 16 * page, ram, page, rw, unix.EINVAL, "file holds 0x10000 bytes, offset 0x1000 + size 0x10000"},
		{"offset far beyond the file", 0x100000, page, ram, 1 << 40, rw, unix.EINVAL, "file holds"},
		{"unknown permission", 0x100000, page, ram, 0, 8, unix.EINVAL, "permission bits"},
		{"same range", 0, page, ram, 0, rw, unix.EEXIST, "overlaps the region 0x0+0x4000"},
		{"tail of a region", 3 * page, 2 * page, ram, 0, rw, unix.EEXIST, "overlaps"},
		{"around a region", 0x20000 - page, 3 * page, ram, 0, rw, unix.EEXIST, "overlaps"},
		{"write through a read-only descriptor", 0x100000, page, readOnly, 0, rw, unix.EACCES, "not open for writing"},
		{"a pipe", 0x100000, page, pipe, 0, rw, unix.EINVAL, "not a file with memory"},
		{"a descriptor that is not open", 0x100000, page, 1 << 20, 0, rw, unix.EBADF, "fstat"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := noLists().NewSpace("vm1")
			defer s.Close()
			for _, r := range [][2]uint64{{0, 4 * page}, {0x20000, page}} {
				if err := s.Map(r[0], r[1], ram, 0, rw); err != nil {
					t.Fatal(err)
				}
			}
			before := s.Stats()

			err := s.Map(c.addr, c.size, c.fd, c.offset, c.prot)

			mustFail(t, err, c.want, "vm1")
			if !strings.Contains(err.Error(), c.inTheMessage) {
				t.Fatalf("error %q does not say %q", err, c.inTheMessage)
			}
			if after := s.Stats(); after.Regions != before.Regions {
				t.Fatalf("a refused map left %d regions, want %d", after.Regions, before.Regions)
			}
		})
	}
}

func TestTheLastPageOfTheAddressSpaceCanBeMapped(t *testing.T) {
	s := noLists().NewSpace("vm1")
	defer s.Close()
	const last = uint64(math.MaxUint64 - page + 1)
	if err := s.Map(last, page, memfd(t, page), 0, rw); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(math.MaxUint64-3, []byte("last")); err != nil {
		t.Fatal(err)
	}
	mustFail(t, s.Write(math.MaxUint64-3, []byte("lasts")), unix.EINVAL, "vm1")
	if err := s.Unmap(last, page); err != nil {
		t.Fatal(err)
	}
}

func TestUnmapCutsNoRegion(t *testing.T) {
	g := newGuest(t, noLists(), "vm1", 8*page)
	for name, r := range map[string][2]uint64{
		"front half": {0, 4 * page}, "back half": {4 * page, 4 * page}, "the middle": {page, page}, "elsewhere": {1 << 30, page},
		"the back half and more": {4 * page, 9 * page}, "nothing": {0, 0}, "beyond all addresses": {page, math.MaxUint64},
	} {
		t.Run(name, func(t *testing.T) {
			mustFail(t, g.Unmap(r[0], r[1]), unix.ENOENT, "vm1")
		})
	}
	if n := g.Stats().Regions; n != 1 {
		t.Fatalf("%d regions are left of one", n)
	}
	if err := g.Unmap(0, 9*page); err != nil { // what is a hole already does not matter
		t.Fatal(err)
	}
	mustFail(t, g.Unmap(0, 8*page), unix.ENOENT, "vm1")
}

// A virtual IOMMU maps page by page, and takes a whole page table back with one message.
func TestUnmapTakesAllRegionsOfARange(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		const pages = 1024
		g := f.domain().NewSpace("vm1")
		t.Cleanup(func() { _ = g.Close() })
		fd := memfd(t, pages*page)
		for i := range uint64(pages) {
			if i%8 == 7 {
				continue // holes
			}
			if err := g.Map(i*page, page, fd, (pages-1-i)*page, rw); err != nil {
				t.Fatal(err)
			}
		}
		barriers := 0
		g.SetBarrier(func() { barriers++ })
		inside, err := g.PinContiguous([]uint64{700 * page, 3 * page}, rw)
		if err != nil {
			t.Fatal(err)
		}
		defer inside.Release()
		beside, err := g.PinContiguous([]uint64{511*page - page, 1023*page - page}, rw)
		if err != nil {
			t.Fatal(err)
		}
		defer beside.Release()

		if err := g.Unmap(512*page, 510*page); err != nil {
			t.Fatal(err)
		}

		if n := g.Stats().Regions; n != 448+1 || barriers != 1 {
			t.Errorf("%d regions are left, %d barriers; want 449 and 1", n, barriers)
		}
		if !inside.Revoked() || beside.Revoked() {
			t.Errorf("revoked: the list in the range %v, the list beside it %v", inside.Revoked(), beside.Revoked())
		}
		mustFail(t, g.Read(700*page, make([]byte, 1)), unix.EFAULT, "vm1")
		if err := errors.Join(g.Read(510*page, make([]byte, 1)), g.Read(1022*page, make([]byte, 1))); err != nil {
			t.Error(err)
		}
	})
}

func TestTheDescriptorMayBeClosedAfterMap(t *testing.T) {
	fd := memfd(t, page)
	dup, err := unix.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	s := noLists().NewSpace("vm1")
	defer s.Close()
	if err := s.Map(0, page, dup, 0, rw); err != nil {
		t.Fatal(err)
	}
	unix.Close(dup)
	if err := s.Write(0, []byte("still here")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 10)
	if _, err := unix.Pread(fd, got, 0); err != nil || string(got) != "still here" {
		t.Fatalf("file holds %q, %v", got, err)
	}
}

func TestARegionWithoutADescriptorIsKnownButHasNoMemory(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		s := f.domain().NewSpace("vm1")
		defer s.Close()
		if err := s.Map(0xc0000, page, -1, 0, guestmem.ProtRead); err != nil {
			t.Fatal(err)
		}
		err := s.Read(0xc0000, make([]byte, 1))
		mustFail(t, err, unix.EFAULT, "vm1")
		if !strings.Contains(err.Error(), "share=on") {
			t.Fatalf("error %q does not say what to do", err)
		}
		_, err = s.PinContiguous([]uint64{0xc0000}, guestmem.ProtRead)
		mustFail(t, err, unix.EFAULT, "vm1")
		mustFail(t, s.Map(0xc0000, page, -1, 0, guestmem.ProtRead), unix.EEXIST, "vm1")
		if err := s.Unmap(0xc0000, page); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAccessesCrossRegionsButNotHoles(t *testing.T) {
	s := noLists().NewSpace("vm1")
	defer s.Close()
	fd := memfd(t, 4*page)
	// Guest order differs from file order, and the last region may only be read.
	for i, off := range []uint64{2 * page, 0, 3 * page} {
		prot := rw
		if i == 2 {
			prot = guestmem.ProtRead
		}
		if err := s.Map(uint64(i)*page, page, fd, off, prot); err != nil {
			t.Fatal(err)
		}
	}
	msg := bytes.Repeat([]byte("0123456789abcdef"), page/16+2)
	if err := s.Write(page-16, msg[:page+16]); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, page+16)
	if err := s.Read(page-16, got); err != nil || !bytes.Equal(got, msg[:page+16]) {
		t.Fatalf("read back something else, %v", err)
	}

	before := make([]byte, 2*page)
	if err := s.Read(0, before); err != nil {
		t.Fatal(err)
	}
	mustFail(t, s.Write(2*page-8, make([]byte, 16)), unix.EFAULT, "vm1") // into the read-only region
	mustFail(t, s.Read(3*page-8, make([]byte, 16)), unix.EFAULT, "vm1")  // into the hole
	after := make([]byte, 2*page)
	if err := s.Read(0, after); err != nil || !bytes.Equal(before, after) {
		t.Fatalf("a refused write has written, %v", err)
	}
}

func TestTheNumberOfRegionsIsLimited(t *testing.T) {
	s := noLists().NewSpace("vm1")
	defer s.Close()
	// Downwards and with gaps, which is harder on the table than upwards.
	for i := uint64(guestmem.MaxRegions); i > 0; i-- {
		if err := s.Map(i*2*page, page, -1, 0, rw); err != nil {
			t.Fatal(err)
		}
	}
	mustFail(t, s.Map(0, page, -1, 0, rw), unix.ENOSPC, "vm1")
	if err := s.Unmap(4*page, page); err != nil {
		t.Fatal(err)
	}
	if err := s.Map(0, page, -1, 0, rw); err != nil {
		t.Fatal(err)
	}
}

func TestAClosedSpaceRefusesEverything(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		d := f.domain()
		s := d.NewSpace("vm1")
		if err := s.MapBytes(0, make([]byte, page), rw); err != nil {
			t.Fatal(err)
		}
		p, err := s.PinContiguous([]uint64{0, 0}, rw)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		mustFail(t, s.Map(0, page, memfd(t, page), 0, rw), guestmem.ErrClosed, "vm1")
		mustFail(t, s.MapBytes(0, make([]byte, page), rw), unix.ENODEV, "vm1")
		mustFail(t, s.Read(0, make([]byte, 1)), unix.EFAULT, "vm1")
		mustFail(t, p.Write(0, make([]byte, 1)), guestmem.ErrRevoked, "vm1")
		p.Release()
		if err := s.Close(); err != nil {
			t.Fatalf("second Close: %v", err)
		}
		if st := s.Stats(); st != (guestmem.Stats{}) {
			t.Fatalf("a closed space holds %+v", st)
		}
	})
}
