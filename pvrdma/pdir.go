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
	if err := d.mayPin(n); err != nil {
		return nil, err
	}
	return pinDirectory(d.mem, pdir, n, prot, how)
}

// mayPin says whether the guest may register n pages more.
func (d *Device) mayPin(n uint32) error {
	if d.pinned+uint64(n) > maxPinnedPages {
		return fmt.Errorf("pin %d pages, %d are registered and the limit is %d: %w", n, d.pinned, maxPinnedPages,
			unix.ENOMEM)
	}
	return nil
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
	tables, pages, buf := make([]uint64, abi.PDirTables(n)), make([]uint64, n), make([]byte, abi.PageSize)
	if err := readEntries(mem, pdir, tables, buf); err != nil {
		return nil, fmt.Errorf("page directory at %#x: %w", pdir, err)
	}
	rest := pages
	for _, t := range tables {
		some := rest[:min(len(rest), abi.PDirEntries)]
		if err := readEntries(mem, t, some, buf); err != nil {
			return nil, fmt.Errorf("page table at %#x: %w", t, err)
		}
		rest = rest[len(some):]
	}
	p, err := how(mem, pages, prot)
	if err != nil {
		return nil, fmt.Errorf("pages of directory at %#x: %w", pdir, err)
	}
	return p, nil
}

// readEntries reads the first entries of a directory or table page, by way of buf, which has room for them.
func readEntries(mem *guestmem.Space, addr uint64, entries []uint64, buf []byte) error {
	if addr == 0 || addr%abi.PageSize != 0 {
		return fmt.Errorf("address %#x is not that of a page: %w", addr, unix.EINVAL)
	}
	if err := mem.Read(addr, buf[:len(entries)*abi.PDirEntSize]); err != nil {
		return err
	}
	for i := range entries {
		e := binary.LittleEndian.Uint64(buf[i*abi.PDirEntSize:])
		if e == 0 || e%abi.PageSize != 0 {
			return fmt.Errorf("entry %d is %#x, not the address of a page: %w", i, e, unix.EINVAL)
		}
		entries[i] = e
	}
	return nil
}
