// SPDX-License-Identifier: Apache-2.0

package abi

// GOSInfoSize is the size of [GOSInfo] in bytes.
const GOSInfoSize = 8

// GOSInfo is struct pvrdma_gos_info (pvrdma_dev_api.h), what the driver says about the
// guest's operating system. In C these are bitfields of one 32-bit word; Encode drops bits
// that do not fit.
type GOSInfo struct {
	GOSBits GOSBits // 2 bits
	GOSType GOSType // 4 bits
	GOSVer  uint16  // 16 bits
	GOSMisc uint16  // 10 bits
}

// Decode reads x from the first [GOSInfoSize] bytes of b; EINVAL if b is shorter.
func (x *GOSInfo) Decode(b []byte) error {
	if len(b) < GOSInfoSize {
		return shortError("GOSInfo", len(b), GOSInfoSize)
	}
	x.decode((*[GOSInfoSize]byte)(b))
	return nil
}

// Encode writes x to the first [GOSInfoSize] bytes of b and panics if b is shorter.
func (x *GOSInfo) Encode(b []byte) {
	x.encode((*[GOSInfoSize]byte)(b))
}

func (x *GOSInfo) decode(p *[GOSInfoSize]byte) {
	w := get32(p[0:4])
	x.GOSBits = GOSBits(w & 3)
	x.GOSType = GOSType(w >> 2 & 0xf)
	x.GOSVer = uint16(w >> 6 & 0xffff)
	x.GOSMisc = uint16(w >> 22)
}

func (x *GOSInfo) encode(p *[GOSInfoSize]byte) {
	w := uint32(x.GOSBits&3) | uint32(x.GOSType&0xf)<<2 | uint32(x.GOSVer)<<6 | uint32(x.GOSMisc)<<22
	put32(p[0:4], w)
	clear(p[4:8]) // pad
}

// RingPageInfoSize is the size of [RingPageInfo] in bytes.
const RingPageInfoSize = 16

// RingPageInfo is struct pvrdma_ring_page_info (pvrdma_dev_api.h): where one of the two
// device-level rings lives. The driver writes it.
type RingPageInfo struct {
	NumPages uint32 // pages, the one with the ring state included
	PDirDMA  uint64 // guest address of the page directory
}

// Decode reads x from the first [RingPageInfoSize] bytes of b; EINVAL if b is shorter.
func (x *RingPageInfo) Decode(b []byte) error {
	if len(b) < RingPageInfoSize {
		return shortError("RingPageInfo", len(b), RingPageInfoSize)
	}
	x.decode((*[RingPageInfoSize]byte)(b))
	return nil
}

// Encode writes x to the first [RingPageInfoSize] bytes of b and panics if b is shorter.
func (x *RingPageInfo) Encode(b []byte) {
	x.encode((*[RingPageInfoSize]byte)(b))
}

func (x *RingPageInfo) decode(p *[RingPageInfoSize]byte) {
	x.NumPages = get32(p[0:4])
	x.PDirDMA = get64(p[8:16])
}

func (x *RingPageInfo) encode(p *[RingPageInfoSize]byte) {
	put32(p[0:4], x.NumPages)
	clear(p[4:8]) // reserved
	put64(p[8:16], x.PDirDMA)
}

// DSRSize is the size of [DSR] in bytes.
const DSRSize = 280

// DSR is struct pvrdma_device_shared_region (pvrdma_dev_api.h). The driver fills it up to
// the capabilities, which the device fills.
type DSR struct {
	DriverVersion  uint32 // the driver's own maximum, VersionRoCEv1 and up
	GOSInfo        GOSInfo
	CmdSlotDMA     uint64       // guest address of a page; requests are written there
	RespSlotDMA    uint64       // guest address of a page; the device writes responses there
	AsyncRingPages RingPageInfo // asynchronous events, EQE
	CQRingPages    RingPageInfo // CQ notifications, CQNE
	UARPFN         uint32       // below version 19: see PFNAt; the low half of UARPFN64
	UARPFN64       uint64       // from version 19 on
	Caps           DeviceCaps
}

// Decode reads x from the first [DSRSize] bytes of b; EINVAL if b is shorter.
func (x *DSR) Decode(b []byte) error {
	if len(b) < DSRSize {
		return shortError("DSR", len(b), DSRSize)
	}
	p := (*[DSRSize]byte)(b)
	x.DriverVersion = get32(p[0:4])
	x.GOSInfo.decode((*[GOSInfoSize]byte)(p[8:16]))
	x.CmdSlotDMA = get64(p[16:24])
	x.RespSlotDMA = get64(p[24:32])
	x.AsyncRingPages.decode((*[RingPageInfoSize]byte)(p[32:48]))
	x.CQRingPages.decode((*[RingPageInfoSize]byte)(p[48:64]))
	x.UARPFN = get32(p[64:68])
	x.UARPFN64 = get64(p[64:72])
	x.Caps.decode((*[DeviceCapsSize]byte)(p[72:280]))
	return nil
}

// Encode writes x to the first [DSRSize] bytes of b and panics if b is shorter.
func (x *DSR) Encode(b []byte) {
	p := (*[DSRSize]byte)(b)
	put32(p[0:4], x.DriverVersion)
	clear(p[4:8]) // pad
	x.GOSInfo.encode((*[GOSInfoSize]byte)(p[8:16]))
	put64(p[16:24], x.CmdSlotDMA)
	put64(p[24:32], x.RespSlotDMA)
	x.AsyncRingPages.encode((*[RingPageInfoSize]byte)(p[32:48]))
	x.CQRingPages.encode((*[RingPageInfoSize]byte)(p[48:64]))
	put64(p[64:72], x.UARPFN64|uint64(x.UARPFN)) // a union: one of them, or both as decoded
	x.Caps.encode((*[DeviceCapsSize]byte)(p[72:280]))
}
