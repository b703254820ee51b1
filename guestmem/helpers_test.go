// SPDX-License-Identifier: Apache-2.0

package guestmem_test

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"golang.org/x/sys/unix"
)

const rw = guestmem.ProtRead | guestmem.ProtWrite

// memfd makes a file of size bytes as QEMU's memory-backend-memfd does.
func memfd(t testing.TB, size int64) int {
	t.Helper()
	fd, err := unix.MemfdCreate("guest-ram", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatalf("memfd_create: %v", err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatalf("ftruncate: %v", err)
	}
	return fd
}

// guest is a Space whose memory is one file at guest address 0.
type guest struct {
	*guestmem.Space
	fd  int
	ram []byte // the same file, mapped by the test as the guest sees it
}

func newGuest(t testing.TB, d *guestmem.Domain, name string, size int64) *guest {
	t.Helper()
	g := &guest{Space: d.NewSpace(name), fd: memfd(t, size)}
	if err := g.Map(0, uint64(size), g.fd, 0, rw); err != nil {
		t.Fatal(err)
	}
	ram, err := unix.Mmap(g.fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		t.Fatalf("mmap: %v", err)
	}
	g.ram = ram
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		unix.Munmap(ram)
	})
	return g
}

// pin pins for reading and writing, or fails the test.
func (g *guest) pin(t testing.TB, pages []uint64) *guestmem.Pages {
	t.Helper()
	p, err := g.Pin(pages, rw)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Release)
	return p
}

// sequence is a list of n adjacent pages at base.
func sequence(base uint64, n int) []uint64 {
	pages := make([]uint64, n)
	for i := range pages {
		pages[i] = base + uint64(i)*guestmem.PageSize
	}
	return pages
}
