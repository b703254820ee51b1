// SPDX-License-Identifier: Apache-2.0

// Package ram is the memory of a guest that has no virtual machine: one memfd, laid out at guest addresses as a PC
// lays out its memory, with an allocator of pages and buffers that lie side by side for a program although their pages
// do not.
//
// It may not know what the pages are used for.
package ram

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// PageSize is the guest's page size in bytes.
	PageSize = 4096
	// lowBase is where memory begins: the first MiB of a PC is full of holes.
	lowBase = 1 << 20
	// highBase is where the second half lies, so that an address cut to 32 bits is noticed.
	highBase = 4 << 30
)

// Region is a piece of guest memory.
type Region struct {
	// Addr is where the guest sees it, Size its length in bytes, Offset where it begins in the file.
	Addr, Size, Offset uint64
}

// Options say what the memory is like.
type Options struct {
	// Size is the memory in bytes, rounded up to two pages. 0 is 32 MiB.
	Size uint64
	// Scatter takes pages in an order that depends on Seed alone instead of side by side.
	Scatter bool
	Seed    uint64
	// Unsealed leaves the file's size free to change, for tests that pull it away.
	Unsealed bool
}

// RAM is a guest's memory.
type RAM struct {
	fd      int
	mem     []byte
	regions []Region

	mu      sync.Mutex
	used    []bool
	order   []int // the pages in the order in which they are handed out
	next    int   // where in order the search begins
	scatter bool
	buffers map[*Buffer]bool // those that are not freed
}

// New makes a guest's memory.
func New(o Options) (*RAM, error) {
	if o.Size == 0 {
		o.Size = 32 << 20
	}
	half := (o.Size/2 + PageSize - 1) / PageSize * PageSize
	size := 2 * half
	fd, err := unix.MemfdCreate("testguest-ram", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("create guest memory: %w", err)
	}
	r := &RAM{fd: fd, scatter: o.Scatter, buffers: map[*Buffer]bool{}, regions: []Region{
		{Addr: lowBase, Size: half, Offset: 0}, {Addr: highBase, Size: half, Offset: half},
	}}
	if err := r.back(size, !o.Unsealed); err != nil {
		return nil, errors.Join(fmt.Errorf("back %d bytes of guest memory: %w", size, err), unix.Close(fd))
	}
	r.shuffle(int(size/PageSize), o)
	return r, nil
}

func (r *RAM) back(size uint64, seal bool) (err error) {
	if err := unix.Ftruncate(r.fd, int64(size)); err != nil {
		return err
	}
	if seal { // as QEMU seals a memory-backend-memfd
		if _, err := unix.FcntlInt(uintptr(r.fd), unix.F_ADD_SEALS,
			unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
			return err
		}
	}
	r.mem, err = unix.Mmap(r.fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return err
}

// shuffle fixes the order in which pages are handed out: high memory first, or a random one.
func (r *RAM) shuffle(pages int, o Options) {
	r.used = make([]bool, pages)
	r.order = make([]int, pages)
	for i := range r.order {
		r.order[i] = (i + pages/2) % pages
	}
	if o.Scatter {
		rng := rand.New(rand.NewPCG(o.Seed, uint64(pages)))
		rng.Shuffle(pages, func(i, j int) { r.order[i], r.order[j] = r.order[j], r.order[i] })
	}
}

// FD is the memory's file. It stays the RAM's.
func (r *RAM) FD() int { return r.fd }

// Regions returns the pieces in which the guest sees the memory.
func (r *RAM) Regions() []Region { return r.regions }

// Close unmaps the memory and all buffers in it and closes its file.
func (r *RAM) Close() error {
	var err error
	for b := range r.buffers {
		err = errors.Join(err, b.unmap())
	}
	err = errors.Join(err, unix.Munmap(r.mem), unix.Close(r.fd))
	r.mem, r.buffers, r.fd = nil, nil, -1
	return err
}

// Bytes returns n bytes at a guest address, not a copy. They may not cross a region's end.
func (r *RAM) Bytes(addr uint64, n int) ([]byte, error) {
	off, err := r.offset(addr, n)
	if err != nil {
		return nil, err
	}
	return r.mem[off : off+n : off+n], nil
}

// All returns the whole memory, not a copy.
func (r *RAM) All() []byte { return r.mem }

// offset is where in the file n bytes at a guest address begin.
func (r *RAM) offset(addr uint64, n int) (int, error) {
	for _, g := range r.regions {
		if addr >= g.Addr && addr-g.Addr <= g.Size && uint64(n) <= g.Size-(addr-g.Addr) {
			return int(g.Offset + addr - g.Addr), nil
		}
	}
	return 0, fmt.Errorf("find %d bytes of guest memory at %#x: %w", n, addr, unix.EFAULT)
}

// addr is where the guest sees a page of the file.
func (r *RAM) addr(page int) uint64 {
	off := uint64(page) * PageSize
	for _, g := range r.regions {
		if off >= g.Offset && off-g.Offset < g.Size {
			return g.Addr + off - g.Offset
		}
	}
	panic(fmt.Sprintf("page %d lies in no region", page))
}

// Page allocates one zeroed page and returns its guest address.
func (r *RAM) Page() (uint64, error) {
	pages, err := r.Pages(1)
	if err != nil {
		return 0, err
	}
	return pages[0], nil
}

// Pages allocates n zeroed pages and returns their guest addresses: side by side, or anywhere if the memory scatters.
func (r *RAM) Pages(n int) ([]uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	start := r.find(n)
	if start < 0 {
		return nil, fmt.Errorf("allocate %d pages of guest memory: %w", n, unix.ENOMEM)
	}
	pages := make([]uint64, 0, n)
	for i := start; len(pages) < n; i = (i + 1) % len(r.order) {
		page := r.order[i]
		if r.used[page] {
			continue // only where pages scatter
		}
		r.used[page] = true
		clear(r.mem[page*PageSize : (page+1)*PageSize])
		pages = append(pages, r.addr(page))
		r.next = (i + 1) % len(r.order)
	}
	return pages, nil
}

// find returns where in order n free pages can be taken from, or -1.
func (r *RAM) find(n int) int {
	looks := len(r.order)
	if !r.scatter {
		looks *= 2 // for a run that begins before next
	}
	free, start := 0, -1
	for k := range looks {
		i := (r.next + k) % len(r.order)
		if !r.scatter && (r.used[r.order[i]] || i == 0 || i == len(r.order)/2) {
			free, start = 0, -1 // a run ends at a used page and where two regions meet
		}
		if r.used[r.order[i]] {
			continue
		}
		if start < 0 {
			start = i
		}
		if free++; free == n {
			return start
		}
	}
	return -1
}

// Free gives pages back.
func (r *RAM) Free(pages ...uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, addr := range pages {
		off, err := r.offset(addr, PageSize)
		if err != nil || off%PageSize != 0 || !r.used[off/PageSize] {
			panic(fmt.Sprintf("free guest page %#x, which is not allocated", addr))
		}
		r.used[off/PageSize] = false
	}
}

// Allocated returns the guest addresses of the pages that are allocated.
func (r *RAM) Allocated() []uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var pages []uint64
	for page, u := range r.used {
		if u {
			pages = append(pages, r.addr(page))
		}
	}
	return pages
}

// InUse is the number of pages that are allocated.
func (r *RAM) InUse() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, u := range r.used {
		if u {
			n++
		}
	}
	return n
}
