// SPDX-License-Identifier: Apache-2.0

package abi

// CmdCreateSRQReqSize is the size of [CmdCreateSRQReq] in bytes.
const CmdCreateSRQReqSize = 56

// CmdCreateSRQReq is struct pvrdma_cmd_create_srq (pvrdma_dev_api.h).
type CmdCreateSRQReq struct {
	Hdr      CmdHeader
	PDirDMA  uint64 // guest address of the page directory
	PDHandle uint32
	NChunks  uint32 // pages, the one with the ring state included; may exceed SRQPages
	Attrs    SRQAttr
	SRQType  uint8 // 0, basic, is all that Linux sends
}

// Decode reads x from the first [CmdCreateSRQReqSize] bytes of b; EINVAL if b is shorter.
func (x *CmdCreateSRQReq) Decode(b []byte) error {
	if len(b) < CmdCreateSRQReqSize {
		return shortError("CmdCreateSRQReq", len(b), CmdCreateSRQReqSize)
	}
	p := (*[CmdCreateSRQReqSize]byte)(b)
	x.Hdr.decode((*[CmdHeaderSize]byte)(p[0:16]))
	x.PDirDMA = get64(p[16:24])
	x.PDHandle = get32(p[24:28])
	x.NChunks = get32(p[28:32])
	x.Attrs.decode((*[SRQAttrSize]byte)(p[32:48]))
	x.SRQType = p[48]
	return nil
}

// Encode writes x to the first [CmdCreateSRQReqSize] bytes of b and panics if b is shorter.
func (x *CmdCreateSRQReq) Encode(b []byte) {
	p := (*[CmdCreateSRQReqSize]byte)(b)
	x.Hdr.encode((*[CmdHeaderSize]byte)(p[0:16]))
	put64(p[16:24], x.PDirDMA)
	put32(p[24:28], x.PDHandle)
	put32(p[28:32], x.NChunks)
	x.Attrs.encode((*[SRQAttrSize]byte)(p[32:48]))
	p[48] = x.SRQType
	clear(p[49:56]) // reserved
}

// CmdCreateSRQRespSize is the size of [CmdCreateSRQResp] in bytes.
const CmdCreateSRQRespSize = 24

// CmdCreateSRQResp is struct pvrdma_cmd_create_srq_resp (pvrdma_dev_api.h).
type CmdCreateSRQResp struct {
	Hdr  RespHeader
	SRQN uint32 // the handle of every later use
}

// Decode reads x from the first [CmdCreateSRQRespSize] bytes of b; EINVAL if b is shorter.
func (x *CmdCreateSRQResp) Decode(b []byte) error {
	if len(b) < CmdCreateSRQRespSize {
		return shortError("CmdCreateSRQResp", len(b), CmdCreateSRQRespSize)
	}
	p := (*[CmdCreateSRQRespSize]byte)(b)
	x.Hdr.decode((*[RespHeaderSize]byte)(p[0:16]))
	x.SRQN = get32(p[16:20])
	return nil
}

// Encode writes x to the first [CmdCreateSRQRespSize] bytes of b and panics if b is shorter.
func (x *CmdCreateSRQResp) Encode(b []byte) {
	p := (*[CmdCreateSRQRespSize]byte)(b)
	x.Hdr.encode((*[RespHeaderSize]byte)(p[0:16]))
	put32(p[16:20], x.SRQN)
	clear(p[20:24]) // reserved
}

// CmdModifySRQReqSize is the size of [CmdModifySRQReq] in bytes.
const CmdModifySRQReqSize = 40

// CmdModifySRQReq is struct pvrdma_cmd_modify_srq (pvrdma_dev_api.h).
type CmdModifySRQReq struct {
	Hdr       CmdHeader
	SRQHandle uint32
	AttrMask  SRQAttrMask
	Attrs     SRQAttr
}

// Decode reads x from the first [CmdModifySRQReqSize] bytes of b; EINVAL if b is shorter.
func (x *CmdModifySRQReq) Decode(b []byte) error {
	if len(b) < CmdModifySRQReqSize {
		return shortError("CmdModifySRQReq", len(b), CmdModifySRQReqSize)
	}
	p := (*[CmdModifySRQReqSize]byte)(b)
	x.Hdr.decode((*[CmdHeaderSize]byte)(p[0:16]))
	x.SRQHandle = get32(p[16:20])
	x.AttrMask = SRQAttrMask(get32(p[20:24]))
	x.Attrs.decode((*[SRQAttrSize]byte)(p[24:40]))
	return nil
}

// Encode writes x to the first [CmdModifySRQReqSize] bytes of b and panics if b is shorter.
func (x *CmdModifySRQReq) Encode(b []byte) {
	p := (*[CmdModifySRQReqSize]byte)(b)
	x.Hdr.encode((*[CmdHeaderSize]byte)(p[0:16]))
	put32(p[16:20], x.SRQHandle)
	put32(p[20:24], uint32(x.AttrMask))
	x.Attrs.encode((*[SRQAttrSize]byte)(p[24:40]))
}

// CmdQuerySRQReqSize is the size of [CmdQuerySRQReq] in bytes.
const CmdQuerySRQReqSize = 24

