// SPDX-License-Identifier: Apache-2.0

package abi

// CmdCreateUCReqSize is the size of [CmdCreateUCReq] in bytes.
const CmdCreateUCReqSize = 24

// CmdCreateUCReq is struct pvrdma_cmd_create_uc (pvrdma_dev_api.h).
type CmdCreateUCReq struct {
	Hdr   CmdHeader
	PFN   uint32 // below version 19: see PFNAt; the low half of PFN64
	PFN64 uint64 // from version 19 on
}

// Decode reads x from the first [CmdCreateUCReqSize] bytes of b; EINVAL if b is shorter.
func (x *CmdCreateUCReq) Decode(b []byte) error {
	if len(b) < CmdCreateUCReqSize {
		return shortError("CmdCreateUCReq", len(b), CmdCreateUCReqSize)
	}
	p := (*[CmdCreateUCReqSize]byte)(b)
	x.Hdr.decode((*[CmdHeaderSize]byte)(p[0:16]))
	x.PFN = get32(p[16:20])
	x.PFN64 = get64(p[16:24])
	return nil
}

// Encode writes x to the first [CmdCreateUCReqSize] bytes of b and panics if b is shorter.
func (x *CmdCreateUCReq) Encode(b []byte) {
	p := (*[CmdCreateUCReqSize]byte)(b)
	x.Hdr.encode((*[CmdHeaderSize]byte)(p[0:16]))
	put64(p[16:24], x.PFN64|uint64(x.PFN)) // a union: one of them, or both as decoded
}

// CmdCreateUCRespSize is the size of [CmdCreateUCResp] in bytes.
const CmdCreateUCRespSize = 24

// CmdCreateUCResp is struct pvrdma_cmd_create_uc_resp (pvrdma_dev_api.h).
type CmdCreateUCResp struct {
	Hdr       RespHeader
	CtxHandle uint32 // not 0, which stands for the guest kernel
}

// Decode reads x from the first [CmdCreateUCRespSize] bytes of b; EINVAL if b is shorter.
func (x *CmdCreateUCResp) Decode(b []byte) error {
	if len(b) < CmdCreateUCRespSize {
		return shortError("CmdCreateUCResp", len(b), CmdCreateUCRespSize)
	}
	p := (*[CmdCreateUCRespSize]byte)(b)
	x.Hdr.decode((*[RespHeaderSize]byte)(p[0:16]))
	x.CtxHandle = get32(p[16:20])
	return nil
}

// Encode writes x to the first [CmdCreateUCRespSize] bytes of b and panics if b is shorter.
func (x *CmdCreateUCResp) Encode(b []byte) {
	p := (*[CmdCreateUCRespSize]byte)(b)
	x.Hdr.encode((*[RespHeaderSize]byte)(p[0:16]))
	put32(p[16:20], x.CtxHandle)
	clear(p[20:24]) // reserved
}

// CmdDestroyUCReqSize is the size of [CmdDestroyUCReq] in bytes.
const CmdDestroyUCReqSize = 24

// CmdDestroyUCReq is struct pvrdma_cmd_destroy_uc (pvrdma_dev_api.h).
type CmdDestroyUCReq struct {
	Hdr       CmdHeader
	CtxHandle uint32
}

// Decode reads x from the first [CmdDestroyUCReqSize] bytes of b; EINVAL if b is shorter.
func (x *CmdDestroyUCReq) Decode(b []byte) error {
	if len(b) < CmdDestroyUCReqSize {
		return shortError("CmdDestroyUCReq", len(b), CmdDestroyUCReqSize)
	}
	p := (*[CmdDestroyUCReqSize]byte)(b)
	x.Hdr.decode((*[CmdHeaderSize]byte)(p[0:16]))
	x.CtxHandle = get32(p[16:20])
	return nil
}

// Encode writes x to the first [CmdDestroyUCReqSize] bytes of b and panics if b is shorter.
func (x *CmdDestroyUCReq) Encode(b []byte) {
	p := (*[CmdDestroyUCReqSize]byte)(b)
	x.Hdr.encode((*[CmdHeaderSize]byte)(p[0:16]))
	put32(p[16:20], x.CtxHandle)
	clear(p[20:24]) // reserved
}
