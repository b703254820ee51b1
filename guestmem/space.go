// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Space is one guest's DMA address space.
//
// Map, MapBytes, Unmap, UnmapAll, SetEnabled, SetBarrier and Close are control calls: one at a time (they wait for
// each other), and not on the thread that the barrier waits for. Everything else may be called from any goroutine
// at any time.
type Space struct {
	dom   *Domain
	owner string

	// cur is what accesses go by: swapped under ctl, read by everybody.
	cur atomic.Pointer[version]
	// disabled is written under ctl, read by every access.
	disabled atomic.Bool
	// revocations is written under mu, read by everybody.
	revocations atomic.Uint64

	// ctl serializes the control calls; it is held over system calls and the barrier.
	ctl     sync.Mutex
	barrier func()

	// mu guards what follows and the fields that say so. It is held for list operations only, since owner threads
	// take it in Pin and Release.
	mu            sync.Mutex
	maps          map[*mapping]struct{}
	files         map[fileKey]*mapping
	mappedBytes   uint64
	pages         int
	pins          int       // uses of regions by page lists
	listBytes     uint64    // memory of page lists
	windows       int       // not yet unmapped
	retired       []*window // given back, to be unmapped
	windowsDenied uint64
	reaper        *time.Timer
	reapAt        time.Time // when the reaper runs, 0: not
	closed        bool

	// reaping is held while files and windows are unmapped.
	reaping sync.Mutex

	// What the windows take; guarded by Domain.mu.
	pieces      int
	windowBytes uint64
}

// version is one state of the translation table, with the gate that its readers pass.
type version struct {
	tab *table
	// gate is shared by the versions up to the next one that takes something away.
	gate *gate
}

// Owner returns the name the Space was made with.
func (s *Space) Owner() string { return s.owner }

// errf makes an error that names the guest.
func (s *Space) errf(format string, args ...any) error {
	return fmt.Errorf("guest %q: "+format, append([]any{s.owner}, args...)...)
}

// SetBarrier sets the function that Unmap, UnmapAll, SetEnabled(false) and Close call after they have made the
// memory unreachable. It returns when no use of Pages that began before is still going on. Without one, the caller
// of those methods sees to it.
func (s *Space) SetBarrier(f func()) {
	s.ctl.Lock()
	defer s.ctl.Unlock()
	s.barrier = f
}

// Map makes size bytes of the file fd, from offset on, the memory at guest address addr. All three are multiples of
// PageSize. fd stays the caller's and may be closed afterwards. The file is mapped once, as a whole, for all regions
// that it backs. With fd < 0 the region is known but has no memory: accesses fail with EFAULT.
//
// Errors: EINVAL for misaligned or overflowing arguments, or a range beyond the end of the file; EEXIST if the range
// overlaps a region; EACCES if prot has ProtWrite and the descriptor does not allow it; ENOSPC beyond MaxRegions;
// ENOMEM beyond the limits for files; ENODEV after Close; else what the kernel says. On an error nothing has changed.
func (s *Space) Map(addr, size uint64, fd int, offset uint64, prot Prot) error {
	s.ctl.Lock()
	defer s.ctl.Unlock()
	if err := s.mapLocked(addr, size, fd, offset, prot); err != nil {
		return s.errf("map %#x+%#x: %w", addr, size, err)
	}
	return nil
}

func (s *Space) mapLocked(addr, size uint64, fd int, offset uint64, prot Prot) error {
	if err := s.checkMap(addr, size, offset, prot); err != nil {
		return err
	}
	r := &region{addr: addr, size: size, prot: prot, off: offset}
	if fd >= 0 {
		m, err := s.mapFile(fd, offset, size, prot)
		if err != nil {
			return err
		}
		r.m = m
	}
	s.publish(r)
	return nil
}

// MapBytes is Map with heap memory instead of a file. Tests use it: the race detector sees only Go's own memory.
func (s *Space) MapBytes(addr uint64, b []byte, prot Prot) error {
	s.ctl.Lock()
	defer s.ctl.Unlock()
	size := uint64(len(b))
	if err := s.checkMap(addr, size, 0, prot); err != nil {
		return s.errf("map %#x+%#x: %w", addr, size, err)
	}
	m := &mapping{space: s, b: b, base: ptrTo(b), span: size, heap: true, canWrite: true, refs: 1}
	s.mu.Lock()
	s.maps[m] = struct{}{}
	s.mu.Unlock()
	s.publish(&region{addr: addr, size: size, prot: prot, m: m})
	return nil
}

// checkMap checks everything about a new region but its file. Called with ctl held.
func (s *Space) checkMap(addr, size, offset uint64, prot Prot) error {
	if s.isClosed() {
		return ErrClosed
	}
	if (addr|size|offset)%PageSize != 0 || size == 0 {
		return fmt.Errorf("address, size and offset %#x must be multiples of %#x and the size not 0: %w", offset, PageSize, unix.EINVAL)
	}
	if addr+(size-1) < addr || offset+(size-1) < offset {
		return errOverflow
	}
	if prot&^(ProtRead|ProtWrite) != 0 {
		return fmt.Errorf("unknown permission bits %#x: %w", prot, unix.EINVAL)
	}
	tab := s.cur.Load().tab
	if r := tab.overlap(addr, size); r != nil {
		return fmt.Errorf("overlaps the region %#x+%#x: %w", r.addr, r.size, unix.EEXIST)
	}
	if tab.n >= MaxRegions {
		return fmt.Errorf("guest has %d regions, the limit: %w", tab.n, unix.ENOSPC)
	}
	return nil
}

