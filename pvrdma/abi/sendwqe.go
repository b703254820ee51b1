// SPDX-License-Identifier: Apache-2.0

package abi

// SendWQEHdrSize is the size of [SendWQEHdr] in bytes.
const SendWQEHdrSize = 80

// SendWQEHdr is struct pvrdma_sq_wqe_hdr (vmw_pvrdma-abi.h) without its union wr, which
// starts at [SendWQEWROffset] and is decoded from there as [RDMAWR], [AtomicWR],
// [MaskedCmpSwapWR], [MaskedFetchAddWR], [FastRegWR] or [UDWR]. NumSGE elements follow at
// [SendWQESGEOffset]. User space leaves old bytes in whatever the opcode does not need.
//
// Encode writes the union's bytes as zero: encode the union after it.
type SendWQEHdr struct {
	WRID      uint64
	NumSGE    uint32 // can be anything: bound it by the queue's maximum
	TotalLen  uint32 // reserved; user space leaves old bytes here
	Opcode    WROpcode
	SendFlags SendFlags
	// Ex is the union of imm_data (big-endian) and invalidate_rkey (little-endian), as
	// a little-endian load: an rkey is the number itself; immediate data must be passed
	// on as these four bytes, unswapped, to CQE.ImmData.
	Ex uint32
}

// Decode reads x from the first [SendWQEHdrSize] bytes of b; EINVAL if b is shorter.
func (x *SendWQEHdr) Decode(b []byte) error {
	if len(b) < SendWQEHdrSize {
		return shortError("SendWQEHdr", len(b), SendWQEHdrSize)
	}
	p := (*[SendWQEHdrSize]byte)(b)
	x.WRID = get64(p[0:8])
	x.NumSGE = get32(p[8:12])
	x.TotalLen = get32(p[12:16])
	x.Opcode = WROpcode(get32(p[16:20]))
	x.SendFlags = SendFlags(get32(p[20:24]))
	x.Ex = get32(p[24:28])
	return nil
}

// Encode writes x to the first [SendWQEHdrSize] bytes of b and panics if b is shorter.
func (x *SendWQEHdr) Encode(b []byte) {
	p := (*[SendWQEHdrSize]byte)(b)
	put64(p[0:8], x.WRID)
	put32(p[8:12], x.NumSGE)
	put32(p[12:16], x.TotalLen)
	put32(p[16:20], uint32(x.Opcode))
	put32(p[20:24], uint32(x.SendFlags))
	put32(p[24:28], x.Ex)
	clear(p[28:32]) // reserved
	clear(p[32:80]) // union wr
}
