// SPDX-License-Identifier: Apache-2.0

package abi

// GRHSize is the size of [GRH] in bytes.
const GRHSize = 40

// GRH is struct pvrdma_grh (pvrdma_verbs.h), the 40 bytes before the payload of a datagram
// receive. Its numbers are big-endian in memory and ordinary numbers here.
type GRH struct {
	VersionTClassFlow uint32 // 4, 8 and 20 bits
	PayLen            uint16 // bytes
	NextHdr           uint8
	HopLimit          uint8
	SGID              GID
	DGID              GID
}

// Decode reads x from the first [GRHSize] bytes of b; EINVAL if b is shorter.
func (x *GRH) Decode(b []byte) error {
	if len(b) < GRHSize {
		return shortError("GRH", len(b), GRHSize)
	}
	p := (*[GRHSize]byte)(b)
	x.VersionTClassFlow = getBE32(p[0:4])
	x.PayLen = getBE16(p[4:6])
	x.NextHdr = p[6]
	x.HopLimit = p[7]
	x.SGID = GID(p[8:24])
	x.DGID = GID(p[24:40])
	return nil
}

// Encode writes x to the first [GRHSize] bytes of b and panics if b is shorter.
func (x *GRH) Encode(b []byte) {
	p := (*[GRHSize]byte)(b)
	putBE32(p[0:4], x.VersionTClassFlow)
	putBE16(p[4:6], x.PayLen)
	p[6] = x.NextHdr
	p[7] = x.HopLimit
	copy(p[8:24], x.SGID[:])
	copy(p[24:40], x.DGID[:])
}
