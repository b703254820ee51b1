// SPDX-License-Identifier: Apache-2.0

package abi

// CQESize is the size of [CQE] in bytes.
const CQESize = 64

// CQE is struct pvrdma_cqe (vmw_pvrdma-abi.h), a completion.
type CQE struct {
	WRID           uint64 // of the work request, verbatim
	QP             uint64 // QP handle (not its number), zero-extended
	Opcode         WCOpcode
	Status         WCStatus
	ByteLen        uint32 // bytes, the 40 of a datagram's GRH included
	ImmData        uint32 // raw: the four bytes as loaded, see SendWQEHdr.Ex
	SrcQP          uint32 // number of a datagram's sender
	WCFlags        WCFlags
	VendorErr      uint32
	PKeyIndex      uint16
	SLID           uint16
	SL             uint8
	DLIDPathBits   uint8
	PortNum        uint8
	SMAC           [6]byte // never read by Linux
	NetworkHdrType NetworkType
}

// Decode reads x from the first [CQESize] bytes of b; EINVAL if b is shorter.
func (x *CQE) Decode(b []byte) error {
	if len(b) < CQESize {
		return shortError("CQE", len(b), CQESize)
	}
	p := (*[CQESize]byte)(b)
	x.WRID = get64(p[0:8])
	x.QP = get64(p[8:16])
	x.Opcode = WCOpcode(get32(p[16:20]))
	x.Status = WCStatus(get32(p[20:24]))
	x.ByteLen = get32(p[24:28])
	x.ImmData = get32(p[28:32])
	x.SrcQP = get32(p[32:36])
	x.WCFlags = WCFlags(get32(p[36:40]))
	x.VendorErr = get32(p[40:44])
	x.PKeyIndex = get16(p[44:46])
	x.SLID = get16(p[46:48])
	x.SL = p[48]
	x.DLIDPathBits = p[49]
	x.PortNum = p[50]
	x.SMAC = [6]byte(p[51:57])
	x.NetworkHdrType = NetworkType(p[57])
	return nil
}

// Encode writes x to the first [CQESize] bytes of b and panics if b is shorter.
func (x *CQE) Encode(b []byte) {
	p := (*[CQESize]byte)(b)
	put64(p[0:8], x.WRID)
	put64(p[8:16], x.QP)
	put32(p[16:20], uint32(x.Opcode))
	put32(p[20:24], uint32(x.Status))
	put32(p[24:28], x.ByteLen)
	put32(p[28:32], x.ImmData)
	put32(p[32:36], x.SrcQP)
	put32(p[36:40], uint32(x.WCFlags))
	put32(p[40:44], x.VendorErr)
	put16(p[44:46], x.PKeyIndex)
	put16(p[46:48], x.SLID)
	p[48] = x.SL
	p[49] = x.DLIDPathBits
	p[50] = x.PortNum
	copy(p[51:57], x.SMAC[:])
	p[57] = uint8(x.NetworkHdrType)
	clear(p[58:64]) // reserved2
}
