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
	mu    sync.Mutex
	files int    // mapped by all Spaces; guarded by mu
	bytes uint64 // their sizes together; guarded by mu

	// index is sorted by host address and immutable; written under mu, read by fault handling.
	index atomic.Pointer[[]*mapping]
}

// NewDomain returns an empty Domain.
func NewDomain() *Domain {
	d := &Domain{}
	d.index.Store(new([]*mapping))
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
			if m := d.mappingAt(e.Addr()); m != nil {
				return m.space.describeFault(m, e.Addr())
			}
		}
	}
	panic(r)
}

// mappingAt returns the mapping that contains a host address, or nil.
func (d *Domain) mappingAt(addr uintptr) *mapping {
	ix := *d.index.Load()
	i, found := slices.BinarySearchFunc(ix, addr, func(m *mapping, a uintptr) int { return cmp.Compare(m.base.addr(), a) })
	if !found {
		i--
	}
	if i < 0 || addr-ix[i].base.addr() >= uintptr(ix[i].span) {
		return nil
	}
	return ix[i]
}

// reserve counts n bytes of address space against the limits of the Domain before a file is mapped.
func (d *Domain) reserve(n uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.files >= maxDomainFiles {
		return fmt.Errorf("all guests together have %d files mapped: %w", d.files, unix.ENOMEM)
	}
	if n > maxDomainBytes-d.bytes {
		return fmt.Errorf("all guests together have %#x bytes mapped: %w", d.bytes, unix.ENOMEM)
	}
	d.files++
	d.bytes += n
	return nil
}

// unreserve gives back what reserve took for a mapping that failed.
func (d *Domain) unreserve(n uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files--
	d.bytes -= n
}

// add puts a reserved mapping into the index.
func (d *Domain) add(m *mapping) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := *d.index.Load()
	i, _ := slices.BinarySearchFunc(old, m.base.addr(), func(m *mapping, a uintptr) int { return cmp.Compare(m.base.addr(), a) })
	ix := slices.Insert(slices.Clone(old), i, m)
	d.index.Store(&ix)
}

// remove takes a mapping out of the index, before its address range is given back to the kernel.
func (d *Domain) remove(m *mapping) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files--
	d.bytes -= m.span
	old := *d.index.Load()
	ix := make([]*mapping, 0, len(old))
	for _, o := range old {
		if o != m {
			ix = append(ix, o)
		}
	}
	d.index.Store(&ix)
}
