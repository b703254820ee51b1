// SPDX-License-Identifier: Apache-2.0

package ram

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Buffer is memory of a guest program: pages that lie side by side for the program, wherever they are in the guest.
type Buffer struct {
	ram   *RAM
	mem   []byte
	pages []uint64
}

// Buffer allocates a zeroed buffer of at least n bytes in whole pages.
func (r *RAM) Buffer(n int) (*Buffer, error) {
	count := max(1, (n+PageSize-1)/PageSize)
	pages, err := r.Pages(count)
	if err != nil {
		return nil, err
	}
	b := &Buffer{ram: r, pages: pages}
	if err := b.join(); err != nil {
		r.Free(pages...)
		return nil, fmt.Errorf("join %d guest pages: %w", count, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.buffers[b] = true
	return b, nil
}

// join maps the buffer's pages side by side.
func (b *Buffer) join() error {
	size := uintptr(len(b.pages) * PageSize)
	base, err := unix.MmapPtr(-1, 0, nil, size, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	for i := 0; i < len(b.pages); {
		n := 1
		for i+n < len(b.pages) && b.pages[i+n] == b.pages[i]+uint64(n)*PageSize {
			n++
		}
		off, err := b.ram.offset(b.pages[i], n*PageSize)
		if err == nil {
			// SAFETY: base+i pages lies in the reservation of len(b.pages) pages above, which nobody else knows yet.
			_, err = unix.MmapPtr(b.ram.fd, int64(off), unsafe.Add(base, i*PageSize), uintptr(n*PageSize),
				unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED)
		}
		if err != nil {
			return errors.Join(err, unix.MunmapPtr(base, size))
		}
		i += n
	}
	// SAFETY: the reservation is size bytes long and stays mapped until Free.
	b.mem = unsafe.Slice((*byte)(base), size)
	return nil
}

// Addr is the buffer's virtual address in the guest program, which is the one in this process.
func (b *Buffer) Addr() uint64 {
	// SAFETY: only the number is used.
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b.mem))))
}

// Bytes is the buffer's memory, not a copy.
func (b *Buffer) Bytes() []byte { return b.mem }

// Pages are the guest addresses of the buffer's pages, in the program's order.
func (b *Buffer) Pages() []uint64 { return b.pages }

// Phys is the guest address of the byte at an offset.
func (b *Buffer) Phys(off int) uint64 { return b.pages[off/PageSize] + uint64(off%PageSize) }

// Free unmaps the buffer and gives its pages back.
func (b *Buffer) Free() error {
	b.ram.mu.Lock()
	delete(b.ram.buffers, b)
	b.ram.mu.Unlock()
	err := b.unmap()
	b.ram.Free(b.pages...)
	b.pages = nil
	return err
}

func (b *Buffer) unmap() error {
	// SAFETY: the mapping was made by join with this length; the buffer's bytes are not used afterwards.
	err := unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(b.mem)), uintptr(len(b.mem)))
	b.mem = nil
	return err
}

// Load32 reads the aligned 32-bit word at an offset in one access, and what is read after it is newer.
func Load32(b []byte, off int) uint32 { return atomic.LoadUint32(word32(b, off)) }

// Store32 writes the aligned 32-bit word at an offset in one access, after all that was written before.
func Store32(b []byte, off int, v uint32) { atomic.StoreUint32(word32(b, off), v) }

// Add64 adds to the aligned 64-bit word at an offset as a guest's processor does that locks it, and returns the sum.
func Add64(b []byte, off int, v uint64) uint64 { return atomic.AddUint64(word64(b, off), v) }

// CompareAndSwap64 is Add64's counterpart: it says whether the word was old and is val now.
func CompareAndSwap64(b []byte, off int, old, val uint64) bool {
	return atomic.CompareAndSwapUint64(word64(b, off), old, val)
}

// Load64 and Store64 are Load32 and Store32 for an aligned 64-bit word.
func Load64(b []byte, off int) uint64 { return atomic.LoadUint64(word64(b, off)) }

// Store64 writes the word.
func Store64(b []byte, off int, v uint64) { atomic.StoreUint64(word64(b, off), v) }

func word64(b []byte, off int) *uint64 {
	_ = word32(b[:off+8], off+4) // what is checked there
	if uintptr(unsafe.Pointer(&b[off]))%8 != 0 {
		panic(fmt.Sprintf("the word at offset %d is not aligned", off))
	}
	// SAFETY: the word lies in b and is aligned by the checks above.
	return (*uint64)(unsafe.Pointer(&b[off]))
}

func word32(b []byte, off int) *uint32 {
	if off%4 != 0 || off+4 > len(b) {
		panic(fmt.Sprintf("no aligned word at offset %d of %d bytes", off, len(b)))
	}
	// SAFETY: the word lies in b by the check above and is aligned, because every b of a guest begins at a page or at an
	// aligned offset of one.
	return (*uint32)(unsafe.Pointer(&b[off]))
}
