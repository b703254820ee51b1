// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
)

// Verdict is what the driver's ring tests say. Like the driver's, they know a third answer: an index that is not valid.
type Verdict int

// Verdicts.
const (
	No      Verdict = 0
	Yes     Verdict = 1
	Invalid Verdict = -1
)

// Ring is a pair of indices in shared memory: struct pvrdma_ring of pvrdma_ring.h.
type Ring struct {
	state      []byte
	prod, cons int // offsets of the indices
}

// NewRing returns the ring whose indices lie at a field ("tx" or "rx") of the struct pvrdma_ring_state at state[0].
func NewRing(l *layout.Layout, state []byte, field string) Ring {
	return Ring{
		state: state,
		prod:  l.Field("pvrdma_ring_state", field+".prod_tail").Offset,
		cons:  l.Field("pvrdma_ring_state", field+".cons_head").Offset,
	}
}

// Prod and Cons read the indices.
func (r Ring) Prod() uint32 { return ram.Load32(r.state, r.prod) }

// Cons reads the consumer's index.
func (r Ring) Cons() uint32 { return ram.Load32(r.state, r.cons) }

// SetProd and SetCons write the indices, right or wrong.
func (r Ring) SetProd(v uint32) { ram.Store32(r.state, r.prod, v) }

// SetCons writes the consumer's index.
func (r Ring) SetCons(v uint32) { ram.Store32(r.state, r.cons, v) }

// IdxValid is the test of pvrdma_ring.h whether an index can occur in a ring of n elements. For an n that is not a
// power of two it is as odd as there.
func IdxValid(idx, n uint32) bool { return idx&^(n<<1-1) == 0 }

// IdxInc is the index that follows, as pvrdma_ring.h computes it.
func IdxInc(idx, n uint32) uint32 { return (idx + 1) & (n<<1 - 1) }

// HasSpace reports whether the producer may write another element, and where.
func (r Ring) HasSpace(n uint32) (v Verdict, slot uint32) {
	tail, head := r.Prod(), r.Cons()
	if !IdxValid(tail, n) || !IdxValid(head, n) {
		return Invalid, 0
	}
	return verdict(tail != head^n), tail & (n - 1)
}

// HasData reports whether the consumer may read another element, and where.
func (r Ring) HasData(n uint32) (v Verdict, slot uint32) {
	tail, head := r.Prod(), r.Cons()
	if !IdxValid(tail, n) || !IdxValid(head, n) {
		return Invalid, 0
	}
	return verdict(tail != head), head & (n - 1)
}

// Produce moves the producer's index on by one.
func (r Ring) Produce(n uint32) { r.SetProd(IdxInc(r.Prod(), n)) }

// Consume moves the consumer's index on by one.
func (r Ring) Consume(n uint32) { r.SetCons(IdxInc(r.Cons(), n)) }

func verdict(yes bool) Verdict {
	if yes {
		return Yes
	}
	return No
}
