// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// maxSharedPages bounds SharedPages: 64 MiB, far above any doorbell BAR.
const maxSharedPages = 16384

// SharedPages is memory of ours that a front-end maps too, such as doorbell pages. It is a memfd that is sealed
// against shrinking and growing, so it can fault for nobody, and neither side can unseal it.
//
// Offsets are chosen by the program, not by the guest: one that is out of range or misaligned panics, as an index
// of a slice does.
type SharedPages struct {
	fd int
	b  []byte
}

// NewSharedPages makes pages pages of zeroes. name appears in /proc/PID/maps. Errors: EINVAL for a bad number of
// pages, else what the kernel says.
func NewSharedPages(name string, pages int) (*SharedPages, error) {
	if pages <= 0 || pages > maxSharedPages {
		return nil, fmt.Errorf("shared memory %q of %d pages (1 to %d allowed): %w", name, pages, maxSharedPages, unix.EINVAL)
	}
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return nil, fmt.Errorf("shared memory %q: memfd_create: %w", name, err)
	}
	s := &SharedPages{fd: fd}
	if err := s.fill(int64(pages) * PageSize); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("shared memory %q of %d pages: %w", name, pages, err)
	}
	return s, nil
}

// fill sizes, seals and maps the file.
func (s *SharedPages) fill(size int64) error {
	if err := unix.Ftruncate(s.fd, size); err != nil {
		return fmt.Errorf("ftruncate: %w", err)
	}
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(s.fd), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("seal: %w", err)
	}
	b, err := unix.Mmap(s.fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	s.b = b
	return nil
}

// FD is the file, to be sent to a front-end. It stays ours.
func (s *SharedPages) FD() int { return s.fd }

// Len is the size in bytes.
func (s *SharedPages) Len() int { return len(s.b) }

// word returns the address of the 32-bit word at off.
func (s *SharedPages) word(off int) hostPtr {
	if off&3 != 0 {
		panic("guestmem: misaligned word in SharedPages")
	}
	return ptrTo(s.b[off : off+4 : off+4])
}

// Load32 reads the word at off atomically.
func (s *SharedPages) Load32(off int) uint32 { return s.word(off).load32() }

// Store32 writes the word at off atomically.
func (s *SharedPages) Store32(off int, v uint32) { s.word(off).store32(v) }

// Swap32 writes the word at off and returns what was there, atomically.
func (s *SharedPages) Swap32(off int, v uint32) uint32 { return s.word(off).swap32(v) }

// Zero clears page number page.
func (s *SharedPages) Zero(page int) {
	clear(s.b[page*PageSize : (page+1)*PageSize : (page+1)*PageSize])
}

// Close unmaps the memory, gives it back to the host and closes the file. Nobody uses it any more; a front-end that
// keeps the file, or what it has mapped of it, sees zeroes. The memory is charged to this process, so that it may not stay
// for as long as a front-end likes; what that one touches from now on is its own.
func (s *SharedPages) Close() error {
	b := s.b
	s.b = nil
	if b == nil {
		return nil
	}
	if err := unix.Munmap(b); err != nil {
		return fmt.Errorf("munmap shared memory: %w", err)
	}
	const hole = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	if err := unix.Fallocate(s.fd, hole, 0, int64(len(b))); err != nil {
		err = fmt.Errorf("give shared memory of %d bytes back: %w", len(b), err)
		return errors.Join(err, unix.Close(s.fd))
	}
	return unix.Close(s.fd)
}
