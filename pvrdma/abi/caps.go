// SPDX-License-Identifier: Apache-2.0

package abi

// DeviceCapsSize is the size of [DeviceCaps] in bytes.
const DeviceCapsSize = 208

// DeviceCaps is struct pvrdma_device_caps (pvrdma_dev_api.h): what the device can do. The
// device writes it into the shared region when the driver sets the region's address; the
// driver reads some of it for the whole life of the device. Linux ignores the fields marked
// "unused".
type DeviceCaps struct {
	FWVer                 uint64  // shown as (v>>32).(v>>16&0xffff).(v&0xffff)
	NodeGUID              [8]byte // EUI-64 in network byte order, copied raw
	SysImageGUID          [8]byte // likewise
	MaxMRSize             uint64  // bytes
	PageSizeCap           uint64  // bit mask of page sizes in bytes
	AtomicArgSizes        uint64  // unused
	ExCompMask            uint32  // unused
	DeviceCapFlags2       uint32  // unused
	MaxFaBitBoundary      uint32  // unused
	LogMaxAtomicInlineArg uint32  // unused
	VendorID              uint32
	VendorPartID          uint32 // unused
	HWVer                 uint32
	MaxQP                 uint32 // at most 65535: user space keeps 16 bits of it
	MaxQPWR               uint32 // a power of two: Linux rounds up after its check
	DeviceCapFlags        uint32
	MaxSGE                uint32 // a power of two, at most 128: Linux rounds up after its check
	MaxSGERd              uint32 // from version 18
	MaxCQ                 uint32
	MaxCQE                uint32 // a power of two, at least 1024 for QP1
	MaxMR                 uint32
	MaxPD                 uint32
	MaxQPRdAtom           uint32
	MaxEERdAtom           uint32 // unused
	MaxResRdAtom          uint32 // unused
	MaxQPInitRdAtom       uint32
	MaxEEInitRdAtom       uint32 // unused
	MaxEE                 uint32 // unused
	MaxRDD                uint32 // unused
	MaxMW                 uint32 // unused
	MaxRawIPv6QP          uint32 // unused
	MaxRawEthyQP          uint32 // unused
	MaxMcastGrp           uint32 // unused
	MaxMcastQPAttach      uint32 // unused
	MaxTotalMcastQPAttach uint32 // unused
	MaxAH                 uint32
	MaxFMR                uint32 // unused
	MaxMapPerFMR          uint32 // unused
	MaxSRQ                uint32 // 0 hides shared receive queues
	MaxSRQWR              uint32
	MaxSRQSGE             uint32
	MaxUAR                uint32 // must be a power of two; page 0 is the kernel's
	GIDTblLen             uint32 // not less than PortAttr.GIDTblLen
	MaxPKeys              uint16
	LocalCAAckDelay       uint8 // 4.096 us * 2^n
	PhysPortCnt           uint8
	Mode                  DeviceMode // must be DeviceModeRoCE
	AtomicOps             AtomicOps  // any of the first two bits lets Linux report atomics
	BMMEFlags             BMMEFlags  // all three bits or none have an effect
	GIDTypes              GIDTypes   // exactly one bit: see AcceptCaps
	MaxFastRegPageListLen uint32     // pages; from version 18
}

// Decode reads x from the first [DeviceCapsSize] bytes of b; EINVAL if b is shorter.
func (x *DeviceCaps) Decode(b []byte) error {
	if len(b) < DeviceCapsSize {
		return shortError("DeviceCaps", len(b), DeviceCapsSize)
	}
	x.decode((*[DeviceCapsSize]byte)(b))
	return nil
}

// Encode writes x to the first [DeviceCapsSize] bytes of b and panics if b is shorter.
func (x *DeviceCaps) Encode(b []byte) {
	x.encode((*[DeviceCapsSize]byte)(b))
}