// publish adds a region to the table. Readers need no waiting for: nothing was taken from them.
func (s *Space) publish(r *region) {
	v := s.cur.Load()
	s.cur.Store(&version{tab: v.tab.insert(r), gate: v.gate})
}

func (s *Space) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Unmap removes the regions that lie in addr+size, of which there is at least one, and revokes the page lists that lie
// in them, wholly or in part. When it returns, nothing reaches the memory through them any more. ENOENT if there is no
// such region or if the range cuts one. A virtual IOMMU takes two megabytes back at once that it gave page by page.
func (s *Space) Unmap(addr, size uint64) error {
	s.ctl.Lock()
	defer s.ctl.Unlock()
	v := s.cur.Load()
	regions, err := v.tab.inside(addr, size)
	if err != nil {
		return s.errf("unmap %#x+%#x: %w", addr, size, err)
	}
	s.retire(v, v.tab.without(addr, addr+(size-1)), regions...)
	return nil
}

// UnmapAll removes all regions, as Unmap does, with one barrier.
func (s *Space) UnmapAll() {
	s.ctl.Lock()
	defer s.ctl.Unlock()
	s.unmapAllLocked()
}

func (s *Space) unmapAllLocked() {
	v := s.cur.Load()
	regions := make([]*region, 0, v.tab.n)
	v.tab.all(func(r *region) { regions = append(regions, r) })
	s.retire(v, &table{}, regions...)
}

// retire installs a table without some regions of v and returns when nobody reaches those.
func (s *Space) retire(v *version, tab *table, regions ...*region) {
	s.cur.Store(&version{tab: tab, gate: &gate{}})
	for _, r := range regions {
		s.revoke(r)
	}
	s.quiesce(v)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range regions {
		if r.m != nil {
			s.unref(r.m)
		}
	}
}

// quiesce waits until no access that began under v, or by a page list that is revoked or disabled now, goes on.
func (s *Space) quiesce(v *version) {
	if s.barrier != nil {
		s.barrier()
	}
	v.gate.wait()
}

// SetEnabled switches DMA on or off, as the bus master bit of the PCI command register does. While it is off every
// access, by address or through Pages, fails with ErrDisabled; regions and page lists stay. When SetEnabled(false)
// returns, no access is going on.
func (s *Space) SetEnabled(on bool) {
	s.ctl.Lock()
	defer s.ctl.Unlock()
	if s.disabled.Load() == !on {
		return
	}
	s.disabled.Store(!on)
	if on {
		return
	}
	v := s.cur.Load()
	s.cur.Store(&version{tab: v.tab, gate: &gate{}})
	s.quiesce(v)
}

// Enabled says whether DMA is on.
func (s *Space) Enabled() bool { return !s.disabled.Load() }

// Close unmaps everything and gives the address space back to the host. What page lists that are not yet released
// still hold follows with their Release. A second Close does nothing.
func (s *Space) Close() error {
	s.ctl.Lock()
	defer s.ctl.Unlock()
	s.unmapAllLocked()
	s.mu.Lock()
	s.closed = true
	if s.reaper != nil {
		s.reaper.Stop()
		s.reapAt = time.Time{}
	}
	s.mu.Unlock()
	s.reap(0)
	return nil
}

// Stats says what a Space holds, for gauges.
type Stats struct {
	Regions int    // mapped regions
	Files   int    // mapped files, idle ones included
	Bytes   uint64 // host address space they take
	Pinned  int    // pages in page lists that are not released
	Lists   uint64 // bytes of memory that these lists take

	Windows       int    // lists with a window, and windows that are about to be unmapped
	WindowsDenied uint64 // lists that were to have a window and have none, since the start: budget, or the kernel
}

// Stats returns the Space's figures. It is cheap but not for the data path.
func (s *Space) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{
		Regions: s.cur.Load().tab.n, Bytes: s.mappedBytes, Pinned: s.pages, Lists: s.listBytes,
		Windows: s.windows, WindowsDenied: s.windowsDenied,
	}
	for m := range s.maps {
		if !m.heap {
			st.Files++
		}
	}
	return st
}

// describeFault makes the error for a fault at an offset of one of the Space's mappings. One file may back several
// regions; the first in order of address is named.
func (s *Space) describeFault(m *mapping, off uint64, host uintptr) *FaultError {
	e := &FaultError{Space: s, Owner: s.owner, Offset: off, Region: "a region unmapped meanwhile", host: host}
	found := false
	s.cur.Load().tab.all(func(r *region) {
		if !found && r.m == m && off >= r.off && off-r.off < r.size {
			found = true
			e.Addr = r.addr + (off - r.off)
			e.Region = fmt.Sprintf("region %#x+%#x of file %d:%d", r.addr, r.size, m.key.dev, m.key.ino)
		}
	})
	return e
}
