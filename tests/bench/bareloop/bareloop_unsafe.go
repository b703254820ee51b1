// SPDX-License-Identifier: Apache-2.0

// Package bareloop is the yardstick of the data path: the least that any device must do which serves rings of this
// layout. A doorbell page that the guest stores into, send rings of 128-byte work requests, one completion ring of
// 64-byte entries; for each request one copy of the request, the look-up of both keys, the check of both bounds, one
// copy of the payload, one completion. Indices are stored once for all requests that were found together.
//
// It has no states, no errors that a guest could learn, no events, no timers, no second guest and no guard against
// memory that goes away: that is what the device adds, and what a comparison with this loop measures.
//
// Nobody may weaken it: whoever makes it slower makes the device look better than it is. Its own test holds it to the
// layout and to its checks.
package bareloop

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// The layout of what guest and worker share, in pages: the doorbell page (the word of queue pairs at 0), a page of
// control words (the worker ends when the first is not 0), for each queue a page of indices and its requests, the
// completion queue's page of indices and its entries, the source, the target. Offsets of indices are those of struct
// pvrdma_ring_state, those in requests and completions of struct pvrdma_sq_wqe_hdr and struct pvrdma_cqe.
const (
	pageSize = 4096
	wqeSize  = 128
	cqeSize  = 64

	txProd, txCons, rxProd, rxCons = 0, 4, 8, 12

	handleMask = 1<<24 - 1

	// SourceKey and TargetKey are the keys of the two halves of the payload, whose addresses begin at SourceAddr and
	// TargetAddr.
	SourceKey, TargetKey   = 0x8001, 0x10001
	SourceAddr, TargetAddr = 0x7f0000000000, 0x7e0000000000

	// batch is the most requests after which the indices are stored, sweep how many rings are looked at between two
	// looks at the doorbell.
	batch, sweep = 32, 8
)

// Shape is the size of a loop.
type Shape struct {
	// Queues is the number of send rings, Depth the requests of each, CQE the completion ring's entries: powers of two
	// but for the first.
	Queues, Depth, CQE int
	// Payload is the length in bytes of source and target each.
	Payload int
}

func pages(n int) int { return (n + pageSize - 1) / pageSize * pageSize }

func (s Shape) queueSize() int { return pageSize + pages(s.Depth*wqeSize) }

func (s Shape) cqAt() int { return 2*pageSize + s.Queues*s.queueSize() }

// Size is the length in bytes of the shared memory.
func (s Shape) Size() int { return s.cqAt() + pageSize + pages(s.CQE*cqeSize) + 2*pages(s.Payload) }

// View is the shared memory's parts.
type View struct {
	// Doorbell is the doorbell page, Control the page of control words.
	Doorbell, Control []byte
	// States and Rings are each queue's index page and requests.
	States, Rings [][]byte
	// CQState and CQ are the completion queue's.
	CQState, CQ []byte
	// Source and Target are the payload.
	Source, Target []byte
}

// View cuts the shared memory, which is Size bytes long, into its parts.
func (s Shape) View(mem []byte) View {
	cut := func(n int) []byte {
		b := mem[:n:n]
		mem = mem[pages(n):]
		return b
	}
	v := View{Doorbell: cut(pageSize), Control: cut(pageSize)}
	for range s.Queues {
		v.States = append(v.States, cut(pageSize))
		v.Rings = append(v.Rings, cut(s.Depth*wqeSize))
	}
	v.CQState, v.CQ = cut(pageSize), cut(s.CQE*cqeSize)
	v.Source, v.Target = cut(s.Payload), cut(s.Payload)
	return v
}

// queue is a send ring. Its fields are the worker's.
type queue struct {
	state, ring unsafe.Pointer
	cons        uint32
}

// region is registered memory.
type region struct {
	key           uint32
	start, length uint64
	mem           []byte
}

// Worker serves one shared memory.
type Worker struct {
	bell, stop unsafe.Pointer
	queues     []queue
	depth      uint32
	cqState    unsafe.Pointer
	cq         unsafe.Pointer
	cqe        uint32
	cqProd     uint32
	// regions is indexed by the upper bits of a key.
	regions [4]region
	wqe     [wqeSize]byte

	// Served counts requests, Refused those whose key or bounds were wrong: they end the loop.
	Served, Refused uint64
}

