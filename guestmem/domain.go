// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Domain holds all guests whose memory this process serves. It maps a faulting host address to the guest that owns
// it. Its lock is taken when a file is mapped or unmapped, never by an access.
type Domain struct {
	windows  Windows
	maxFiles int // mappings of files of all Spaces

	mu     sync.Mutex
	files  int    // mapped by all Spaces; guarded by mu
	bytes  uint64 // address space of files and windows; guarded by mu
	pieces int    // mappings that the windows of all Spaces take; guarded by mu

	// index is sorted by host address and immutable; written under mu, read by fault handling.
	index atomic.Pointer[[]extent]
}

// extent is an address range of this process that holds guest bytes: a mapping, or a window on several.
type extent struct {
	base uintptr
	size uint64
	m    *mapping
	w    *window // nil: m
}

// NewDomain returns an empty Domain with DefaultWindows.
func NewDomain() *Domain { return NewDomainWith(DefaultWindows()) }

// NewDomainWith returns an empty Domain that makes windows as w says.
func NewDomainWith(w Windows) *Domain {
	d := &Domain{windows: w, maxFiles: min(maxMapCount()/filesShare, maxDomainFiles)}
	d.index.Store(new([]extent))
	return d
}

// NewSpace returns an empty, enabled address space for the guest that owner names in errors.
func (d *Domain) NewSpace(owner string) *Space {
	s := &Space{
		dom:   d,
		owner: owner,
		maps:  make(map[*mapping]struct{}),
		files: make(map[fileKey]*mapping),
	}
	s.cur.Store(&version{tab: &table{}, gate: &gate{}})
	return s
}

// PrepareGoroutine makes memory faults of the calling goroutine panics, so that Domain.Recover can take them. A
// goroutine that uses the methods of Pages calls it once; without it a fault ends the process.
func PrepareGoroutine() { debug.SetPanicOnFault(true) }

// Recover turns a fault at guest memory into a *FaultError in *errp. It must be deferred directly:
//
//	defer d.Recover(&err)
//
// Any other panic goes on. One guard serves any number of accesses.
func (d *Domain) Recover(errp *error) {
	if r := recover(); r != nil {
		*errp = faultOf(r, d, d)
	}
}

// endGuard is Recover for functions that armed the goroutine themselves: armed is what it was before.
func endGuard(armed bool, d *Domain, errp *error) {
	r := recover()
	if !armed {
		debug.SetPanicOnFault(false)
	}
	if r != nil {
		*errp = faultOf(r, d, d)
	}
}

// faultOf returns the error for the recovered value r if it is a fault at memory of one of two Domains. Any other
// panic goes on.
func faultOf(r any, d1, d2 *Domain) *FaultError {
	if e, ok := r.(interface {
		runtime.Error
		Addr() uintptr
	}); ok {
		for _, d := range [...]*Domain{d1, d2} {
			if m, off := d.find(e.Addr()); m != nil {
				return m.space.describeFault(m, off, e.Addr())
			}
		}
	}
	panic(r)
}

// find returns the mapping that holds the guest byte at a host address, directly or seen through a window, and the
// byte's offset in it. nil: there is none.
func (d *Domain) find(addr uintptr) (*mapping, uint64) {
	ix := *d.index.Load()
	i, found := slices.BinarySearchFunc(ix, addr, extent.compare)
	if !found {
		i--
	}
	if i < 0 || uint64(addr-ix[i].base) >= ix[i].size {
		return nil, 0
	}
	off := uint64(addr - ix[i].base)
	if w := ix[i].w; w != nil {
		return w.list.find(off)
	}
	return ix[i].m, off
}

func (e extent) compare(addr uintptr) int { return cmp.Compare(e.base, addr) }

// reserve counts n bytes of address space against the limits of the Domain before a file is mapped.
func (d *Domain) reserve(n uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.files >= d.maxFiles {
		return fmt.Errorf("all guests together have %d files mapped: %w", d.files, ErrMapCount)
	}
	if n > maxDomainBytes-d.bytes {
		return fmt.Errorf("all guests together have %#x bytes mapped: %w", d.bytes, unix.ENOMEM)
	}
	d.files++
	d.bytes += n
	return nil
}

// unreserve gives back what reserve took for a mapping that is not there.
func (d *Domain) unreserve(n uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files--
	d.bytes -= n
}

// reserveWindow counts a window's mappings and address space against the limits of the Domain and of its guest. A guest
// gets no more mappings than it leaves: so one that takes all it can leaves half of them to the others, a second one a
// quarter, and whoever comes last still gets some.
func (d *Domain) reserveWindow(w *window) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := w.space
	if left := d.windows.Budget - d.pieces - w.pieces; s.pieces+w.pieces > left {
		return fmt.Errorf("window of %d mappings, beside %d of this guest's and %d of all, which have %d: %w", w.pieces,
			s.pieces, d.pieces, d.windows.Budget, ErrMapCount)
	}
	if w.span > maxDomainBytes-d.bytes || w.span > maxWindowBytes-s.windowBytes {
		return fmt.Errorf("window of %#x bytes, beside %#x of this guest's: %w", w.span, s.windowBytes, unix.ENOMEM)
	}
	d.bytes += w.span
	d.pieces += w.pieces
	s.windowBytes += w.span
	s.pieces += w.pieces
	return nil
}

// unreserveWindow gives back what reserveWindow took for a window that is not there.
func (d *Domain) unreserveWindow(w *window) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bytes -= w.span
	d.pieces -= w.pieces
	w.space.windowBytes -= w.span
	w.space.pieces -= w.pieces
}

// add puts an extent into the index.
func (d *Domain) add(e extent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := *d.index.Load()
	i, _ := slices.BinarySearchFunc(old, e.base, extent.compare)
	ix := make([]extent, 0, len(old)+1)
	ix = append(append(append(ix, old[:i]...), e), old[i:]...)
	d.index.Store(&ix)
}

// remove takes the extents at some host addresses out of the index, before their address ranges are given back to the
// kernel.
func (d *Domain) remove(gone map[uintptr]struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := *d.index.Load()
	ix := make([]extent, 0, len(old))
	for _, e := range old {
		if _, ok := gone[e.base]; !ok {
			ix = append(ix, e)
		}
	}
	d.index.Store(&ix)
}
