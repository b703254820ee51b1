// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"fmt"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Pages is a list of guest pages that was resolved once, addressed by offset from its first byte.
//
// Its methods run on the thread that the Space's barrier waits for. They are not guarded: a memory fault in them is
// a panic for Domain.Recover. They allocate only to report an error. Offsets are in bytes.
type Pages struct {
	// limit is the length in bytes until the list is revoked or released, then 0. Written under Space.mu, read by
	// every access: its bounds check is the check for revocation too.
	limit atomic.Uint64
	space *Space
	prot  Prot

	// one is the host address of the first byte if all follow it there: the pages are adjacent, or the list has a
	// window. Else nil, and the layout is looked at. Fixed before the list is handed out, as all but limit is, unless the
	// list has room: then Fill and Empty write it.
	one hostPtr
	layout

	win       *window
	scattered error // why there is no window
	room      *room // of a list that is filled again and again

	// For the Space's bookkeeping; guarded by Space.mu.
	nodes    []pinNode
	released bool
}

// pinNode ties a page list to one region that it uses, in the region's list.
type pinNode struct {
	p          *Pages
	r          *region // nil once unlinked
	prev, next *pinNode
}

// Pin resolves a list of page-aligned guest addresses for accesses that prot allows. A page may occur more than once.
// The list stays valid until a region it uses is unmapped; Release gives it back.
//
// Errors: EINVAL for no pages or more than MaxPinPages; EFAULT for an address that is misaligned, not mapped, without
// memory, or that does not allow prot.
func (s *Space) Pin(pages []uint64, prot Prot) (*Pages, error) {
	if len(pages) == 0 || len(pages) > MaxPinPages {
		return nil, s.errf("pin %d pages (1 to %d allowed): %w", len(pages), MaxPinPages, unix.EINVAL)
	}
	v := s.enter()
	defer v.leave()
	l := lister{space: s, tab: v.tab, prot: prot}
	locs := make([]loc, len(pages))
	if err := l.resolve(locs, pages); err != nil {
		return nil, err
	}
	p := &Pages{space: s, prot: prot, layout: newLayout(locs, l.maps, nil)}
	p.limit.Store(p.length)
	if p.nruns == 1 {
		p.one = p.host(locs[0])
	}
	if err := s.link(p, &l); err != nil {
		return nil, s.errf("pin %d pages: %w", len(pages), err)
	}
	return p, nil
}

// lister resolves a page list. It remembers the regions and mappings met.
type lister struct {
	space *Space
	tab   *table
	prot  Prot

	regions []*region
	maps    []*mapping
	// known maps a region to its mapping's number once there are too many regions to look through.
	known map[*region]int
}

// resolve translates every page into its place in locs.
func (l *lister) resolve(locs []loc, pages []uint64) error {
	var r *region
	var base loc
	for i, a := range pages {
		if a%PageSize != 0 {
			return l.space.errf("pin page %d of %d at %#x: %w", i, len(pages), a, errUnaligned)
		}
		if r == nil || a-r.addr >= r.size {
			r = l.tab.find(a)
			if err := usable(r, l.prot); err != nil {
				return l.space.errf("pin page %d of %d at %#x: %w", i, len(pages), a, err)
			}
			base = loc(l.number(r)) << locShift
		}
		locs[i] = base | loc(r.off+(a-r.addr))
	}
	return nil
}

// usable checks that a region (nil: none) allows prot.
func usable(r *region, prot Prot) error {
	switch {
	case r == nil:
		return errHole
	case r.m == nil:
		return errNoFile
	case prot&^r.prot != 0:
		return errProt
	}
	return nil
}

// number notes a region and returns the number of its mapping.
func (l *lister) number(r *region) int {
	const few = 16
	if l.known != nil {
		if n, ok := l.known[r]; ok {
			return n
		}
	} else if slices.Contains(l.regions, r) {
		return slices.Index(l.maps, r.m)
	}
	n := slices.Index(l.maps, r.m) // at most maxFiles, once per region
	if n < 0 {
		n = len(l.maps)
		l.maps = append(l.maps, r.m)
	}
	l.regions = append(l.regions, r)
	if l.known != nil {
		l.known[r] = n
	} else if len(l.regions) > few {
		l.known = make(map[*region]int, len(l.regions))
		for _, r := range l.regions {
			l.known[r] = slices.Index(l.maps, r.m)
		}
	}
	return n
}

