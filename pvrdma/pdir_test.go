// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"slices"
	"testing"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// mapped returns guest memory and an address space in which it is mapped.
func mapped(t *testing.T) (*memory, *guestmem.Space) {
	t.Helper()
	m := newMemory(t)
	s := guestmem.NewDomain().NewSpace("vm1")
	if err := s.MapBytes(guestBase, m.bytes, rw); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return m, s
}

func TestAPageDirectoryNamesItsPagesInOrder(t *testing.T) {
	for _, n := range []int{1, 2, 511, 512, 513, 700} {
		m, s := mapped(t)
		list := m.pages(n)
		for i, p := range list {
			m.store32(p, uint32(i))
		}
		pages, err := PinDirectory(s, m.directory(list), uint32(n), rw)
		if err != nil {
			t.Fatalf("%d pages: %v", n, err)
		}
		if pages.Len() != uint64(n)*abi.PageSize {
			t.Errorf("%d pages are %d bytes", n, pages.Len())
		}
		for i := range n {
			if got, err := pages.Load32(uint64(i) * abi.PageSize); err != nil || got != uint32(i) {
				t.Errorf("page %d of %d is that of %d, %v", i, n, got, err)
			}
		}
		pages.Release()
	}
}

func TestAPageOccursTwiceInADirectory(t *testing.T) {
	m, s := mapped(t)
	p := m.page()
	pages, err := PinDirectory(s, m.directory([]uint64{p, p}), 2, rw)
	if err != nil {
		t.Fatal(err)
	}
	defer pages.Release()
	if err := pages.Store32(abi.PageSize, 7); err != nil || m.load32(p) != 7 {
		t.Errorf("the second occurrence is not the same page: %v", err)
	}
}

func TestADirectoryThatLiesIsRefused(t *testing.T) {
	const beyond = guestBase + guestPages*abi.PageSize // the first address that is no memory
	cases := []struct {
		name  string
		n     uint32
		spoil func(m *memory, pdir *uint64)
		want  unix.Errno
	}{
		{"no pages", 0, nil, unix.EINVAL},
		{"more pages than two levels hold", abi.MaxPages + 1, nil, unix.EINVAL},
		{"as many pages as 32 bits count", 0xffffffff, nil, unix.EINVAL},
		{"directory at 0", 3, func(_ *memory, p *uint64) { *p = 0 }, unix.EINVAL},
		{"directory misaligned", 3, func(_ *memory, p *uint64) { *p += 8 }, unix.EINVAL},
		{"directory in a hole", 3, func(_ *memory, p *uint64) { *p = 0x1000 }, unix.EFAULT},
		{"directory beyond the memory", 3, func(_ *memory, p *uint64) { *p = beyond }, unix.EFAULT},
		{"directory at the top", 3, func(_ *memory, p *uint64) { *p = 0xffff_ffff_ffff_f000 }, unix.EFAULT},
		{"table is 0", 3, func(m *memory, p *uint64) { m.write64(*p, 0) }, unix.EINVAL},
		{"table misaligned", 3, func(m *memory, p *uint64) { m.write64(*p, guestBase+1) }, unix.EINVAL},
		{"table in a hole", 3, func(m *memory, p *uint64) { m.write64(*p, 0x2000) }, unix.EFAULT},
		{"second table is 0", 513, func(m *memory, p *uint64) { m.write64(*p+8, 0) }, unix.EINVAL},
		{"first page is 0", 3, func(m *memory, p *uint64) { m.write64(tableOf(m, *p), 0) }, unix.EINVAL},
		{"last page is 0", 3, func(m *memory, p *uint64) { m.write64(tableOf(m, *p)+16, 0) }, unix.EINVAL},
		{"page misaligned", 3, func(m *memory, p *uint64) { m.write64(tableOf(m, *p)+8, guestBase+4) }, unix.EINVAL},
		{"page in a hole", 3, func(m *memory, p *uint64) { m.write64(tableOf(m, *p)+8, 0x3000) }, unix.EFAULT},
		{"page beyond the memory", 3, func(m *memory, p *uint64) { m.write64(tableOf(m, *p)+8, beyond) }, unix.EFAULT},
		{"more pages than it names", 4, nil, unix.EINVAL},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m, s := mapped(t)
			pdir := m.directory(m.pages(3))
			if c.n > 512 && c.n < 1024 {
				pdir = m.directory(m.pages(int(c.n)))
			}
			if c.spoil != nil {
				c.spoil(m, &pdir)
			}
			pages, err := PinDirectory(s, pdir, c.n, rw)
			wantErrno(t, err, c.want)
			if pages != nil || s.Stats().Pinned != 0 {
				t.Errorf("pages %v and %d pinned pages after a refusal", pages, s.Stats().Pinned)
			}
		})
	}
}

// tableOf returns the address of a directory's first table.
func tableOf(m *memory, pdir uint64) uint64 {
	var a uint64
	for _, b := range slices.Backward(m.read(pdir, 8)) {
		a = a<<8 | uint64(b)
	}
	return a
}

func TestReadOnlyMemoryIsNotPinnedForWriting(t *testing.T) {
	m, s := mapped(t)
	rom := make([]byte, abi.PageSize)
	if err := s.MapBytes(0x8000_0000, rom, guestmem.ProtRead); err != nil {
		t.Fatal(err)
	}
	pdir := m.directory([]uint64{m.page(), 0x8000_0000})
	_, err := PinDirectory(s, pdir, 2, rw)
	wantErrno(t, err, unix.EFAULT)
	pages, err := PinDirectory(s, pdir, 2, guestmem.ProtRead)
	if err != nil {
		t.Fatal(err)
	}
	pages.Release()
}

func TestAGuestHasALimitOfPinnedPages(t *testing.T) {
	g := newRig(t).newGuest()
	pd := g.createPD(0)
	g.dev.pinned = maxPinnedPages - 1 // instead of 64 GiB of memory
	g.refused(g.userMR(pd, 2), unix.ENOMEM)
	mr := g.createMR(pd, 1)
	g.refused(g.userMR(pd, 1), unix.ENOMEM)
	g.must(&abi.CmdDestroyMRReq{Hdr: hdr(abi.CmdDestroyMR), MRHandle: mr.MRHandle}, nil)
	if g.dev.pinned != maxPinnedPages-1 {
		t.Errorf("%d pages are counted after the region is gone, want %d", g.dev.pinned, maxPinnedPages-1)
	}
}
