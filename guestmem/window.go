// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Windows says when a page list gets a window: an address range of its own in which its pages lie side by side. A
// window costs one of the kernel's mappings for each run of adjacent pages and microseconds to make, and a Go program
// that runs out of mappings dies.
type Windows struct {
	// Budget is the most mappings that the windows of all guests take together. 0: no windows. One guest gets at most
	// what is left for all the others.
	Budget int
	// MinPages is the length in pages from which a list gets a window.
	MinPages int
	// MaxRun is the mean length of the runs, in pages, up to which a list gets a window. Longer runs are copied as fast
	// without one.
	MaxRun int
}

const (
	// windowMinPages is 1 MiB. Smaller lists stay in the processor's caches while they are used much, where a list of
	// single pages is copied at four fifths of the speed of adjacent memory and more; the window would pay after
	// hundreds of passes over it.
	windowMinPages = 256
	// windowMaxRun is 256 KiB, the most that the engine copies at once.
	windowMaxRun = 64
	// maxWindowBudget bounds the table of windows that is copied whenever one is made, whatever vm.max_map_count says.
	maxWindowBudget = 1 << 18
)

// DefaultWindows spends half of the mappings that the kernel allows this process.
func DefaultWindows() Windows {
	return Windows{Budget: min(maxMapCount()/2, maxWindowBudget), MinPages: windowMinPages, MaxRun: windowMaxRun}
}

// window is a page list mapped once more, its runs side by side.
type window struct {
	space  *Space
	base   hostPtr
	span   uint64 // bytes
	pieces int    // mappings it is charged for
	list   layout
}

// PinContiguous is Pin for lists through which much is moved: where it pays, and the budget allows, the list gets a
// window. Pages.Scattered says why it has none. It makes system calls.
func (s *Space) PinContiguous(pages []uint64, prot Prot) (*Pages, error) {
	p, err := s.Pin(pages, prot)
	if err != nil {
		return nil, err
	}
	if p.nruns > 1 {
		p.openWindow()
	}
	return p, nil
}

// openWindow gives a new list a window, or notes why it gets none. The list holds references on its mappings, so they
// stay; if a region of it is unmapped meanwhile, the list is revoked and nobody looks through the window.
func (p *Pages) openWindow() {
	s := p.space
	if p.scattered = p.wantsWindow(); p.scattered != nil {
		return
	}
	w := &window{space: s, span: p.length, pieces: p.nruns, list: p.layout}
	if err := s.roomForWindow(w); err != nil {
		p.deny(err)
		return
	}
	if err := w.build(); err != nil {
		s.dom.unreserveWindow(w)
		p.deny(err)
		return
	}
	s.dom.add(extent{base: w.base.addr(), size: w.span, w: w})
	s.mu.Lock()
	s.windows++
	s.mu.Unlock()
	p.win, p.one = w, w.base
}

// deny notes and counts that a list remains without the window that it should have.
func (p *Pages) deny(why error) {
	p.scattered = why
	p.space.mu.Lock()
	defer p.space.mu.Unlock()
	p.space.windowsDenied++
}

// wantsWindow says whether a window is possible and pays. A nil error is yes.
func (p *Pages) wantsWindow() error {
	w, n := p.space.dom.windows, int(p.length/PageSize)
	switch {
	case n < w.MinPages:
		return fmt.Errorf("%d pages, windows are for %d and more: %w", n, w.MinPages, ErrScattered)
	case p.nruns*w.MaxRun < n:
		return fmt.Errorf("runs of %d pages on average, windows are for %d and less: %w", n/p.nruns, w.MaxRun, ErrScattered)
	}
	for _, m := range p.maps {
		if m.heap || m.huge {
			return fmt.Errorf("memory is not made of pages of %d bytes: %w", PageSize, ErrScattered)
		}
	}
	return nil
}

// roomForWindow reserves what a window takes. Windows that were given back but are not yet unmapped give way.
func (s *Space) roomForWindow(w *window) error {
	err := s.dom.reserveWindow(w)
	if err != nil {
		s.reap(idleKeep)
		err = s.dom.reserveWindow(w)
	}
	return err
}

// build reserves an address range and maps the list's runs into it. On an error nothing is left.
func (w *window) build() error {
	base, err := reserveRange(w.span)
	if err != nil {
		return fmt.Errorf("window: reserve %#x bytes: %w", w.span, err)
	}
	w.base = base
	err = w.list.eachRun(func(off uint64, host hostPtr, n uint64) error {
		if err := mapAgain(base.add(off), host, n); err != nil {
			return fmt.Errorf("window: map %#x bytes at %#x of %#x: %w", n, off, w.span, err)
		}
		return nil
	})
	if err != nil {
		w.unmap()
		return err
	}
	w.inSteps(func(at hostPtr, n uint64) {
		// Faults are taken here and not on the data path. Pages that are not there fault later, and an old kernel does
		// not know the call: no reason to fail.
		_ = unix.Madvise(at.bytes(n), unix.MADV_POPULATE_READ)
	})
	return nil
}

// unmap gives the address range back.
func (w *window) unmap() {
	w.inSteps(func(at hostPtr, n uint64) {
		if err := at.unmap(n); err != nil {
			// The kernel refuses only ranges that are not ours: going on would corrupt other guests.
			panic(fmt.Sprintf("guestmem: munmap %#x bytes of a window of guest %q: %v", n, w.space.owner, err))
		}
	})
}

// windowStep is the most bytes of a window in one system call. The kernel holds the lock of all mappings of the process
// meanwhile, which others want for their page faults: 256 single pages take a third of a millisecond.
const windowStep = 256 * PageSize

// inSteps calls f for all parts of the window.
func (w *window) inSteps(f func(at hostPtr, n uint64)) {
	for off := uint64(0); off < w.span; off += windowStep {
		f(w.base.add(off), min(windowStep, w.span-off))
	}
}

// Scattered says why the list is not one piece of this process's address space. It returns nil if it is, because its
// pages are adjacent or because it has a window. It wraps ErrScattered if the list was not meant to have a window,
// ErrMapCount if the budget denied it; else it is what the kernel said.
func (p *Pages) Scattered() error {
	if p.nruns > 1 && p.win == nil && p.scattered == nil {
		return ErrScattered
	}
	return p.scattered
}
