// SPDX-License-Identifier: Apache-2.0

package abi

// AVSize is the size of [AV] in bytes.
const AVSize = 40

// AV is struct pvrdma_av (vmw_pvrdma-abi.h), the address vector inside a datagram work
// request.
type AV struct {
	PortPD            uint32 // PD handle (24 bits), port number above it
	SLTClassFlowLabel uint32 // flow label (20 bits), traffic class above it; no SL
	DGID              GID
	SrcPathBits       uint8 // Linux sets bit 7
	GIDIndex          uint8 // of the guest's GID table
	StatRate          uint8
	HopLimit          uint8
	DMAC              [6]byte // destination MAC address
}

// Decode reads x from the first [AVSize] bytes of b; EINVAL if b is shorter.
func (x *AV) Decode(b []byte) error {
	if len(b) < AVSize {
		return shortError("AV", len(b), AVSize)
	}
	x.decode((*[AVSize]byte)(b))
	return nil
}

// Encode writes x to the first [AVSize] bytes of b and panics if b is shorter.
func (x *AV) Encode(b []byte) {
	x.encode((*[AVSize]byte)(b))
}

func (x *AV) decode(p *[AVSize]byte) {
	x.PortPD = get32(p[0:4])
	x.SLTClassFlowLabel = get32(p[4:8])
	x.DGID = GID(p[8:24])
	x.SrcPathBits = p[24]
	x.GIDIndex = p[25]
	x.StatRate = p[26]
	x.HopLimit = p[27]
	x.DMAC = [6]byte(p[28:34])
}

func (x *AV) encode(p *[AVSize]byte) {
	put32(p[0:4], x.PortPD)
	put32(p[4:8], x.SLTClassFlowLabel)
	copy(p[8:24], x.DGID[:])
	p[24] = x.SrcPathBits
	p[25] = x.GIDIndex
	p[26] = x.StatRate
	p[27] = x.HopLimit
	copy(p[28:34], x.DMAC[:])
	clear(p[34:40]) // reserved
}
