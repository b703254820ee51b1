// SPDX-License-Identifier: Apache-2.0

package abi

// SGESize is the size of [SGE] in bytes.
const SGESize = 16

// SGE is struct pvrdma_sge (vmw_pvrdma-abi.h), a scatter/gather element behind a work
// request's header.
type SGE struct {
	Addr   uint64 // address inside the region of LKey
	Length uint32 // bytes
	LKey   uint32
}

// Decode reads x from the first [SGESize] bytes of b; EINVAL if b is shorter.
func (x *SGE) Decode(b []byte) error {
	if len(b) < SGESize {
		return shortError("SGE", len(b), SGESize)
	}
	p := (*[SGESize]byte)(b)
	x.Addr = get64(p[0:8])
	x.Length = get32(p[8:12])
	x.LKey = get32(p[12:16])
	return nil
}

// Encode writes x to the first [SGESize] bytes of b and panics if b is shorter.
func (x *SGE) Encode(b []byte) {
	p := (*[SGESize]byte)(b)
	put64(p[0:8], x.Addr)
	put32(p[8:12], x.Length)
	put32(p[12:16], x.LKey)
}

// RecvWQEHdrSize is the size of [RecvWQEHdr] in bytes.
const RecvWQEHdrSize = 16

// RecvWQEHdr is struct pvrdma_rq_wqe_hdr (vmw_pvrdma-abi.h); NumSGE elements follow at
// [RecvWQESGEOffset].
type RecvWQEHdr struct {
	WRID     uint64
	NumSGE   uint32 // can be anything: bound it by the queue's maximum
	TotalLen uint32 // reserved; user space leaves old bytes here
}

// Decode reads x from the first [RecvWQEHdrSize] bytes of b; EINVAL if b is shorter.
func (x *RecvWQEHdr) Decode(b []byte) error {
	if len(b) < RecvWQEHdrSize {
		return shortError("RecvWQEHdr", len(b), RecvWQEHdrSize)
	}
	p := (*[RecvWQEHdrSize]byte)(b)
	x.WRID = get64(p[0:8])
	x.NumSGE = get32(p[8:12])
	x.TotalLen = get32(p[12:16])
	return nil
}

// Encode writes x to the first [RecvWQEHdrSize] bytes of b and panics if b is shorter.
func (x *RecvWQEHdr) Encode(b []byte) {
	p := (*[RecvWQEHdrSize]byte)(b)
	put64(p[0:8], x.WRID)
	put32(p[8:12], x.NumSGE)
	put32(p[12:16], x.TotalLen)
}