// CmdQuerySRQReq is struct pvrdma_cmd_query_srq (pvrdma_dev_api.h).
type CmdQuerySRQReq struct {
	Hdr       CmdHeader
	SRQHandle uint32
}

// Decode reads x from the first [CmdQuerySRQReqSize] bytes of b; EINVAL if b is shorter.
func (x *CmdQuerySRQReq) Decode(b []byte) error {
	if len(b) < CmdQuerySRQReqSize {
		return shortError("CmdQuerySRQReq", len(b), CmdQuerySRQReqSize)
	}
	p := (*[CmdQuerySRQReqSize]byte)(b)
	x.Hdr.decode((*[CmdHeaderSize]byte)(p[0:16]))
	x.SRQHandle = get32(p[16:20])
	return nil
}

// Encode writes x to the first [CmdQuerySRQReqSize] bytes of b and panics if b is shorter.
func (x *CmdQuerySRQReq) Encode(b []byte) {
	p := (*[CmdQuerySRQReqSize]byte)(b)
	x.Hdr.encode((*[CmdHeaderSize]byte)(p[0:16]))
	put32(p[16:20], x.SRQHandle)
	clear(p[20:24]) // reserved
}

// CmdQuerySRQRespSize is the size of [CmdQuerySRQResp] in bytes.
const CmdQuerySRQRespSize = 32

// CmdQuerySRQResp is struct pvrdma_cmd_query_srq_resp (pvrdma_dev_api.h).
type CmdQuerySRQResp struct {
	Hdr   RespHeader
	Attrs SRQAttr
}

// Decode reads x from the first [CmdQuerySRQRespSize] bytes of b; EINVAL if b is shorter.
func (x *CmdQuerySRQResp) Decode(b []byte) error {
	if len(b) < CmdQuerySRQRespSize {
		return shortError("CmdQuerySRQResp", len(b), CmdQuerySRQRespSize)
	}
	p := (*[CmdQuerySRQRespSize]byte)(b)
	x.Hdr.decode((*[RespHeaderSize]byte)(p[0:16]))
	x.Attrs.decode((*[SRQAttrSize]byte)(p[16:32]))
	return nil
}

// Encode writes x to the first [CmdQuerySRQRespSize] bytes of b and panics if b is shorter.
func (x *CmdQuerySRQResp) Encode(b []byte) {
	p := (*[CmdQuerySRQRespSize]byte)(b)
	x.Hdr.encode((*[RespHeaderSize]byte)(p[0:16]))
	x.Attrs.encode((*[SRQAttrSize]byte)(p[16:32]))
}

// CmdDestroySRQReqSize is the size of [CmdDestroySRQReq] in bytes.
const CmdDestroySRQReqSize = 24

// CmdDestroySRQReq is struct pvrdma_cmd_destroy_srq (pvrdma_dev_api.h).
type CmdDestroySRQReq struct {
	Hdr       CmdHeader
	SRQHandle uint32
}

// Decode reads x from the first [CmdDestroySRQReqSize] bytes of b; EINVAL if b is shorter.
func (x *CmdDestroySRQReq) Decode(b []byte) error {
	if len(b) < CmdDestroySRQReqSize {
		return shortError("CmdDestroySRQReq", len(b), CmdDestroySRQReqSize)
	}
	p := (*[CmdDestroySRQReqSize]byte)(b)
	x.Hdr.decode((*[CmdHeaderSize]byte)(p[0:16]))
	x.SRQHandle = get32(p[16:20])
	return nil
}

// Encode writes x to the first [CmdDestroySRQReqSize] bytes of b and panics if b is shorter.
func (x *CmdDestroySRQReq) Encode(b []byte) {
	p := (*[CmdDestroySRQReqSize]byte)(b)
	x.Hdr.encode((*[CmdHeaderSize]byte)(p[0:16]))
	put32(p[16:20], x.SRQHandle)
	clear(p[20:24]) // reserved
}

// SRQAttrSize is the size of [SRQAttr] in bytes.
const SRQAttrSize = 16

// SRQAttr is struct pvrdma_srq_attr (pvrdma_verbs.h).
type SRQAttr struct {
	MaxWR    uint32 // work requests
	MaxSGE   uint32
	SRQLimit uint32 // work requests; 0 disarms the event
}

// Decode reads x from the first [SRQAttrSize] bytes of b; EINVAL if b is shorter.
func (x *SRQAttr) Decode(b []byte) error {
	if len(b) < SRQAttrSize {
		return shortError("SRQAttr", len(b), SRQAttrSize)
	}
	x.decode((*[SRQAttrSize]byte)(b))
	return nil
}

// Encode writes x to the first [SRQAttrSize] bytes of b and panics if b is shorter.
func (x *SRQAttr) Encode(b []byte) {
	x.encode((*[SRQAttrSize]byte)(b))
}

func (x *SRQAttr) decode(p *[SRQAttrSize]byte) {
	x.MaxWR = get32(p[0:4])
	x.MaxSGE = get32(p[4:8])
	x.SRQLimit = get32(p[8:12])
}

func (x *SRQAttr) encode(p *[SRQAttrSize]byte) {
	put32(p[0:4], x.MaxWR)
	put32(p[4:8], x.MaxSGE)
	put32(p[8:12], x.SRQLimit)
	clear(p[12:16]) // reserved
}
