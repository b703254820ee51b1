// SPDX-License-Identifier: Apache-2.0

package abi

// CmdCreateCQReqSize is the size of [CmdCreateCQReq] in bytes.
const CmdCreateCQReqSize = 40

// CmdCreateCQReq is struct pvrdma_cmd_create_cq (pvrdma_dev_api.h).
type CmdCreateCQReq struct {
	Hdr       CmdHeader
	PDirDMA   uint64 // guest address of the page directory
	CtxHandle uint32 // user context, 0 for the guest kernel's own
	CQE       uint32 // entries
	NChunks   uint32 // pages, the one with the ring state included: see CQPages
}

// Decode reads x from the first [CmdCreateCQReqSize] bytes of b; EINVAL if b is shorter.
func (x *CmdCreateCQReq) Decode(b []byte) error {
	if len(b) < CmdCreateCQReqSize {
		return shortError("CmdCreateCQReq", len(b), CmdCreateCQReqSize)
	}
	p := (*[CmdCreateCQReqSize]byte)(b)
	x.Hdr.decode((*[CmdHeaderSize]byte)(p[0:16]))
	x.PDirDMA = get64(p[16:24])
	x.CtxHandle = get32(p[24:28])
	x.CQE = get32(p[28:32])
	x.NChunks = get32(p[32:36])
	return nil
}

// Encode writes x to the first [CmdCreateCQReqSize] bytes of b and panics if b is shorter.
func (x *CmdCreateCQReq) Encode(b []byte) {
	p := (*[CmdCreateCQReqSize]byte)(b)
	x.Hdr.encode((*[CmdHeaderSize]byte)(p[0:16]))
	put64(p[16:24], x.PDirDMA)
	put32(p[24:28], x.CtxHandle)
	put32(p[28:32], x.CQE)
	put32(p[32:36], x.NChunks)
	clear(p[36:40]) // reserved
}

// CmdCreateCQRespSize is the size of [CmdCreateCQResp] in bytes.
const CmdCreateCQRespSize = 24

// CmdCreateCQResp is struct pvrdma_cmd_create_cq_resp (pvrdma_dev_api.h).
type CmdCreateCQResp struct {
	Hdr      RespHeader
	CQHandle uint32
	CQE      uint32 // must repeat the request's
}

// Decode reads x from the first [CmdCreateCQRespSize] bytes of b; EINVAL if b is shorter.
func (x *CmdCreateCQResp) Decode(b []byte) error {
	if len(b) < CmdCreateCQRespSize {
		return shortError("CmdCreateCQResp", len(b), CmdCreateCQRespSize)
	}
	p := (*[CmdCreateCQRespSize]byte)(b)
	x.Hdr.decode((*[RespHeaderSize]byte)(p[0:16]))
	x.CQHandle = get32(p[16:20])
	x.CQE = get32(p[20:24])
	return nil
}

// Encode writes x to the first [CmdCreateCQRespSize] bytes of b and panics if b is shorter.
func (x *CmdCreateCQResp) Encode(b []byte) {
	p := (*[CmdCreateCQRespSize]byte)(b)
	x.Hdr.encode((*[RespHeaderSize]byte)(p[0:16]))
	put32(p[16:20], x.CQHandle)
	put32(p[20:24], x.CQE)
}

// CmdResizeCQReqSize is the size of [CmdResizeCQReq] in bytes.
const CmdResizeCQReqSize = 24

// CmdResizeCQReq is struct pvrdma_cmd_resize_cq (pvrdma_dev_api.h). Linux never sends it.
type CmdResizeCQReq struct {
	Hdr      CmdHeader
	CQHandle uint32
	CQE      uint32 // entries
}

// Decode reads x from the first [CmdResizeCQReqSize] bytes of b; EINVAL if b is shorter.
func (x *CmdResizeCQReq) Decode(b []byte) error {
	if len(b) < CmdResizeCQReqSize {
		return shortError("CmdResizeCQReq", len(b), CmdResizeCQReqSize)
	}
	p := (*[CmdResizeCQReqSize]byte)(b)
	x.Hdr.decode((*[CmdHeaderSize]byte)(p[0:16]))
	x.CQHandle = get32(p[16:20])
	x.CQE = get32(p[20:24])
	return nil
}

// Encode writes x to the first [CmdResizeCQReqSize] bytes of b and panics if b is shorter.
func (x *CmdResizeCQReq) Encode(b []byte) {
	p := (*[CmdResizeCQReqSize]byte)(b)
	x.Hdr.encode((*[CmdHeaderSize]byte)(p[0:16]))
	put32(p[16:20], x.CQHandle)
	put32(p[20:24], x.CQE)
}

// CmdResizeCQRespSize is the size of [CmdResizeCQResp] in bytes.
const CmdResizeCQRespSize = 24

// CmdResizeCQResp is struct pvrdma_cmd_resize_cq_resp (pvrdma_dev_api.h).
type CmdResizeCQResp struct {
	Hdr RespHeader
	CQE uint32 // entries
}

// Decode reads x from the first [CmdResizeCQRespSize] bytes of b; EINVAL if b is shorter.
func (x *CmdResizeCQResp) Decode(b []byte) error {
	if len(b) < CmdResizeCQRespSize {
		return shortError("CmdResizeCQResp", len(b), CmdResizeCQRespSize)
	}
	p := (*[CmdResizeCQRespSize]byte)(b)
	x.Hdr.decode((*[RespHeaderSize]byte)(p[0:16]))
	x.CQE = get32(p[16:20])
	return nil
}

// Encode writes x to the first [CmdResizeCQRespSize] bytes of b and panics if b is shorter.
func (x *CmdResizeCQResp) Encode(b []byte) {
	p := (*[CmdResizeCQRespSize]byte)(b)
	x.Hdr.encode((*[RespHeaderSize]byte)(p[0:16]))
	put32(p[16:20], x.CQE)
	clear(p[20:24]) // reserved
}

// CmdDestroyCQReqSize is the size of [CmdDestroyCQReq] in bytes.
const CmdDestroyCQReqSize = 24

// CmdDestroyCQReq is struct pvrdma_cmd_destroy_cq (pvrdma_dev_api.h).
type CmdDestroyCQReq struct {
	Hdr      CmdHeader
	CQHandle uint32
}

// Decode reads x from the first [CmdDestroyCQReqSize] bytes of b; EINVAL if b is shorter.
func (x *CmdDestroyCQReq) Decode(b []byte) error {
	if len(b) < CmdDestroyCQReqSize {
		return shortError("CmdDestroyCQReq", len(b), CmdDestroyCQReqSize)
	}
	p := (*[CmdDestroyCQReqSize]byte)(b)
	x.Hdr.decode((*[CmdHeaderSize]byte)(p[0:16]))
	x.CQHandle = get32(p[16:20])
	return nil
}

// Encode writes x to the first [CmdDestroyCQReqSize] bytes of b and panics if b is shorter.
func (x *CmdDestroyCQReq) Encode(b []byte) {
	p := (*[CmdDestroyCQReqSize]byte)(b)
	x.Hdr.encode((*[CmdHeaderSize]byte)(p[0:16]))
	put32(p[16:20], x.CQHandle)
	clear(p[20:24]) // reserved
}
