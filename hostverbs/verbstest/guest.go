// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
)

const (
	page = guestmem.PageSize
	// ramBase is the guest address of a guest's memory; ramBytes how much there is: enough for both ends of a message of 1 MiB.
	ramBase  = 0x4000_0000
	ramBytes = 4 << 20
	// everything are all rights to a region or through a queue pair.
	everything = hostverbs.AccessLocalWrite | hostverbs.AccessRemoteWrite | hostverbs.AccessRemoteRead | hostverbs.AccessRemoteAtomic
)

// guest is a guest with memory and an open context.
type guest struct {
	w     *world
	site  *site
	name  string
	ctx   hostverbs.Context
	pd    hostverbs.PD
	gid   hostverbs.GID
	space *guestmem.Space
	// ram is what the engine works on, want what it should be.
	ram, want []byte
	used      int
}

// region is a registered buffer.
type region struct {
	g     *guest
	mr    hostverbs.MR
	mem   *guestmem.Pages
	start uint64
	n     uint64
	pages []uint64
	first uint64 // offset of the first byte in the first page
}

// shape says how a region is registered.
type shape struct {
	pd     hostverbs.PD
	access hostverbs.AccessFlags
	// start is the address of the first byte; its low 12 bits are the offset in the first page.
	start uint64
	// scatter spreads the pages over memory in no order.
	scatter bool
}

// pages takes n pages of the guest's memory.
func (g *guest) takePages(n int, scatter bool) []uint64 {
	if (g.used+n)*page > len(g.ram) {
		g.w.t.Fatalf("the test's guest is out of memory")
	}
	list := make([]uint64, n)
	for i := range list {
		list[i] = ramBase + uint64(g.used+i)*page
	}
	g.used += n
	if scatter {
		r := rand.New(rand.NewPCG(uint64(n), 7))
		r.Shuffle(n, func(i, j int) { list[i], list[j] = list[j], list[i] })
	}
	return list
}

// buffer registers n bytes with all rights at an address that is not aligned to anything.
func (g *guest) buffer(n int) *region {
	return g.register(n, shape{access: everything, start: 0x7f00_0000_0123})
}

// register registers n bytes of memory that nothing else uses.
func (g *guest) register(n int, s shape) *region {
	g.w.t.Helper()
	first := s.start % page
	r := &region{
		g: g, start: s.start, n: uint64(n), first: first,
		pages: g.takePages((int(first)+n+page-1)/page, s.scatter),
	}
	if s.pd == nil {
		s.pd = g.pd
	}
	var err error
	if r.mem, err = g.space.Pin(r.pages, guestmem.ProtRead|guestmem.ProtWrite); err != nil {
		g.w.t.Fatalf("pin: %v", err)
	}
	r.mr, err = g.ctx.RegMR(s.pd, hostverbs.MRAttr{
		Memory: r.mem, Offset: first, Start: s.start, Length: r.n, Access: s.access,
	})
	if err != nil {
		g.w.t.Fatalf("register %d bytes: %v", n, err)
	}
	return r
}

// at returns where in ram the byte off of the region is.
func (r *region) at(off uint64) uint64 {
	off += r.first
	return r.pages[off/page] - ramBase + off%page
}

// put writes bytes into the region, as the guest itself would.
func (r *region) put(off uint64, b []byte) {
	r.store(r.g.ram, off, b)
	r.store(r.g.want, off, b)
}

// store writes b to the region in one of the two copies of the guest's memory.
func (r *region) store(ram []byte, off uint64, b []byte) {
	for len(b) > 0 {
		n := min(page-(r.first+off)%page, uint64(len(b)))
		copy(ram[r.at(off):], b[:n])
		off += n
		b = b[n:]
	}
}

// expect says that the engine will have written b at off.
func (r *region) expect(off uint64, b []byte) {
	r.store(r.g.want, off, b)
}

// fill writes a pattern into the first n bytes of the region and returns it.
func (r *region) fill(seed, iteration uint64, n int) []byte {
	b := pattern(seed, iteration, n)
	r.put(0, b)
	return b
}

// sge names n bytes at off.
func (r *region) sge(off, n uint64) hostverbs.SGE {
	return hostverbs.SGE{Addr: r.start + off, Length: uint32(n), LKey: r.mr.LKey()}
}

// pattern returns n bytes of which each depends on the seed, the iteration and its offset.
func pattern(seed, iteration uint64, n int) []byte {
	b := make([]byte, (n+7)/8*8)
	for off := 0; off < len(b); off += 8 {
		x := seed*0x9e3779b97f4a7c15 ^ iteration*0xbf58476d1ce4e5b9 ^ uint64(off)*0x94d049bb133111eb
		x ^= x >> 29
		x *= 0xbf58476d1ce4e5b9
		x ^= x >> 32
		binary.LittleEndian.PutUint64(b[off:], x)
	}
	return b[:n]
}

// verify compares all of the guest's memory with what it should be.
func (g *guest) verify(what string) {
	g.w.t.Helper()
	if bytes.Equal(g.ram, g.want) {
		return
	}
	diffs, first := 0, -1
	for i := range g.ram {
		if g.ram[i] != g.want[i] {
			if first < 0 {
				first = i
			}
			diffs++
		}
	}
	g.w.t.Errorf("%s: memory of %s: %d bytes are wrong, the first at offset %#x: got %#02x, want %#02x",
		what, g.name, diffs, first, g.ram[first], g.want[first])
}
