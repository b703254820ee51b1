// SPDX-License-Identifier: Apache-2.0

package ringbuf

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// MaxRing is the most entries of a Ring: an index runs to 2N-1 and has 32 bits.
const MaxRing = 1 << 31

// Ring is the index arithmetic of a ring of N entries, N a power of two: the rings of queue pairs, completion queues
// and shared receive queues. Producer and consumer each own one index that runs from 0 to 2N-1, so that a full ring
// (they differ by N) and an empty one (they are equal) can be told apart.
//
// The zero Ring has no valid index; NewRing makes one that has.
type Ring struct {
	// N is the number of entries.
	N uint32
}

// NewRing checks that n is a power of two not above MaxRing. EINVAL otherwise.
func NewRing(n uint32) (Ring, error) {
	if n == 0 || n&(n-1) != 0 {
		return Ring{}, fmt.Errorf("ring of %d entries: not a power of two: %w", n, unix.EINVAL)
	}
	return Ring{N: n}, nil
}

// mask has the bits that an index may have: 2N-1.
func (r Ring) mask() uint32 { return 2*r.N - 1 }

// Valid says whether idx is an index at all. The driver's pvrdma_idx_valid rejects an index with a bit outside of
// 2N-1; for a power of two that is the same as idx < 2N.
func (r Ring) Valid(idx uint32) bool { return r.N != 0 && idx&^r.mask() == 0 }

// Inc returns the index after idx. The driver's pvrdma_idx_ring_inc adds one and keeps the bits of 2N-1.
func (r Ring) Inc(idx uint32) uint32 { return (idx + 1) & r.mask() }

// Add returns the index n entries after idx, n Incs at once.
func (r Ring) Add(idx, n uint32) uint32 { return (idx + n) & r.mask() }

// Slot returns the entry that idx stands for. The driver's pvrdma_idx keeps the bits of N-1.
func (r Ring) Slot(idx uint32) uint32 { return idx & (r.N - 1) }

// Empty says whether the consumer has reached the producer: the indices are equal, as in pvrdma_idx_ring_has_data.
func (r Ring) Empty(prod, cons uint32) bool { return prod == cons }

// Full says whether no entry is free: the indices differ in the bit N and in no other, as in
// pvrdma_idx_ring_has_space.
func (r Ring) Full(prod, cons uint32) bool { return prod == cons^r.N }

// Pending returns how many entries the producer is ahead. ok is false if an index is not valid, or if they are
// further apart than the ring is long, which no correct peer can bring about; n is 0 then.
func (r Ring) Pending(prod, cons uint32) (n uint32, ok bool) {
	if !r.Valid(prod) || !r.Valid(cons) {
		return 0, false
	}
	if n = (prod - cons) & r.mask(); n > r.N {
		return 0, false
	}
	return n, true
}

// Free returns how many entries the producer may write, by the same rules as Pending.
func (r Ring) Free(prod, cons uint32) (n uint32, ok bool) {
	used, ok := r.Pending(prod, cons)
	if !ok {
		return 0, false
	}
	return r.N - used, true
}
