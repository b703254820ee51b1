// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"fmt"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// errNoWords: a Space has no words of its own; what is to be changed atomically lies in a page list.
var errNoWords = fmt.Errorf("no page list: %w", unix.EINVAL)

// CompareAndSwap64 writes val to the word at off, which is a multiple of 8 (else EINVAL), if it holds old, and returns
// what it held. It is one step for everybody who shares the memory: the guest's processors, other threads and processes.
// A word lies in one page, so that this holds for every list.
func (p *Pages) CompareAndSwap64(off, old, val uint64) (was uint64, err error) {
	if off%8 != 0 || !p.writable(off, 8) {
		return 0, p.refuseWord(off, 8, ProtWrite)
	}
	return compareExchange64(p.at(off).p, old, val), nil
}

// FetchAdd64 adds to the word at off, which is a multiple of 8 (else EINVAL), and returns what it held; the sum wraps
// around. It is one step as CompareAndSwap64 is.
func (p *Pages) FetchAdd64(off, add uint64) (was uint64, err error) {
	if off%8 != 0 || !p.writable(off, 8) {
		return 0, p.refuseWord(off, 8, ProtWrite)
	}
	return p.at(off).add64(add) - add, nil
}

// CompareAndSwap64 is Pages.CompareAndSwap64, guarded as Copy is. EINVAL for a Space.
func CompareAndSwap64(m Memory, off, old, val uint64) (was uint64, err error) {
	p, ok := m.(*Pages)
	if !ok {
		return 0, fmt.Errorf("compare and swap in guest memory: %w", errNoWords)
	}
	defer endGuard(debug.SetPanicOnFault(true), p.space.dom, &err)
	return p.CompareAndSwap64(off, old, val)
}

// FetchAdd64 is Pages.FetchAdd64, guarded as Copy is. EINVAL for a Space.
func FetchAdd64(m Memory, off, add uint64) (was uint64, err error) {
	p, ok := m.(*Pages)
	if !ok {
		return 0, fmt.Errorf("fetch and add in guest memory: %w", errNoWords)
	}
	defer endGuard(debug.SetPanicOnFault(true), p.space.dom, &err)
	return p.FetchAdd64(off, add)
}
