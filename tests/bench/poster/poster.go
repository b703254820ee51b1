// SPDX-License-Identifier: Apache-2.0

// Package poster is the least that a program of a guest does on the data path: it writes a work request, moves the
// index, rings the doorbell, and looks for the completion. Device and bare loop are driven by the same code, so that
// what differs between them is the other side alone.
//
// It knows the layout of the rings and nothing of how they came about.
package poster

import (
	"encoding/binary"
	"fmt"

	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// Offsets of the indices in a page of struct pvrdma_ring_state.
const (
	txProd, txCons, rxProd, rxCons = 0, 4, 8, 12
)

// Strides of work requests with one element.
const (
	SendStride = 128
	RecvStride = 32
)

// Work is a queue of work requests: a send or a receive queue.
type Work struct {
	// Doorbell is the doorbell page, Value what is stored there.
	Doorbell []byte
	Value    uint32
	// State is the page of indices, Slots the requests.
	State, Slots []byte

	prod, mask, stride uint32
	prodAt, consAt     int
	// posted counts the receives of a receive queue, matched those that a message was sent for.
	posted, matched uint64
}

// NewSend returns the send queue whose indices lie in state and whose requests fill slots.
func NewSend(doorbell []byte, handle uint32, state, slots []byte) *Work {
	return &Work{
		Doorbell: doorbell, Value: handle | abi.UARQPSend, State: state, Slots: slots, prod: ram.Load32(state, txProd),
		mask: uint32(len(slots)/SendStride) - 1, stride: SendStride, prodAt: txProd, consAt: txCons,
	}
}

// NewRecv returns the receive queue whose indices lie in state and whose requests fill slots.
func NewRecv(doorbell []byte, handle uint32, state, slots []byte) *Work {
	return &Work{
		Doorbell: doorbell, Value: handle | abi.UARQPRecv, State: state, Slots: slots, prod: ram.Load32(state, rxProd),
		mask: uint32(len(slots)/RecvStride) - 1, stride: RecvStride, prodAt: rxProd, consAt: rxCons,
	}
}

// Depth is the number of requests that the queue holds.
func (q *Work) Depth() int { return int(q.mask) + 1 }

// Full says whether the queue has no room.
func (q *Work) Full() bool { return q.prod^ram.Load32(q.State, q.consAt) == q.mask+1 }

// Pending is how many requests the other side has not taken yet, as far as this side has shown them.
func (q *Work) Pending() int { return int((q.prod - ram.Load32(q.State, q.consAt)) & (q.mask<<1 | 1)) }

// Piece is a piece of registered memory.
type Piece struct {
	Addr     uint64
	Len, Key uint32
}

// Write puts a signaled WRITE of a piece to remote into the queue. Ring shows it.
func (q *Work) Write(id uint64, from, remote Piece) { q.post(id, abi.WRRDMAWrite, from, remote) }

// Read puts a signaled READ of remote into a piece into the queue. Ring shows it.
func (q *Work) Read(id uint64, into, remote Piece) { q.post(id, abi.WRRDMARead, into, remote) }

// Send puts a signaled SEND of a piece into the queue. Ring shows it.
func (q *Work) Send(id uint64, from Piece) { q.post(id, abi.WRSend, from, Piece{}) }

// FetchAdd puts a signaled addition to the 8 bytes of remote into the queue, whose old value comes into a piece. Ring shows
// it.
func (q *Work) FetchAdd(id uint64, into, remote Piece, add uint64) {
	atomic(q.post(id, abi.WRAtomicFetchAndAdd, into, Piece{}), remote, add, 0)
}

// CompareSwap puts a signaled exchange of the 8 bytes of remote for swap, if they are expect, into the queue. Their old value
// comes into a piece. Ring shows it.
func (q *Work) CompareSwap(id uint64, into, remote Piece, expect, swap uint64) {
	atomic(q.post(id, abi.WRAtomicCmpAndSwp, into, Piece{}), remote, expect, swap)
}

// atomic writes what atomic operations have in the place of a remote address and key.
func atomic(b []byte, remote Piece, compareAdd, swap uint64) {
	binary.LittleEndian.PutUint64(b[32:], remote.Addr)
	binary.LittleEndian.PutUint64(b[40:], compareAdd)
	binary.LittleEndian.PutUint64(b[48:], swap)
	binary.LittleEndian.PutUint32(b[56:], remote.Key)
}

func (q *Work) post(id uint64, op abi.WROpcode, local, remote Piece) []byte {
	b := q.slot()
	binary.LittleEndian.PutUint64(b[0:], id)
	binary.LittleEndian.PutUint64(b[8:], 1) // one element
	binary.LittleEndian.PutUint64(b[16:], uint64(op)|uint64(abi.SendSignaled)<<32)
	binary.LittleEndian.PutUint64(b[32:], remote.Addr)
	binary.LittleEndian.PutUint64(b[40:], uint64(remote.Key))
	put(b[abi.SendWQEHdrSize:], local)
	return b
}

// Recv puts a receive into the queue. Ring shows it.
func (q *Work) Recv(id uint64, into Piece) {
	b := q.slot()
	binary.LittleEndian.PutUint64(b[0:], id)
	binary.LittleEndian.PutUint64(b[8:], 1)
	put(b[abi.RecvWQEHdrSize:], into)
}

func put(b []byte, p Piece) {
	binary.LittleEndian.PutUint64(b[0:], p.Addr)
	binary.LittleEndian.PutUint32(b[8:], p.Len)
	binary.LittleEndian.PutUint32(b[12:], p.Key)
}

func (q *Work) slot() []byte {
	at := (q.prod & q.mask) * q.stride
	q.prod = (q.prod + 1) & (q.mask<<1 | 1)
	return q.Slots[at : at+q.stride : at+q.stride]
}

// Ring moves the index past what was put into the queue, and rings the doorbell.
func (q *Work) Ring() {
	ram.Store32(q.State, q.prodAt, q.prod)
	ram.Store32(q.Doorbell, abi.UARQPOffset, q.Value)
}

// CQ is a completion queue.
type CQ struct {
	State, Entries []byte
	// Doorbell and Value, if Doorbell is not nil, are what the provider stores whenever it finds the queue empty.
	Doorbell []byte
	Value    uint32

	cons, mask uint32
}

// NewCQ returns the completion queue whose indices lie in state and whose entries fill entries.
func NewCQ(state, entries []byte) *CQ {
	return &CQ{State: state, Entries: entries, cons: ram.Load32(state, rxCons), mask: uint32(len(entries)/abi.CQESize) - 1}
}

// Poll takes up to n completions and returns how many there were, and the id of the last. A completion in error is an
// error.
func (c *CQ) Poll(n int) (got int, id uint64, err error) {
	prod := ram.Load32(c.State, rxProd)
	if prod == c.cons {
		if c.Doorbell != nil {
			ram.Store32(c.Doorbell, abi.UARCQOffset, c.Value)
		}
		return 0, 0, nil
	}
	for prod != c.cons && got < n {
		at := (c.cons & c.mask) * abi.CQESize
		e := c.Entries[at : at+abi.CQESize : at+abi.CQESize]
		if status := binary.LittleEndian.Uint32(e[20:]); status != 0 {
			return got, 0, fmt.Errorf("completion of work request %d has status %s",
				binary.LittleEndian.Uint64(e), abi.WCStatus(status))
		}
		id = binary.LittleEndian.Uint64(e)
		c.cons = (c.cons + 1) & (c.mask<<1 | 1)
		got++
	}
	ram.Store32(c.State, rxCons, c.cons)
	return got, id, nil
}
