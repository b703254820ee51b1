// SPDX-License-Identifier: Apache-2.0

package abi

// CmdCreateQPReqSize is the size of [CmdCreateQPReq] in bytes.
const CmdCreateQPReqSize = 80

// CmdCreateQPReq is struct pvrdma_cmd_create_qp (pvrdma_dev_api.h).
type CmdCreateQPReq struct {
	Hdr           CmdHeader
	PDirDMA       uint64 // guest address of the page directory
	PDHandle      uint32
	SendCQHandle  uint32
	RecvCQHandle  uint32
	SRQHandle     uint32 // meaningful if IsSRQ is not 0
	MaxSendWR     uint32
	MaxRecvWR     uint32
	MaxSendSGE    uint32
	MaxRecvSGE    uint32
	MaxInlineData uint32 // bytes; Linux sends 0
	LKey          uint32 // Linux sends 0
	AccessFlags   AccessFlags
	TotalChunks   uint16 // pages, the one with the ring state included
	SendChunks    uint16 // pages of the send queue, without the one with the ring state
	MaxAtomicArg  uint16 // Linux sends 0
	SQSigAll      uint8  // not 0: every send completes with a CQE
	QPType        QPType
	IsSRQ         uint8 // not 0: receives come from SRQHandle
}

// Decode reads x from the first [CmdCreateQPReqSize] bytes of b; EINVAL if b is shorter.
func (x *CmdCreateQPReq) Decode(b []byte) error {
	if len(b) < CmdCreateQPReqSize {
		return shortError("CmdCreateQPReq", len(b), CmdCreateQPReqSize)
	}
	p := (*[CmdCreateQPReqSize]byte)(b)
	x.Hdr.decode((*[CmdHeaderSize]byte)(p[0:16]))
	x.PDirDMA = get64(p[16:24])
	x.PDHandle = get32(p[24:28])
	x.SendCQHandle = get32(p[28:32])
	x.RecvCQHandle = get32(p[32:36])
	x.SRQHandle = get32(p[36:40])
	x.MaxSendWR = get32(p[40:44])
	x.MaxRecvWR = get32(p[44:48])
	x.MaxSendSGE = get32(p[48:52])
	x.MaxRecvSGE = get32(p[52:56])
	x.MaxInlineData = get32(p[56:60])
	x.LKey = get32(p[60:64])
	x.AccessFlags = AccessFlags(get32(p[64:68]))
	x.TotalChunks = get16(p[68:70])
	x.SendChunks = get16(p[70:72])
	x.MaxAtomicArg = get16(p[72:74])
	x.SQSigAll = p[74]
	x.QPType = QPType(p[75])
	x.IsSRQ = p[76]
	return nil
}

// Encode writes x to the first [CmdCreateQPReqSize] bytes of b and panics if b is shorter.
func (x *CmdCreateQPReq) Encode(b []byte) {
	p := (*[CmdCreateQPReqSize]byte)(b)
	x.Hdr.encode((*[CmdHeaderSize]byte)(p[0:16]))
	put64(p[16:24], x.PDirDMA)
	put32(p[24:28], x.PDHandle)
	put32(p[28:32], x.SendCQHandle)
	put32(p[32:36], x.RecvCQHandle)
	put32(p[36:40], x.SRQHandle)
	put32(p[40:44], x.MaxSendWR)
	put32(p[44:48], x.MaxRecvWR)
	put32(p[48:52], x.MaxSendSGE)
	put32(p[52:56], x.MaxRecvSGE)
	put32(p[56:60], x.MaxInlineData)
	put32(p[60:64], x.LKey)
	put32(p[64:68], uint32(x.AccessFlags))
	put16(p[68:70], x.TotalChunks)
	put16(p[70:72], x.SendChunks)
	put16(p[72:74], x.MaxAtomicArg)
	p[74] = x.SQSigAll
	p[75] = uint8(x.QPType)
	p[76] = x.IsSRQ
	clear(p[77:80]) // reserved
}

// CmdCreateQPRespSize is the size of [CmdCreateQPResp] in bytes.
const CmdCreateQPRespSize = 40

