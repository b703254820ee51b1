// SPDX-License-Identifier: Apache-2.0

package abi

// Offsets inside the DSR, in bytes, of what the device reads and writes by itself.
const (
	DSRUARPFNOffset = 64 // UARPFN and UARPFN64
	DSRCapsOffset   = 72 // Caps, the only part that the device writes
)

// Offsets inside a ring state, in bytes: what live rings are accessed by.
const (
	RingProdTailOffset = 0
	RingConsHeadOffset = 4

	RingStateTXOffset = 0
	RingStateRXOffset = RingSize
)

// Offsets of the QPAttr in CmdModifyQPReq and in CmdQueryQPResp, in bytes.
const (
	ModifyQPAttrOffset = 24
	QueryQPAttrOffset  = 16
)

// PFNAt returns the frame number of UAR page 0 as a driver and device of that effective
// version understand it. Below VersionPPN64 the upper half is not defined.
func (x *DSR) PFNAt(version uint32) uint64 { return pfnAt(version, x.UARPFN, x.UARPFN64) }

// PFNAt returns the frame number of the context's UAR page as a driver and device of that
// effective version understand it. Below VersionPPN64 the upper half is not defined.
func (x *CmdCreateUCReq) PFNAt(version uint32) uint64 { return pfnAt(version, x.PFN, x.PFN64) }

func pfnAt(version, pfn32 uint32, pfn64 uint64) uint64 {
	if version < VersionPPN64 {
		return uint64(pfn32)
	}
	return pfn64
}

// Bytes returns the MTU in bytes, or 0 if m is no code.
func (m MTU) Bytes() uint32 {
	if m < MTU256 || m > MTU4096 {
		return 0
	}
	return 128 << m
}

// QPMaskAll has all bits of QPAttrMask that Linux sends.
const QPMaskAll = QPMaskMax<<1 - 1

// AVSrcPathBitsSet is the bit of AV.SrcPathBits that Linux always sets.
const AVSrcPathBitsSet = 0x80

// PDHandle returns the handle of the protection domain, 24 bits of PortPD.
func (x *AV) PDHandle() uint32 { return x.PortPD & 0xffffff }

// PortNum returns the port number, 8 bits of PortPD.
func (x *AV) PortNum() uint8 { return uint8(x.PortPD >> 24) }

// TrafficClass returns the traffic class out of SLTClassFlowLabel.
func (x *AV) TrafficClass() uint8 { return uint8(x.SLTClassFlowLabel >> 20) }

// FlowLabel returns the flow label, 20 bits of SLTClassFlowLabel.
func (x *AV) FlowLabel() uint32 { return x.SLTClassFlowLabel & 0xfffff }
