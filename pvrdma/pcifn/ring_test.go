// SPDX-License-Identifier: Apache-2.0

package pcifn

import "github.com/pvrdmad/pvrdmad/pvrdma/abi"

// driverRing is an event ring as the guest's driver reads it. The arithmetic is that of the macros in pvrdma_ring.h, with
// the number of slots that the driver uses: it is not a power of two.
type driverRing struct {
	*memory
	list []uint64 // pages
	pdir uint64
	max  uint32 // slots
	size uint64 // of an entry
}

func (m *memory) ring(pages int, size uint64) *driverRing {
	r := &driverRing{memory: m, list: m.pages(pages), size: size}
	r.pdir = m.directory(r.list)
	r.max = uint32(uint64(pages-1) * abi.PageSize / size)
	return r
}

func (r *driverRing) prodTail() uint64 { return r.list[0] + 8 }
func (r *driverRing) consHead() uint64 { return r.list[0] + 12 }

// valid is pvrdma_idx_valid.
func (r *driverRing) valid(idx uint32) bool { return idx&^(r.max<<1-1) == 0 }

// hasData is pvrdma_idx_ring_has_data: 1 with the slot, 0, or -1 if an index is not valid.
func (r *driverRing) hasData() (has int, slot uint32) {
	tail, head := r.load32(r.prodTail()), r.load32(r.consHead())
	if !r.valid(tail) || !r.valid(head) {
		return -1, 0
	}
	if tail == head {
		return 0, 0
	}
	return 1, head & (r.max - 1)
}

// inc is pvrdma_idx_ring_inc of the consumer's index.
func (r *driverRing) inc() { r.store32(r.consHead(), (r.load32(r.consHead())+1)&(r.max<<1-1)) }

// take takes one entry as the driver's interrupt handlers do.
func (r *driverRing) take() (entry []byte, ok bool) {
	r.t.Helper()
	has, slot := r.hasData()
	if has < 0 {
		r.t.Fatalf("the driver finds index %d of the device not valid, and never reads the ring again", r.load32(r.prodTail()))
	}
	if has == 0 {
		return nil, false
	}
	off := uint64(slot) * r.size
	entry = r.read(r.list[1+off/abi.PageSize]+off%abi.PageSize, int(r.size))
	r.inc()
	return entry, true
}

// asyncs takes all asynchronous events.
func (r *driverRing) asyncs() []abi.EQE {
	r.t.Helper()
	var all []abi.EQE
	for {
		b, ok := r.take()
		if !ok {
			return all
		}
		var e abi.EQE
		r.ok(e.Decode(b))
		all = append(all, e)
	}
}

// handles takes all events of completion queues.
func (r *driverRing) handles() []uint32 {
	r.t.Helper()
	var all []uint32
	for {
		b, ok := r.take()
		if !ok {
			return all
		}
		var e abi.CQNE
		r.ok(e.Decode(b))
		all = append(all, e.Info)
	}
}
