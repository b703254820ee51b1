// SPDX-License-Identifier: Apache-2.0

package abi

// CmdCreatePDReqSize is the size of [CmdCreatePDReq] in bytes.
const CmdCreatePDReqSize = 24

// CmdCreatePDReq is struct pvrdma_cmd_create_pd (pvrdma_dev_api.h).
type CmdCreatePDReq struct {
	Hdr       CmdHeader
	CtxHandle uint32 // user context, 0 for the guest kernel's own
}

// Decode reads x from the first [CmdCreatePDReqSize] bytes of b; EINVAL if b is shorter.
func (x *CmdCreatePDReq) Decode(b []byte) error {
	if len(b) < CmdCreatePDReqSize {
		return shortError("CmdCreatePDReq", len(b), CmdCreatePDReqSize)
	}
	p := (*[CmdCreatePDReqSize]byte)(b)
	x.Hdr.decode((*[CmdHeaderSize]byte)(p[0:16]))
	x.CtxHandle = get32(p[16:20])
	return nil
}

// Encode writes x to the first [CmdCreatePDReqSize] bytes of b and panics if b is shorter.
func (x *CmdCreatePDReq) Encode(b []byte) {
	p := (*[CmdCreatePDReqSize]byte)(b)
	x.Hdr.encode((*[CmdHeaderSize]byte)(p[0:16]))
	put32(p[16:20], x.CtxHandle)
	clear(p[20:24]) // reserved
}

// CmdCreatePDRespSize is the size of [CmdCreatePDResp] in bytes.
const CmdCreatePDRespSize = 24

// CmdCreatePDResp is struct pvrdma_cmd_create_pd_resp (pvrdma_dev_api.h).
type CmdCreatePDResp struct {
	Hdr      RespHeader
	PDHandle uint32 // below 1<<24: an address vector has 24 bits for it
}

// Decode reads x from the first [CmdCreatePDRespSize] bytes of b; EINVAL if b is shorter.
func (x *CmdCreatePDResp) Decode(b []byte) error {
	if len(b) < CmdCreatePDRespSize {
		return shortError("CmdCreatePDResp", len(b), CmdCreatePDRespSize)
	}
	p := (*[CmdCreatePDRespSize]byte)(b)
	x.Hdr.decode((*[RespHeaderSize]byte)(p[0:16]))
	x.PDHandle = get32(p[16:20])
	return nil
}

// Encode writes x to the first [CmdCreatePDRespSize] bytes of b and panics if b is shorter.
func (x *CmdCreatePDResp) Encode(b []byte) {
	p := (*[CmdCreatePDRespSize]byte)(b)
	x.Hdr.encode((*[RespHeaderSize]byte)(p[0:16]))
	put32(p[16:20], x.PDHandle)
	clear(p[20:24]) // reserved
}

// CmdDestroyPDReqSize is the size of [CmdDestroyPDReq] in bytes.
const CmdDestroyPDReqSize = 24

// CmdDestroyPDReq is struct pvrdma_cmd_destroy_pd (pvrdma_dev_api.h).
type CmdDestroyPDReq struct {
	Hdr      CmdHeader
	PDHandle uint32
}

// Decode reads x from the first [CmdDestroyPDReqSize] bytes of b; EINVAL if b is shorter.
func (x *CmdDestroyPDReq) Decode(b []byte) error {
	if len(b) < CmdDestroyPDReqSize {
		return shortError("CmdDestroyPDReq", len(b), CmdDestroyPDReqSize)
	}
	p := (*[CmdDestroyPDReqSize]byte)(b)
	x.Hdr.decode((*[CmdHeaderSize]byte)(p[0:16]))
	x.PDHandle = get32(p[16:20])
	return nil
}

// Encode writes x to the first [CmdDestroyPDReqSize] bytes of b and panics if b is shorter.
func (x *CmdDestroyPDReq) Encode(b []byte) {
	p := (*[CmdDestroyPDReqSize]byte)(b)
	x.Hdr.encode((*[CmdHeaderSize]byte)(p[0:16]))
	put32(p[16:20], x.PDHandle)
	clear(p[20:24]) // reserved
}