func (x *DeviceCaps) decode(p *[DeviceCapsSize]byte) {
	x.FWVer = get64(p[0:8])
	x.NodeGUID = [8]byte(p[8:16])
	x.SysImageGUID = [8]byte(p[16:24])
	x.MaxMRSize = get64(p[24:32])
	x.PageSizeCap = get64(p[32:40])
	x.AtomicArgSizes = get64(p[40:48])
	x.ExCompMask = get32(p[48:52])
	x.DeviceCapFlags2 = get32(p[52:56])
	x.MaxFaBitBoundary = get32(p[56:60])
	x.LogMaxAtomicInlineArg = get32(p[60:64])
	x.VendorID = get32(p[64:68])
	x.VendorPartID = get32(p[68:72])
	x.HWVer = get32(p[72:76])
	x.MaxQP = get32(p[76:80])
	x.MaxQPWR = get32(p[80:84])
	x.DeviceCapFlags = get32(p[84:88])
	x.MaxSGE = get32(p[88:92])
	x.MaxSGERd = get32(p[92:96])
	x.MaxCQ = get32(p[96:100])
	x.MaxCQE = get32(p[100:104])
	x.MaxMR = get32(p[104:108])
	x.MaxPD = get32(p[108:112])
	x.MaxQPRdAtom = get32(p[112:116])
	x.MaxEERdAtom = get32(p[116:120])
	x.MaxResRdAtom = get32(p[120:124])
	x.MaxQPInitRdAtom = get32(p[124:128])
	x.MaxEEInitRdAtom = get32(p[128:132])
	x.MaxEE = get32(p[132:136])
	x.MaxRDD = get32(p[136:140])
	x.MaxMW = get32(p[140:144])
	x.MaxRawIPv6QP = get32(p[144:148])
	x.MaxRawEthyQP = get32(p[148:152])
	x.MaxMcastGrp = get32(p[152:156])
	x.MaxMcastQPAttach = get32(p[156:160])
	x.MaxTotalMcastQPAttach = get32(p[160:164])
	x.MaxAH = get32(p[164:168])
	x.MaxFMR = get32(p[168:172])
	x.MaxMapPerFMR = get32(p[172:176])
	x.MaxSRQ = get32(p[176:180])
	x.MaxSRQWR = get32(p[180:184])
	x.MaxSRQSGE = get32(p[184:188])
	x.MaxUAR = get32(p[188:192])
	x.GIDTblLen = get32(p[192:196])
	x.MaxPKeys = get16(p[196:198])
	x.LocalCAAckDelay = p[198]
	x.PhysPortCnt = p[199]
	x.Mode = DeviceMode(p[200])
	x.AtomicOps = AtomicOps(p[201])
	x.BMMEFlags = BMMEFlags(p[202])
	x.GIDTypes = GIDTypes(p[203])
	x.MaxFastRegPageListLen = get32(p[204:208])
}

func (x *DeviceCaps) encode(p *[DeviceCapsSize]byte) {
	put64(p[0:8], x.FWVer)
	copy(p[8:16], x.NodeGUID[:])
	copy(p[16:24], x.SysImageGUID[:])
	put64(p[24:32], x.MaxMRSize)
	put64(p[32:40], x.PageSizeCap)
	put64(p[40:48], x.AtomicArgSizes)
	put32(p[48:52], x.ExCompMask)
	put32(p[52:56], x.DeviceCapFlags2)
	put32(p[56:60], x.MaxFaBitBoundary)
	put32(p[60:64], x.LogMaxAtomicInlineArg)
	put32(p[64:68], x.VendorID)
	put32(p[68:72], x.VendorPartID)
	put32(p[72:76], x.HWVer)
	put32(p[76:80], x.MaxQP)
	put32(p[80:84], x.MaxQPWR)
	put32(p[84:88], x.DeviceCapFlags)
	put32(p[88:92], x.MaxSGE)
	put32(p[92:96], x.MaxSGERd)
	put32(p[96:100], x.MaxCQ)
	put32(p[100:104], x.MaxCQE)
	put32(p[104:108], x.MaxMR)
	put32(p[108:112], x.MaxPD)
	put32(p[112:116], x.MaxQPRdAtom)
	put32(p[116:120], x.MaxEERdAtom)
	put32(p[120:124], x.MaxResRdAtom)
	put32(p[124:128], x.MaxQPInitRdAtom)
	put32(p[128:132], x.MaxEEInitRdAtom)
	put32(p[132:136], x.MaxEE)
	put32(p[136:140], x.MaxRDD)
	put32(p[140:144], x.MaxMW)
	put32(p[144:148], x.MaxRawIPv6QP)
	put32(p[148:152], x.MaxRawEthyQP)
	put32(p[152:156], x.MaxMcastGrp)
	put32(p[156:160], x.MaxMcastQPAttach)
	put32(p[160:164], x.MaxTotalMcastQPAttach)
	put32(p[164:168], x.MaxAH)
	put32(p[168:172], x.MaxFMR)
	put32(p[172:176], x.MaxMapPerFMR)
	put32(p[176:180], x.MaxSRQ)
	put32(p[180:184], x.MaxSRQWR)
	put32(p[184:188], x.MaxSRQSGE)
	put32(p[188:192], x.MaxUAR)
	put32(p[192:196], x.GIDTblLen)
	put16(p[196:198], x.MaxPKeys)
	p[198] = x.LocalCAAckDelay
	p[199] = x.PhysPortCnt
	p[200] = uint8(x.Mode)
	p[201] = uint8(x.AtomicOps)
	p[202] = uint8(x.BMMEFlags)
	p[203] = uint8(x.GIDTypes)
	put32(p[204:208], x.MaxFastRegPageListLen)
}
