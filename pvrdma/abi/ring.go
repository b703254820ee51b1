// SPDX-License-Identifier: Apache-2.0

package abi

// RingSize is the size of [Ring] in bytes.
const RingSize = 8

// Ring is struct pvrdma_ring (pvrdma_ring.h): the two indices of one ring. In shared memory
// they change under the reader, so this codec is for set-up and tests; live rings are read
// and written atomically at the offsets below.
type Ring struct {
	ProdTail uint32
	ConsHead uint32
}

// Decode reads x from the first [RingSize] bytes of b; EINVAL if b is shorter.
func (x *Ring) Decode(b []byte) error {
	if len(b) < RingSize {
		return shortError("Ring", len(b), RingSize)
	}
	x.decode((*[RingSize]byte)(b))
	return nil
}

// Encode writes x to the first [RingSize] bytes of b and panics if b is shorter.
func (x *Ring) Encode(b []byte) {
	x.encode((*[RingSize]byte)(b))
}

func (x *Ring) decode(p *[RingSize]byte) {
	x.ProdTail = get32(p[0:4])
	x.ConsHead = get32(p[4:8])
}

func (x *Ring) encode(p *[RingSize]byte) {
	put32(p[0:4], x.ProdTail)
	put32(p[4:8], x.ConsHead)
}

// RingStateSize is the size of [RingState] in bytes.
const RingStateSize = 16

// RingState is struct pvrdma_ring_state (pvrdma_ring.h), at the start of an object's first
// page. A QP sends on TX and receives on RX; all other objects use RX only.
type RingState struct {
	TX Ring
	RX Ring
}

// Decode reads x from the first [RingStateSize] bytes of b; EINVAL if b is shorter.
func (x *RingState) Decode(b []byte) error {
	if len(b) < RingStateSize {
		return shortError("RingState", len(b), RingStateSize)
	}
	p := (*[RingStateSize]byte)(b)
	x.TX.decode((*[RingSize]byte)(p[0:8]))
	x.RX.decode((*[RingSize]byte)(p[8:16]))
	return nil
}

// Encode writes x to the first [RingStateSize] bytes of b and panics if b is shorter.
func (x *RingState) Encode(b []byte) {
	p := (*[RingStateSize]byte)(b)
	x.TX.encode((*[RingSize]byte)(p[0:8]))
	x.RX.encode((*[RingSize]byte)(p[8:16]))
}

// EQESize is the size of [EQE] in bytes.
const EQESize = 8

// EQE is struct pvrdma_eqe (pvrdma_dev_api.h), an entry of the asynchronous event ring.
type EQE struct {
	Type EventType
	Info uint32 // CQ, QP or SRQ handle, or port number, as Type has it
}

// Decode reads x from the first [EQESize] bytes of b; EINVAL if b is shorter.
func (x *EQE) Decode(b []byte) error {
	if len(b) < EQESize {
		return shortError("EQE", len(b), EQESize)
	}
	p := (*[EQESize]byte)(b)
	x.Type = EventType(get32(p[0:4]))
	x.Info = get32(p[4:8])
	return nil
}

// Encode writes x to the first [EQESize] bytes of b and panics if b is shorter.
func (x *EQE) Encode(b []byte) {
	p := (*[EQESize]byte)(b)
	put32(p[0:4], uint32(x.Type))
	put32(p[4:8], x.Info)
}

// CQNESize is the size of [CQNE] in bytes.
const CQNESize = 4

// CQNE is struct pvrdma_cqne (pvrdma_dev_api.h), an entry of the CQ notification ring.
type CQNE struct {
	Info uint32 // CQ handle
}

// Decode reads x from the first [CQNESize] bytes of b; EINVAL if b is shorter.
func (x *CQNE) Decode(b []byte) error {
	if len(b) < CQNESize {
		return shortError("CQNE", len(b), CQNESize)
	}
	p := (*[CQNESize]byte)(b)
	x.Info = get32(p[0:4])
	return nil
}

// Encode writes x to the first [CQNESize] bytes of b and panics if b is shorter.
func (x *CQNE) Encode(b []byte) {
	p := (*[CQNESize]byte)(b)
	put32(p[0:4], x.Info)
}