// link enters a page list into the lists of its regions, unless one of them has been unmapped meanwhile.
func (s *Space) link(p *Pages, l *lister) error {
	p.nodes = p.room.nodesFor(len(l.regions))
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(l.regions) > maxPins-s.pins {
		return fmt.Errorf("page list in %d regions beside %d uses of regions, the limit is %d: %w", len(l.regions), s.pins,
			maxPins, unix.ENOMEM)
	}
	for _, r := range l.regions {
		if r.gone {
			return fmt.Errorf("region %#x+%#x was unmapped meanwhile: %w", r.addr, r.size, unix.EFAULT)
		}
	}
	if p.room == nil { // else NewList has
		if err := s.chargeList(p); err != nil {
			return err
		}
	}
	for i, r := range l.regions {
		n := &p.nodes[i]
		*n = pinNode{p: p, r: r, next: r.pins}
		if r.pins != nil {
			r.pins.prev = n
		}
		r.pins = n
	}
	for _, m := range p.maps {
		m.refs++
	}
	s.pins += len(p.nodes)
	s.pages += int(p.length / PageSize)
	return nil
}

// chargeList counts the memory of a page list. Called with Space.mu held.
func (s *Space) chargeList(p *Pages) error {
	if p.ListBytes() > maxListBytes-s.listBytes {
		return fmt.Errorf("page list of %d bytes beside %d bytes of lists, the limit is %d: %w", p.ListBytes(), s.listBytes,
			uint64(maxListBytes), unix.ENOMEM)
	}
	s.listBytes += p.ListBytes()
	return nil
}

// unlink takes a node out of its region's list. Called with Space.mu held.
func (n *pinNode) unlink() {
	if n.r == nil {
		return
	}
	if n.prev != nil {
		n.prev.next = n.next
	} else {
		n.r.pins = n.next
	}
	if n.next != nil {
		n.next.prev = n.prev
	}
	*n = pinNode{p: n.p}
}

// revoke marks all page lists that use a region. The lock is given back now and then, because owner threads want it.
func (s *Space) revoke(r *region) {
	const batch = 256
	for more := true; more; {
		s.mu.Lock()
		r.gone = true
		for i := 0; i < batch && r.pins != nil; i++ {
			n := r.pins
			n.p.limit.Store(0)
			n.unlink()
			s.revocations.Add(1)
		}
		more = r.pins != nil
		s.mu.Unlock()
	}
}

// Release gives the list back. No access to it is under way or follows; a second Release does nothing. It makes no
// system call: a window is unmapped by another goroutine.
func (p *Pages) Release() {
	s := p.space
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.released {
		return
	}
	p.released = true
	s.listBytes -= p.ListBytes()
	p.let()
	if p.win != nil {
		s.retired = append(s.retired, p.win)
		s.reapIn(0)
	}
	p.win, p.room = nil, nil
}

// let lets go of the pages. Called with Space.mu held.
func (p *Pages) let() {
	s := p.space
	p.limit.Store(0)
	for i := range p.nodes {
		p.nodes[i].unlink()
	}
	for _, m := range p.maps {
		s.unref(m)
	}
	s.pages -= int(p.length / PageSize)
	s.pins -= len(p.nodes)
	p.one, p.nodes = hostPtr{}, nil
	p.layout = layout{length: p.length, nruns: p.nruns}
}

// Len is the list's length in bytes.
func (p *Pages) Len() uint64 { return p.length }

// Runs is the number of pieces that the pages form in this process, adjacent pages merged.
func (p *Pages) Runs() int { return p.nruns }

// ListBytes is the memory in bytes that the list itself takes, for limits per guest.
func (p *Pages) ListBytes() uint64 {
	if p.room != nil {
		return p.room.bytes()
	}
	return uint64(len(p.flat))*8 + uint64(len(p.runs))*16
}

// Window says whether the list has a window. See Scattered for the reason if not.
func (p *Pages) Window() bool { return p.win != nil }

// Space returns the guest that the pages belong to.
func (p *Pages) Space() *Space { return p.space }

// Revoked says whether a region of the list was unmapped since Pin, or the list released. It then never comes back.
func (p *Pages) Revoked() bool { return p.limit.Load() == 0 }
