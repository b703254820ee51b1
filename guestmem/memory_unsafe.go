// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hostPtr is an address of this process that holds guest bytes: in a mapping of a guest's file, or in a heap slice.
// All uses of it are bounds-checked by their caller against the length of the mapping it points into.
type hostPtr struct{ p unsafe.Pointer }

// ptrTo returns the address of the first byte of b, which must not be empty.
func ptrTo(b []byte) hostPtr {
	// SAFETY: SliceData of a non-empty slice is the address of its first element.
	return hostPtr{unsafe.Pointer(unsafe.SliceData(b))}
}

// isNil says whether there is no address.
func (h hostPtr) isNil() bool { return h.p == nil }

// addr is the address as a number, to compare with a faulting address.
func (h hostPtr) addr() uintptr { return uintptr(h.p) }

// add returns the address n bytes further on.
func (h hostPtr) add(n uint64) hostPtr {
	// SAFETY: the caller has checked that n lies inside the mapping h points into.
	return hostPtr{unsafe.Add(h.p, n)}
}

// bytes returns the n bytes at h.
func (h hostPtr) bytes(n uint64) []byte {
	// SAFETY: the caller has checked that n bytes from h on lie inside the mapping. The slice never leaves this package.
	return unsafe.Slice((*byte)(h.p), n)
}

// move copies n bytes. The ranges may overlap.
func move(dst, src hostPtr, n uint64) { copy(dst.bytes(n), src.bytes(n)) }

// reserveRange takes n bytes of address space in which nothing can be accessed.
func reserveRange(n uint64) (hostPtr, error) {
	const flags = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_NORESERVE
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(n), unix.PROT_NONE, flags)
	return hostPtr{p}, err
}

// unmap gives n bytes of address space that reserveRange took back, with what is mapped there.
func (h hostPtr) unmap(n uint64) error {
	// SAFETY: the caller owns the n bytes, and nobody looks at them any more.
	return unix.MunmapPtr(h.p, uintptr(n))
}

// mapAgain maps the n bytes at src, whole pages of a shared file mapping, at dst too, in place of what was mapped there.
// An old size of 0 makes mremap(2) leave the old mapping in place, so that no descriptor of the file is needed.
func mapAgain(dst, src hostPtr, n uint64) error {
	// SAFETY: the caller owns the n bytes of address space at dst, and nobody looks at them yet.
	_, err := unix.MremapPtr(src.p, 0, dst.p, uintptr(n), unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED)
	return err
}

func (h hostPtr) load32() uint32 {
	// SAFETY: the caller has checked bounds and alignment; mappings and their pages are aligned to more than a word.
	return atomic.LoadUint32((*uint32)(h.p))
}

func (h hostPtr) store32(v uint32) {
	// SAFETY: as in load32.
	atomic.StoreUint32((*uint32)(h.p), v)
}

func (h hostPtr) swap32(v uint32) uint32 {
	// SAFETY: as in load32.
	return atomic.SwapUint32((*uint32)(h.p), v)
}

func (h hostPtr) load64() uint64 {
	// SAFETY: as in load32, with 8 bytes.
	return atomic.LoadUint64((*uint64)(h.p))
}

func (h hostPtr) store64(v uint64) {
	// SAFETY: as in load64.
	atomic.StoreUint64((*uint64)(h.p), v)
}

func (h hostPtr) add64(v uint64) (sum uint64) {
	// SAFETY: as in load64.
	return atomic.AddUint64((*uint64)(h.p), v)
}
