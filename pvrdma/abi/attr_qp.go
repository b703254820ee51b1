// SPDX-License-Identifier: Apache-2.0

package abi

// QPCapSize is the size of [QPCap] in bytes.
const QPCapSize = 24

// QPCap is struct pvrdma_qp_cap (pvrdma_verbs.h).
type QPCap struct {
	MaxSendWR     uint32 // work requests
	MaxRecvWR     uint32 // work requests
	MaxSendSGE    uint32
	MaxRecvSGE    uint32
	MaxInlineData uint32 // bytes
}

// Decode reads x from the first [QPCapSize] bytes of b; EINVAL if b is shorter.
func (x *QPCap) Decode(b []byte) error {
	if len(b) < QPCapSize {
		return shortError("QPCap", len(b), QPCapSize)
	}
	x.decode((*[QPCapSize]byte)(b))
	return nil
}

// Encode writes x to the first [QPCapSize] bytes of b and panics if b is shorter.
func (x *QPCap) Encode(b []byte) {
	x.encode((*[QPCapSize]byte)(b))
}

func (x *QPCap) decode(p *[QPCapSize]byte) {
	x.MaxSendWR = get32(p[0:4])
	x.MaxRecvWR = get32(p[4:8])
	x.MaxSendSGE = get32(p[8:12])
	x.MaxRecvSGE = get32(p[12:16])
	x.MaxInlineData = get32(p[16:20])
}

func (x *QPCap) encode(p *[QPCapSize]byte) {
	put32(p[0:4], x.MaxSendWR)
	put32(p[4:8], x.MaxRecvWR)
	put32(p[8:12], x.MaxSendSGE)
	put32(p[12:16], x.MaxRecvSGE)
	put32(p[16:20], x.MaxInlineData)
	clear(p[20:24]) // reserved
}

// QPAttrSize is the size of [QPAttr] in bytes.
const QPAttrSize = 160

// QPAttr is struct pvrdma_qp_attr (pvrdma_verbs.h). A [QPAttrMask] beside it says which
// fields have a meaning; the rest can be anything.
type QPAttr struct {
	QPState          QPState
	CurQPState       QPState
	PathMTU          MTU
	PathMigState     MigState
	QKey             uint32
	RQPSN            uint32 // 24 bits
	SQPSN            uint32 // 24 bits
	DestQPNum        uint32 // 24 bits
	QPAccessFlags    AccessFlags
	PKeyIndex        uint16
	AltPKeyIndex     uint16
	EnSQDAsyncNotify uint8
	SQDraining       uint8
	MaxRdAtomic      uint8
	MaxDestRdAtomic  uint8
	MinRNRTimer      uint8 // code, 0 to 31
	PortNum          uint8 // from 1
	Timeout          uint8 // 4.096 us * 2^n, 0 for none
	RetryCnt         uint8 // 0 to 7
	RNRRetry         uint8 // 0 to 7, where 7 is without end
	AltPortNum       uint8
	AltTimeout       uint8 // like Timeout
	Cap              QPCap
	AHAttr           AHAttr
	AltAHAttr        AHAttr
}

// Decode reads x from the first [QPAttrSize] bytes of b; EINVAL if b is shorter.
func (x *QPAttr) Decode(b []byte) error {
	if len(b) < QPAttrSize {
		return shortError("QPAttr", len(b), QPAttrSize)
	}
	x.decode((*[QPAttrSize]byte)(b))
	return nil
}

// Encode writes x to the first [QPAttrSize] bytes of b and panics if b is shorter.
func (x *QPAttr) Encode(b []byte) {
	x.encode((*[QPAttrSize]byte)(b))
}

func (x *QPAttr) decode(p *[QPAttrSize]byte) {
	x.QPState = QPState(get32(p[0:4]))
	x.CurQPState = QPState(get32(p[4:8]))
	x.PathMTU = MTU(get32(p[8:12]))
	x.PathMigState = MigState(get32(p[12:16]))
	x.QKey = get32(p[16:20])
	x.RQPSN = get32(p[20:24])
	x.SQPSN = get32(p[24:28])
	x.DestQPNum = get32(p[28:32])
	x.QPAccessFlags = AccessFlags(get32(p[32:36]))
	x.PKeyIndex = get16(p[36:38])
	x.AltPKeyIndex = get16(p[38:40])
	x.EnSQDAsyncNotify = p[40]
	x.SQDraining = p[41]
	x.MaxRdAtomic = p[42]
	x.MaxDestRdAtomic = p[43]
	x.MinRNRTimer = p[44]
	x.PortNum = p[45]
	x.Timeout = p[46]
	x.RetryCnt = p[47]
	x.RNRRetry = p[48]
	x.AltPortNum = p[49]
	x.AltTimeout = p[50]
	x.Cap.decode((*[QPCapSize]byte)(p[56:80]))
	x.AHAttr.decode((*[AHAttrSize]byte)(p[80:120]))
	x.AltAHAttr.decode((*[AHAttrSize]byte)(p[120:160]))
}

func (x *QPAttr) encode(p *[QPAttrSize]byte) {
	put32(p[0:4], uint32(x.QPState))
	put32(p[4:8], uint32(x.CurQPState))
	put32(p[8:12], uint32(x.PathMTU))
	put32(p[12:16], uint32(x.PathMigState))
	put32(p[16:20], x.QKey)
	put32(p[20:24], x.RQPSN)
	put32(p[24:28], x.SQPSN)
	put32(p[28:32], x.DestQPNum)
	put32(p[32:36], uint32(x.QPAccessFlags))
	put16(p[36:38], x.PKeyIndex)
	put16(p[38:40], x.AltPKeyIndex)
	p[40] = x.EnSQDAsyncNotify
	p[41] = x.SQDraining
	p[42] = x.MaxRdAtomic
	p[43] = x.MaxDestRdAtomic
	p[44] = x.MinRNRTimer
	p[45] = x.PortNum
	p[46] = x.Timeout
	p[47] = x.RetryCnt
	p[48] = x.RNRRetry
	p[49] = x.AltPortNum
	p[50] = x.AltTimeout
	clear(p[51:56]) // reserved
	x.Cap.encode((*[QPCapSize]byte)(p[56:80]))
	x.AHAttr.encode((*[AHAttrSize]byte)(p[80:120]))
	x.AltAHAttr.encode((*[AHAttrSize]byte)(p[120:160]))
}
