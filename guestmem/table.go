// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"fmt"
	"slices"
	"sort"

	"golang.org/x/sys/unix"
)

// Prot says what a guest allows the device to do with memory.
type Prot uint8

// The two permissions, as PROT_READ and PROT_WRITE.
const (
	ProtRead  Prot = 1 << 0
	ProtWrite Prot = 1 << 1
)

// region is one mapped range of guest addresses. Everything but the pins is written before it is published.
type region struct {
	addr, size uint64
	prot       Prot
	m          *mapping // nil: known, but without memory
	off        uint64   // where in m the region begins

	gone bool     // unmapped; guarded by Space.mu
	pins *pinNode // page lists that use the region; guarded by Space.mu
}

// last is the region's last address. (Its end may be 2^64.)
func (r *region) last() uint64 { return r.addr + (r.size - 1) }

// chunkMax is the most regions in one chunk of a table: a change then copies two slices of at most a few kilobytes,
// where a flat table of 65,535 regions would make half a megabyte of garbage per change.
const chunkMax = 256

// table is an immutable set of disjoint regions, sorted by address, in sorted chunks none of which is empty.
type table struct {
	chunks [][]*region
	n      int
}

// chunkOf returns the index of the chunk in which addr would be: the last one that begins at or below it, else 0.
func (t *table) chunkOf(addr uint64) int {
	i := sort.Search(len(t.chunks), func(i int) bool { return t.chunks[i][0].addr > addr })
	return max(i-1, 0)
}

// after returns the index of the first region in c that begins above addr.
func after(c []*region, addr uint64) int {
	lo, hi := 0, len(c)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if c[mid].addr > addr {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// find returns the region that contains addr, or nil.
func (t *table) find(addr uint64) *region {
	if len(t.chunks) == 0 {
		return nil
	}
	c := t.chunks[0]
	if len(t.chunks) > 1 {
		c = t.chunks[t.chunkOf(addr)]
	}
	i := after(c, addr) - 1
	if i < 0 || addr-c[i].addr >= c[i].size {
		return nil
	}
	return c[i]
}

// overlap returns a region that shares an address with [addr, addr+size-1], or nil.
func (t *table) overlap(addr, size uint64) *region {
	last := addr + (size - 1)
	if len(t.chunks) == 0 {
		return nil
	}
	ci := t.chunkOf(last)
	// The region that begins at or below last is the only one that can reach into the range from below, and the
	// first candidate from above.
	i := after(t.chunks[ci], last) - 1
	if i < 0 || t.chunks[ci][i].last() < addr {
		return nil
	}
	return t.chunks[ci][i]
}

// insert returns a table with r in it. The caller has checked that r overlaps nothing.
func (t *table) insert(r *region) *table {
	if len(t.chunks) == 0 {
		return &table{chunks: [][]*region{{r}}, n: 1}
	}
	ci := t.chunkOf(r.addr)
	old := t.chunks[ci]
	i := after(old, r.addr)
	c := make([]*region, 0, len(old)+1)
	c = append(append(append(c, old[:i]...), r), old[i:]...)
	chunks := make([][]*region, 0, len(t.chunks)+1)
	chunks = append(chunks, t.chunks[:ci]...)
	if len(c) > chunkMax {
		half := len(c) / 2
		chunks = append(chunks, c[:half:half], c[half:])
	} else {
		chunks = append(chunks, c)
	}
	return &table{chunks: append(chunks, t.chunks[ci+1:]...), n: t.n + 1}
}

// without returns a table without the regions that begin in [addr, last].
func (t *table) without(addr, last uint64) *table {
	out := &table{chunks: make([][]*region, 0, len(t.chunks)+1)}
	for _, c := range t.chunks {
		i := 0
		if addr > 0 {
			i = after(c, addr-1)
		}
		j := max(i, after(c, last))
		out.push(c[:i:i])
		out.push(c[j:])
	}
	return out
}

// push adds regions behind all others to a table that nobody else has seen. Small neighbours are merged, or a front-end could
// leave thousands of chunks with one region each.
func (t *table) push(c []*region) {
	if len(c) == 0 {
		return
	}
	t.n += len(c)
	end := len(t.chunks) - 1
	if end >= 0 && len(t.chunks[end])+len(c) <= chunkMax/2 {
		t.chunks[end] = append(slices.Clone(t.chunks[end]), c...)
		return
	}
	t.chunks = append(t.chunks, c)
}

// inside returns the regions in [addr, addr+size-1], in order of address: ENOENT if there are none or if one lies there in
// part.
func (t *table) inside(addr, size uint64) ([]*region, error) {
	if size == 0 || addr+(size-1) < addr {
		return nil, fmt.Errorf("no range of addresses: %w", unix.ENOENT)
	}
	var found []*region
	last := addr + (size - 1)
	for left := size; ; {
		r := t.overlap(addr, left)
		if r == nil {
			break
		}
		if r.addr < addr || r.last() > last {
			return nil, fmt.Errorf("the range cuts the region %#x+%#x: %w", r.addr, r.size, unix.ENOENT)
		}
		found = append(found, r)
		if left = r.addr - addr; left == 0 {
			break
		}
	}
	if found == nil {
		return nil, fmt.Errorf("no such region: %w", unix.ENOENT)
	}
	slices.Reverse(found)
	return found, nil
}

// all calls f for every region in order of address.
func (t *table) all(f func(*region)) {
	for _, c := range t.chunks {
		for _, r := range c {
			f(r)
		}
	}
}
