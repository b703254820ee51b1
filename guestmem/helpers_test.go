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
	dom *domain
	fd  int
	ram []byte // the same file, mapped by the test as the guest sees it
}

func newGuest(t testing.TB, d *domain, name string, size int64) *guest {
	t.Helper()
	g := &guest{Space: d.NewSpace(name), dom: d, fd: memfd(t, size)}
	if err := g.Map(0, uint64(size), g.fd, 0, rw); err != nil {
		t.Fatal(err)
	}
	g.ram = mapped(t, g.fd, int(size))
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// mapped returns the bytes of a file as the guest sees them.
func mapped(t testing.TB, fd, size int) []byte {
	t.Helper()
	b, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		t.Fatalf("mmap: %v", err)
	}
	t.Cleanup(func() { unix.Munmap(b) })
	return b
}

// pin pins for reading and writing, or fails the test.
func (g *guest) pin(t testing.TB, pages []uint64) *guestmem.Pages {
	t.Helper()
	return g.dom.pin(t, g.Space, pages, rw)
}

// sequence is a list of n adjacent pages at base.
func sequence(base uint64, n int) []uint64 {
	pages := make([]uint64, n)
	for i := range pages {
		pages[i] = base + uint64(i)*guestmem.PageSize
	}
	return pages
}
