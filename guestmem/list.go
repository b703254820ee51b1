// SPDX-License-Identifier: Apache-2.0

package guestmem

import "golang.org/x/sys/unix"

// A page list that is filled again and again belongs to a region of fast registration: its pages change on the data path,
// where nothing is allocated and no system call is made.

// room is the memory of such a list. The methods that take memory from it make some where there is none: for a list that
// is pinned once (a nil room), and for more regions than a guest has without a virtual IOMMU.
type room struct {
	locs []loc
	runs []run
	// regions is needed while the list is filled.
	regions [roomRegions]*region
	maps    [roomRegions]*mapping
	bases   [roomRegions]hostPtr
	nodes   [roomRegions]pinNode
}

const (
	// roomRegions is how many regions, and mappings, a list is in without an allocation: a machine's memory has two, below
	// and above the hole of 32-bit addresses.
	roomRegions = 2
	// roomBytes is the size of a room in bytes without what its two slices hold.
	roomBytes = 2*24 + roomRegions*(8+8+8+32)
)

// bytes is the memory that the room takes.
func (r *room) bytes() uint64 { return roomBytes + uint64(len(r.locs))*8 + uint64(cap(r.runs))*16 }

func (r *room) nodesFor(n int) []pinNode {
	if r == nil || n > len(r.nodes) {
		return make([]pinNode, n)
	}
	return r.nodes[:n]
}

func (r *room) basesFor(n int) []hostPtr {
	if r == nil || n > len(r.bases) {
		return make([]hostPtr, 0, n)
	}
	return r.bases[:0]
}

func (r *room) runsFor(n int) []run {
	if r == nil || n > cap(r.runs) {
		return make([]run, 0, n)
	}
	return r.runs[:0]
}

// NewList returns an empty page list: it is as one that was revoked until Fill gives it pages, at most most. Its memory is
// counted against the limits of the Space from now on until Release. EINVAL for no pages or more than MaxPinPages, ENOMEM
// beyond the limit.
func (s *Space) NewList(most int) (*Pages, error) {
	if most < 1 || most > MaxPinPages {
		return nil, s.errf("page list for %d pages (1 to %d allowed): %w", most, MaxPinPages, unix.EINVAL)
	}
	// With half as many runs as pages or more, newLayout keeps single pages.
	p := &Pages{space: s, room: &room{locs: make([]loc, most), runs: make([]run, 0, most/2)}}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.chargeList(p); err != nil {
		return nil, s.errf("page list for %d pages: %w", most, err)
	}
	return p, nil
}

// Fill is Pin into a list of NewList, in place of the pages that it had. On an error, which is one of Pin's, it has none.
// It makes no system call, and allocates nothing unless the pages lie in more regions than a machine has without a virtual
// IOMMU. The caller sees to it that no access to the list goes on meanwhile.
func (p *Pages) Fill(pages []uint64, prot Prot) error {
	s := p.space
	p.Empty()
	if p.room == nil {
		return s.errf("fill a page list that has no room: %w", unix.EINVAL)
	}
	if len(pages) == 0 || len(pages) > len(p.room.locs) {
		return s.errf("fill a list for %d pages with %d: %w", len(p.room.locs), len(pages), unix.EINVAL)
	}
	v := s.enter()
	defer v.leave()
	defer clear(p.room.regions[:])
	l := lister{space: s, tab: v.tab, prot: prot, regions: p.room.regions[:0], maps: p.room.maps[:0]}
	locs := p.room.locs[:len(pages)]
	if err := l.resolve(locs, pages); err != nil {
		return err
	}
	p.prot, p.layout = prot, newLayout(locs, l.maps, p.room)
	if p.nruns == 1 {
		p.one = p.host(locs[0])
	}
	p.limit.Store(p.length)
	if err := s.link(p, &l); err != nil {
		p.limit.Store(0)
		p.forget()
		return s.errf("fill a list with %d pages: %w", len(pages), err)
	}
	return nil
}

// Empty takes the pages out of a list of NewList, if it has any. No access to it is under way.
func (p *Pages) Empty() {
	s := p.space
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.room == nil || p.length == 0 {
		return
	}
	p.let()
	p.forget()
}

// forget takes out of the list what leads to memory.
func (p *Pages) forget() {
	p.one, p.nodes, p.layout = hostPtr{}, nil, layout{}
	clear(p.room.maps[:])
	clear(p.room.bases[:])
}
