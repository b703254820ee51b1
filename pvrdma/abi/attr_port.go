// SPDX-License-Identifier: Apache-2.0

package abi

// PortAttrSize is the size of [PortAttr] in bytes.
const PortAttrSize = 48

// PortAttr is struct pvrdma_port_attr (pvrdma_verbs.h).
type PortAttr struct {
	State         PortState
	MaxMTU        MTU
	ActiveMTU     MTU
	GIDTblLen     uint32 // at most DeviceCaps.GIDTblLen, or Linux writes past its table
	PortCapFlags  PortCapFlags
	MaxMsgSz      uint32 // bytes
	BadPKeyCntr   uint32
	QKeyViolCntr  uint32
	PKeyTblLen    uint16 // at least 1; Linux queries each
	LID           uint16
	SMLID         uint16
	LMC           uint8
	MaxVLNum      uint8
	SMSL          uint8
	SubnetTimeout uint8 // 4.096 us * 2^n
	InitTypeReply uint8
	ActiveWidth   PortWidth
	ActiveSpeed   PortSpeed
	PhysState     uint8 // 5 is LinkUp
}

// Decode reads x from the first [PortAttrSize] bytes of b; EINVAL if b is shorter.
func (x *PortAttr) Decode(b []byte) error {
	if len(b) < PortAttrSize {
		return shortError("PortAttr", len(b), PortAttrSize)
	}
	x.decode((*[PortAttrSize]byte)(b))
	return nil
}

// Encode writes x to the first [PortAttrSize] bytes of b and panics if b is shorter.
func (x *PortAttr) Encode(b []byte) {
	x.encode((*[PortAttrSize]byte)(b))
}

func (x *PortAttr) decode(p *[PortAttrSize]byte) {
	x.State = PortState(get32(p[0:4]))
	x.MaxMTU = MTU(get32(p[4:8]))
	x.ActiveMTU = MTU(get32(p[8:12]))
	x.GIDTblLen = get32(p[12:16])
	x.PortCapFlags = PortCapFlags(get32(p[16:20]))
	x.MaxMsgSz = get32(p[20:24])
	x.BadPKeyCntr = get32(p[24:28])
	x.QKeyViolCntr = get32(p[28:32])
	x.PKeyTblLen = get16(p[32:34])
	x.LID = get16(p[34:36])
	x.SMLID = get16(p[36:38])
	x.LMC = p[38]
	x.MaxVLNum = p[39]
	x.SMSL = p[40]
	x.SubnetTimeout = p[41]
	x.InitTypeReply = p[42]
	x.ActiveWidth = PortWidth(p[43])
	x.ActiveSpeed = PortSpeed(p[44])
	x.PhysState = p[45]
}

func (x *PortAttr) encode(p *[PortAttrSize]byte) {
	put32(p[0:4], uint32(x.State))
	put32(p[4:8], uint32(x.MaxMTU))
	put32(p[8:12], uint32(x.ActiveMTU))
	put32(p[12:16], x.GIDTblLen)
	put32(p[16:20], uint32(x.PortCapFlags))
	put32(p[20:24], x.MaxMsgSz)
	put32(p[24:28], x.BadPKeyCntr)
	put32(p[28:32], x.QKeyViolCntr)
	put16(p[32:34], x.PKeyTblLen)
	put16(p[34:36], x.LID)
	put16(p[36:38], x.SMLID)
	p[38] = x.LMC
	p[39] = x.MaxVLNum
	p[40] = x.SMSL
	p[41] = x.SubnetTimeout
	p[42] = x.InitTypeReply
	p[43] = uint8(x.ActiveWidth)
	p[44] = uint8(x.ActiveSpeed)
	p[45] = x.PhysState
	clear(p[46:48]) // reserved
}