// NewWorker returns a worker for rings whose indices are what the memory says.
func NewWorker(s Shape, mem []byte) (*Worker, error) {
	if s.Queues < 1 || s.Depth < 1 || s.Depth&(s.Depth-1) != 0 || s.CQE < 1 || s.CQE&(s.CQE-1) != 0 ||
		len(mem) < s.Size() {
		return nil, fmt.Errorf("bare loop of %+v in %d bytes: not a shape, or too little memory", s, len(mem))
	}
	v := s.View(mem)
	w := &Worker{
		bell: at(v.Doorbell), stop: at(v.Control), depth: uint32(s.Depth),
		cqState: at(v.CQState), cq: at(v.CQ), cqe: uint32(s.CQE), cqProd: binary.LittleEndian.Uint32(v.CQState[rxProd:]),
	}
	for i := range v.States {
		w.queues = append(w.queues, queue{at(v.States[i]), at(v.Rings[i]), binary.LittleEndian.Uint32(v.States[i][txCons:])})
	}
	w.regions[SourceKey>>15] = region{SourceKey, SourceAddr, uint64(s.Payload), v.Source}
	w.regions[TargetKey>>15] = region{TargetKey, TargetAddr, uint64(s.Payload), v.Target}
	return w, nil
}

// at is the address of the first byte of b.
func at(b []byte) unsafe.Pointer {
	// SAFETY: b is not empty, and outlives the worker.
	return unsafe.Pointer(unsafe.SliceData(b))
}

// word is the 32-bit word n bytes after p.
func word(p unsafe.Pointer, n uintptr) *uint32 {
	// SAFETY: n is an offset of a word in the page that p points to.
	return (*uint32)(unsafe.Add(p, n))
}

// Run serves the rings until the first control word is not 0, or a request is wrong.
func (w *Worker) Run() {
	next, left := 0, 0
	for atomic.LoadUint32(word(w.stop, 0)) == 0 && w.Refused == 0 {
		if atomic.LoadUint32(word(w.bell, 0)) != 0 {
			h := atomic.SwapUint32(word(w.bell, 0), 0) & handleMask
			if int(h) < len(w.queues) {
				w.serve(&w.queues[h])
			}
			left = len(w.queues) // a word hides the one before it
			if left == 1 {
				left = 0
			}
			continue
		}
		for n := min(left, sweep); n > 0; n-- {
			if next++; next >= len(w.queues) {
				next = 0
			}
			left--
			w.serve(&w.queues[next])
		}
	}
}

// serve empties a send ring.
func (w *Worker) serve(q *queue) {
	for w.Refused == 0 {
		prod := atomic.LoadUint32(word(q.state, txProd))
		n := min((prod-q.cons)&(2*w.depth-1), batch)
		if n == 0 {
			return
		}
		for range n {
			// SAFETY: the slot's number is below depth, and the completion's below cqe.
			w.wqe = *(*[wqeSize]byte)(unsafe.Add(q.ring, uintptr(q.cons&(w.depth-1))*wqeSize))
			if !w.execute((*[cqeSize]byte)(unsafe.Add(w.cq, uintptr(w.cqProd&(w.cqe-1))*cqeSize))) {
				w.Refused++
				return
			}
			q.cons = (q.cons + 1) & (2*w.depth - 1)
			w.cqProd = (w.cqProd + 1) & (2*w.cqe - 1)
			w.Served++
		}
		atomic.StoreUint32(word(w.cqState, rxProd), w.cqProd)
		atomic.StoreUint32(word(q.state, txCons), q.cons)
	}
}

// execute carries out the request in wqe and writes its completion.
func (w *Worker) execute(cqe *[cqeSize]byte) bool {
	b := &w.wqe
	if binary.LittleEndian.Uint32(b[8:]) != 1 { // num_sge
		return false
	}
	n := uint64(binary.LittleEndian.Uint32(b[88:])) // sg_list[0].length
	src := w.find(binary.LittleEndian.Uint32(b[92:]), binary.LittleEndian.Uint64(b[80:]), n)
	dst := w.find(binary.LittleEndian.Uint32(b[40:]), binary.LittleEndian.Uint64(b[32:]), n)
	if src == nil || dst == nil {
		return false
	}
	copy(dst, src)
	binary.LittleEndian.PutUint64(cqe[0:], binary.LittleEndian.Uint64(b[0:])) // wr_id
	binary.LittleEndian.PutUint64(cqe[8:], 0)
	binary.LittleEndian.PutUint64(cqe[16:], 1) // IB_WC_RDMA_WRITE, success
	binary.LittleEndian.PutUint64(cqe[24:], 0)
	binary.LittleEndian.PutUint64(cqe[32:], 0)
	binary.LittleEndian.PutUint64(cqe[40:], 0)
	binary.LittleEndian.PutUint64(cqe[48:], 0)
	binary.LittleEndian.PutUint64(cqe[56:], 0)
	return true
}

// find returns n bytes at addr of the region with a key, nil if they are not in it.
func (w *Worker) find(key uint32, addr, n uint64) []byte {
	r := &w.regions[key>>15&3]
	off := addr - r.start
	if r.key != key || addr < r.start || off > r.length || n > r.length-off {
		return nil
	}
	return r.mem[off : off+n]
}