// CmdCreateQPResp is struct pvrdma_cmd_create_qp_resp (pvrdma_dev_api.h), sent below
// version 20. Linux reads QPN alone.
type CmdCreateQPResp struct {
	Hdr           RespHeader
	QPN           uint32 // also the handle of every later use
	MaxSendWR     uint32
	MaxRecvWR     uint32
	MaxSendSGE    uint32
	MaxRecvSGE    uint32
	MaxInlineData uint32
}

// Decode reads x from the first [CmdCreateQPRespSize] bytes of b; EINVAL if b is shorter.
func (x *CmdCreateQPResp) Decode(b []byte) error {
	if len(b) < CmdCreateQPRespSize {
		return shortError("CmdCreateQPResp", len(b), CmdCreateQPRespSize)
	}
	p := (*[CmdCreateQPRespSize]byte)(b)
	x.Hdr.decode((*[RespHeaderSize]byte)(p[0:16]))
	x.QPN = get32(p[16:20])
	x.MaxSendWR = get32(p[20:24])
	x.MaxRecvWR = get32(p[24:28])
	x.MaxSendSGE = get32(p[28:32])
	x.MaxRecvSGE = get32(p[32:36])
	x.MaxInlineData = get32(p[36:40])
	return nil
}

// Encode writes x to the first [CmdCreateQPRespSize] bytes of b and panics if b is shorter.
func (x *CmdCreateQPResp) Encode(b []byte) {
	p := (*[CmdCreateQPRespSize]byte)(b)
	x.Hdr.encode((*[RespHeaderSize]byte)(p[0:16]))
	put32(p[16:20], x.QPN)
	put32(p[20:24], x.MaxSendWR)
	put32(p[24:28], x.MaxRecvWR)
	put32(p[28:32], x.MaxSendSGE)
	put32(p[32:36], x.MaxRecvSGE)
	put32(p[36:40], x.MaxInlineData)
}

// CmdCreateQPRespV2Size is the size of [CmdCreateQPRespV2] in bytes.
const CmdCreateQPRespV2Size = 48

// CmdCreateQPRespV2 is struct pvrdma_cmd_create_qp_resp_v2 (pvrdma_dev_api.h), sent from
// version 20 on. Linux reads QPN and QPHandle alone.
type CmdCreateQPRespV2 struct {
	Hdr           RespHeader
	QPN           uint32 // the number that peers address
	QPHandle      uint32 // the handle of every later use; 0 is not for user QPs
	MaxSendWR     uint32
	MaxRecvWR     uint32
	MaxSendSGE    uint32
	MaxRecvSGE    uint32
	MaxInlineData uint32
}

// Decode reads x from the first [CmdCreateQPRespV2Size] bytes of b; EINVAL if b is shorter.
func (x *CmdCreateQPRespV2) Decode(b []byte) error {
	if len(b) < CmdCreateQPRespV2Size {
		return shortError("CmdCreateQPRespV2", len(b), CmdCreateQPRespV2Size)
	}
	p := (*[CmdCreateQPRespV2Size]byte)(b)
	x.Hdr.decode((*[RespHeaderSize]byte)(p[0:16]))
	x.QPN = get32(p[16:20])
	x.QPHandle = get32(p[20:24])
	x.MaxSendWR = get32(p[24:28])
	x.MaxRecvWR = get32(p[28:32])
	x.MaxSendSGE = get32(p[32:36])
	x.MaxRecvSGE = get32(p[36:40])
	x.MaxInlineData = get32(p[40:44])
	return nil
}

// Encode writes x to the first [CmdCreateQPRespV2Size] bytes of b and panics if b is shorter.
func (x *CmdCreateQPRespV2) Encode(b []byte) {
	p := (*[CmdCreateQPRespV2Size]byte)(b)
	x.Hdr.encode((*[RespHeaderSize]byte)(p[0:16]))
	put32(p[16:20], x.QPN)
	put32(p[20:24], x.QPHandle)
	put32(p[24:28], x.MaxSendWR)
	put32(p[28:32], x.MaxRecvWR)
	put32(p[32:36], x.MaxSendSGE)
	put32(p[36:40], x.MaxRecvSGE)
	put32(p[40:44], x.MaxInlineData)
	clear(p[44:48]) // the compiler's padding; 32-bit guests end before it
}
