// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"encoding/binary"
	"fmt"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// pinDirectory reads the page directory at guest address pdir, which names n pages, and pins them: the ring pages of
// an object.
func (d *Device) pinDirectory(pdir uint64, n uint32, prot guestmem.Prot) (*guestmem.Pages, error) {
	return d.pin(pdir, n, prot, (*guestmem.Space).Pin)
}

// pinRegion is pinDirectory for a memory region, through which long messages move: large ones get a window.
func (d *Device) pinRegion(pdir uint64, n uint32, prot guestmem.Prot) (*guestmem.Pages, error) {
	return d.pin(pdir, n, prot, (*guestmem.Space).PinContiguous)
}

// pinFunc is a method of guestmem.Space that pins pages.
type pinFunc func(s *guestmem.Space, pages []uint64, prot guestmem.Prot) (*guestmem.Pages, error)

func (d *Device) pin(pdir uint64, n uint32, prot guestmem.Prot, how pinFunc) (*guestmem.Pages, error) {
	if d.pinned+uint64(n) > maxPinnedPages {
		return nil, fmt.Errorf("pin %d pages, %d are registered and the limit is %d: %w", n, d.pinned, maxPinnedPages,
			unix.ENOMEM)
	}
	return pinDirectory(d.mem, pdir, n, prot, how)
}

// PinDirectory resolves a page directory of pvrdma (pvrdma_page_dir in pvrdma.h: two levels of 512 entries, without
// flags). Every entry is read once; the directory is never looked at again. A zero or misaligned entry is EINVAL, one
// that is not guest memory EFAULT.
func PinDirectory(mem *guestmem.Space, pdir uint64, n uint32, prot guestmem.Prot) (*guestmem.Pages, error) {
	return pinDirectory(mem, pdir, n, prot, (*guestmem.Space).Pin)
}

func pinDirectory(mem *guestmem.Space, pdir uint64, n uint32, prot guestmem.Prot, how pinFunc) (*guestmem.Pages, error) {
	if n == 0 || n > abi.MaxPages {
		return nil, fmt.Errorf("page directory of %d pages, want 1 to %d: %w", n, abi.MaxPages, unix.EINVAL)
	}
	tables, err := readEntries(mem, pdir, abi.PDirTables(n))
	if err != nil {
		return nil, fmt.Errorf("page directory at %#x: %w", pdir, err)
	}
	pages := make([]uint64, 0, n)
	for _, t := range tables {
		entries, err := readEntries(mem, t, min(n-uint32(len(pages)), abi.PDirEntries))
		if err != nil {
			return nil, fmt.Errorf("page table at %#x: %w", t, err)
		}
		pages = append(pages, entries...)
	}
	p, err := how(mem, pages, prot)
	if err != nil {
		return nil, fmt.Errorf("pages of directory at %#x: %w", pdir, err)
	}
	return p, nil
}

// readEntries reads the first n entries of a directory or table page.
func readEntries(mem *guestmem.Space, addr uint64, n uint32) ([]uint64, error) {
	if addr == 0 || addr%abi.PageSize != 0 {
		return nil, fmt.Errorf("address %#x is not that of a page: %w", addr, unix.EINVAL)
	}
	buf := make([]byte, n*abi.PDirEntSize)
	if err := mem.Read(addr, buf); err != nil {
		return nil, err
	}
	entries := make([]uint64, n)
	for i := range entries {
		e := binary.LittleEndian.Uint64(buf[i*abi.PDirEntSize:])
		if e == 0 || e%abi.PageSize != 0 {
			return nil, fmt.Errorf("entry %d is %#x, not the address of a page: %w", i, e, unix.EINVAL)
		}
		entries[i] = e
	}
	return entries, nil
}
