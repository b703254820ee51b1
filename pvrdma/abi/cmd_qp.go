// SPDX-License-Identifier: Apache-2.0

package abi

// CmdModifyQPReqSize is the size of [CmdModifyQPReq] in bytes.
const CmdModifyQPReqSize = 184

// CmdModifyQPReq is struct pvrdma_cmd_modify_qp (pvrdma_dev_api.h), the largest request.
type CmdModifyQPReq struct {
	Hdr      CmdHeader
	QPHandle uint32
	AttrMask QPAttrMask
	Attrs    QPAttr // only what AttrMask selects has a meaning
}

// Decode reads x from the first [CmdModifyQPReqSize] bytes of b; EINVAL if b is shorter.
func (x *CmdModifyQPReq) Decode(b []byte) error {
	if len(b) < CmdModifyQPReqSize {
		return shortError("CmdModifyQPReq", len(b), CmdModifyQPReqSize)
	}
	p := (*[CmdModifyQPReqSize]byte)(b)
	x.Hdr.decode((*[CmdHeaderSize]byte)(p[0:16]))
	x.QPHandle = get32(p[16:20])
	x.AttrMask = QPAttrMask(get32(p[20:24]))
	x.Attrs.decode((*[QPAttrSize]byte)(p[24:184]))
	return nil
}

// Encode writes x to the first [CmdModifyQPReqSize] bytes of b and panics if b is shorter.
func (x *CmdModifyQPReq) Encode(b []byte) {
	p := (*[CmdModifyQPReqSize]byte)(b)
	x.Hdr.encode((*[CmdHeaderSize]byte)(p[0:16]))
	put32(p[16:20], x.QPHandle)
	put32(p[20:24], uint32(x.AttrMask))
	x.Attrs.encode((*[QPAttrSize]byte)(p[24:184]))
}

// CmdQueryQPReqSize is the size of [CmdQueryQPReq] in bytes.
const CmdQueryQPReqSize = 24

// CmdQueryQPReq is struct pvrdma_cmd_query_qp (pvrdma_dev_api.h).
type CmdQueryQPReq struct {
	Hdr      CmdHeader
	QPHandle uint32
	AttrMask QPAttrMask
}

// Decode reads x from the first [CmdQueryQPReqSize] bytes of b; EINVAL if b is shorter.
func (x *CmdQueryQPReq) Decode(b []byte) error {
	if len(b) < CmdQueryQPReqSize {
		return shortError("CmdQueryQPReq", len(b), CmdQueryQPReqSize)
	}
	p := (*[CmdQueryQPReqSize]byte)(b)
	x.Hdr.decode((*[CmdHeaderSize]byte)(p[0:16]))
	x.QPHandle = get32(p[16:20])
	x.AttrMask = QPAttrMask(get32(p[20:24]))
	return nil
}

// Encode writes x to the first [CmdQueryQPReqSize] bytes of b and panics if b is shorter.
func (x *CmdQueryQPReq) Encode(b []byte) {
	p := (*[CmdQueryQPReqSize]byte)(b)
	x.Hdr.encode((*[CmdHeaderSize]byte)(p[0:16]))
	put32(p[16:20], x.QPHandle)
	put32(p[20:24], uint32(x.AttrMask))
}

// CmdQueryQPRespSize is the size of [CmdQueryQPResp] in bytes.
const CmdQueryQPRespSize = 176

// CmdQueryQPResp is struct pvrdma_cmd_query_qp_resp (pvrdma_dev_api.h), the largest
// response. Linux copies every field whatever the mask was.
type CmdQueryQPResp struct {
	Hdr   RespHeader
	Attrs QPAttr
}

// Decode reads x from the first [CmdQueryQPRespSize] bytes of b; EINVAL if b is shorter.
func (x *CmdQueryQPResp) Decode(b []byte) error {
	if len(b) < CmdQueryQPRespSize {
		return shortError("CmdQueryQPResp", len(b), CmdQueryQPRespSize)
	}
	p := (*[CmdQueryQPRespSize]byte)(b)
	x.Hdr.decode((*[RespHeaderSize]byte)(p[0:16]))
	x.Attrs.decode((*[QPAttrSize]byte)(p[16:176]))
	return nil
}

// Encode writes x to the first [CmdQueryQPRespSize] bytes of b and panics if b is shorter.
func (x *CmdQueryQPResp) Encode(b []byte) {
	p := (*[CmdQueryQPRespSize]byte)(b)
	x.Hdr.encode((*[RespHeaderSize]byte)(p[0:16]))
	x.Attrs.encode((*[QPAttrSize]byte)(p[16:176]))
}

// CmdDestroyQPReqSize is the size of [CmdDestroyQPReq] in bytes.
const CmdDestroyQPReqSize = 24

// CmdDestroyQPReq is struct pvrdma_cmd_destroy_qp (pvrdma_dev_api.h).
type CmdDestroyQPReq struct {
	Hdr      CmdHeader
	QPHandle uint32
}

// Decode reads x from the first [CmdDestroyQPReqSize] bytes of b; EINVAL if b is shorter.
func (x *CmdDestroyQPReq) Decode(b []byte) error {
	if len(b) < CmdDestroyQPReqSize {
		return shortError("CmdDestroyQPReq", len(b), CmdDestroyQPReqSize)
	}
	p := (*[CmdDestroyQPReqSize]byte)(b)
	x.Hdr.decode((*[CmdHeaderSize]byte)(p[0:16]))
	x.QPHandle = get32(p[16:20])
	return nil
}

// Encode writes x to the first [CmdDestroyQPReqSize] bytes of b and panics if b is shorter.
func (x *CmdDestroyQPReq) Encode(b []byte) {
	p := (*[CmdDestroyQPReqSize]byte)(b)
	x.Hdr.encode((*[CmdHeaderSize]byte)(p[0:16]))
	put32(p[16:20], x.QPHandle)
	clear(p[20:24]) // reserved
}

// CmdDestroyQPRespSize is the size of [CmdDestroyQPResp] in bytes.
const CmdDestroyQPRespSize = 24

// CmdDestroyQPResp is struct pvrdma_cmd_destroy_qp_resp (pvrdma_dev_api.h). Linux does not
// wait for it.
type CmdDestroyQPResp struct {
	Hdr            RespHeader
	EventsReported uint32
}

// Decode reads x from the first [CmdDestroyQPRespSize] bytes of b; EINVAL if b is shorter.
func (x *CmdDestroyQPResp) Decode(b []byte) error {
	if len(b) < CmdDestroyQPRespSize {
		return shortError("CmdDestroyQPResp", len(b), CmdDestroyQPRespSize)
	}
	p := (*[CmdDestroyQPRespSize]byte)(b)
	x.Hdr.decode((*[RespHeaderSize]byte)(p[0:16]))
	x.EventsReported = get32(p[16:20])
	return nil
}

// Encode writes x to the first [CmdDestroyQPRespSize] bytes of b and panics if b is shorter.
func (x *CmdDestroyQPResp) Encode(b []byte) {
	p := (*[CmdDestroyQPRespSize]byte)(b)
	x.Hdr.encode((*[RespHeaderSize]byte)(p[0:16]))
	put32(p[16:20], x.EventsReported)
	clear(p[20:24]) // reserved
}
