// SPDX-License-Identifier: Apache-2.0

package abi

// GlobalRouteSize is the size of [GlobalRoute] in bytes.
const GlobalRouteSize = 24

// GlobalRoute is struct pvrdma_global_route (pvrdma_verbs.h).
type GlobalRoute struct {
	DGID         GID
	FlowLabel    uint32 // 20 bits, a number (not network byte order)
	SGIDIndex    uint8  // of the guest's GID table
	HopLimit     uint8
	TrafficClass uint8
}

// Decode reads x from the first [GlobalRouteSize] bytes of b; EINVAL if b is shorter.
func (x *GlobalRoute) Decode(b []byte) error {
	if len(b) < GlobalRouteSize {
		return shortError("GlobalRoute", len(b), GlobalRouteSize)
	}
	x.decode((*[GlobalRouteSize]byte)(b))
	return nil
}

// Encode writes x to the first [GlobalRouteSize] bytes of b and panics if b is shorter.
func (x *GlobalRoute) Encode(b []byte) {
	x.encode((*[GlobalRouteSize]byte)(b))
}

func (x *GlobalRoute) decode(p *[GlobalRouteSize]byte) {
	x.DGID = GID(p[0:16])
	x.FlowLabel = get32(p[16:20])
	x.SGIDIndex = p[20]
	x.HopLimit = p[21]
	x.TrafficClass = p[22]
}

func (x *GlobalRoute) encode(p *[GlobalRouteSize]byte) {
	copy(p[0:16], x.DGID[:])
	put32(p[16:20], x.FlowLabel)
	p[20] = x.SGIDIndex
	p[21] = x.HopLimit
	p[22] = x.TrafficClass
	clear(p[23:24]) // reserved
}

// AHAttrSize is the size of [AHAttr] in bytes.
const AHAttrSize = 40

// AHAttr is struct pvrdma_ah_attr (pvrdma_verbs.h).
type AHAttr struct {
	GRH         GlobalRoute
	DLID        uint16
	VLANID      uint16 // never set by Linux
	SL          uint8
	SrcPathBits uint8
	StaticRate  Rate
	AHFlags     AHFlags
	PortNum     uint8   // from 1
	DMAC        [6]byte // destination MAC address
}

// Decode reads x from the first [AHAttrSize] bytes of b; EINVAL if b is shorter.
func (x *AHAttr) Decode(b []byte) error {
	if len(b) < AHAttrSize {
		return shortError("AHAttr", len(b), AHAttrSize)
	}
	x.decode((*[AHAttrSize]byte)(b))
	return nil
}

// Encode writes x to the first [AHAttrSize] bytes of b and panics if b is shorter.
func (x *AHAttr) Encode(b []byte) {
	x.encode((*[AHAttrSize]byte)(b))
}

func (x *AHAttr) decode(p *[AHAttrSize]byte) {
	x.GRH.decode((*[GlobalRouteSize]byte)(p[0:24]))
	x.DLID = get16(p[24:26])
	x.VLANID = get16(p[26:28])
	x.SL = p[28]
	x.SrcPathBits = p[29]
	x.StaticRate = Rate(p[30])
	x.AHFlags = AHFlags(p[31])
	x.PortNum = p[32]
	x.DMAC = [6]byte(p[33:39])
}

func (x *AHAttr) encode(p *[AHAttrSize]byte) {
	x.GRH.encode((*[GlobalRouteSize]byte)(p[0:24]))
	put16(p[24:26], x.DLID)
	put16(p[26:28], x.VLANID)
	p[28] = x.SL
	p[29] = x.SrcPathBits
	p[30] = uint8(x.StaticRate)
	p[31] = uint8(x.AHFlags)
	p[32] = x.PortNum
	copy(p[33:39], x.DMAC[:])
	clear(p[39:40]) // reserved
}
