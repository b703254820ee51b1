// SPDX-License-Identifier: Apache-2.0

package abi

// CmdQueryPortReqSize is the size of [CmdQueryPortReq] in bytes.
const CmdQueryPortReqSize = 24

// CmdQueryPortReq is struct pvrdma_cmd_query_port (pvrdma_dev_api.h).
type CmdQueryPortReq struct {
	Hdr     CmdHeader
	PortNum uint8 // from 1
}

// Decode reads x from the first [CmdQueryPortReqSize] bytes of b; EINVAL if b is shorter.
func (x *CmdQueryPortReq) Decode(b []byte) error {
	if len(b) < CmdQueryPortReqSize {
		return shortError("CmdQueryPortReq", len(b), CmdQueryPortReqSize)
	}
	p := (*[CmdQueryPortReqSize]byte)(b)
	x.Hdr.decode((*[CmdHeaderSize]byte)(p[0:16]))
	x.PortNum = p[16]
	return nil
}

// Encode writes x to the first [CmdQueryPortReqSize] bytes of b and panics if b is shorter.
func (x *CmdQueryPortReq) Encode(b []byte) {
	p := (*[CmdQueryPortReqSize]byte)(b)
	x.Hdr.encode((*[CmdHeaderSize]byte)(p[0:16]))
	p[16] = x.PortNum
	clear(p[17:24]) // reserved
}

// CmdQueryPortRespSize is the size of [CmdQueryPortResp] in bytes.
const CmdQueryPortRespSize = 64

// CmdQueryPortResp is struct pvrdma_cmd_query_port_resp (pvrdma_dev_api.h).
type CmdQueryPortResp struct {
	Hdr   RespHeader
	Attrs PortAttr
}

// Decode reads x from the first [CmdQueryPortRespSize] bytes of b; EINVAL if b is shorter.
func (x *CmdQueryPortResp) Decode(b []byte) error {
	if len(b) < CmdQueryPortRespSize {
		return shortError("CmdQueryPortResp", len(b), CmdQueryPortRespSize)
	}
	p := (*[CmdQueryPortRespSize]byte)(b)
	x.Hdr.decode((*[RespHeaderSize]byte)(p[0:16]))
	x.Attrs.decode((*[PortAttrSize]byte)(p[16:64]))
	return nil
}

// Encode writes x to the first [CmdQueryPortRespSize] bytes of b and panics if b is shorter.
func (x *CmdQueryPortResp) Encode(b []byte) {
	p := (*[CmdQueryPortRespSize]byte)(b)
	x.Hdr.encode((*[RespHeaderSize]byte)(p[0:16]))
	x.Attrs.encode((*[PortAttrSize]byte)(p[16:64]))
}

// CmdQueryPKeyReqSize is the size of [CmdQueryPKeyReq] in bytes.
const CmdQueryPKeyReqSize = 24

// CmdQueryPKeyReq is struct pvrdma_cmd_query_pkey (pvrdma_dev_api.h).
type CmdQueryPKeyReq struct {
	Hdr     CmdHeader
	PortNum uint8 // from 1
	Index   uint8 // below PortAttr.PKeyTblLen
}

// Decode reads x from the first [CmdQueryPKeyReqSize] bytes of b; EINVAL if b is shorter.
func (x *CmdQueryPKeyReq) Decode(b []byte) error {
	if len(b) < CmdQueryPKeyReqSize {
		return shortError("CmdQueryPKeyReq", len(b), CmdQueryPKeyReqSize)
	}
	p := (*[CmdQueryPKeyReqSize]byte)(b)
	x.Hdr.decode((*[CmdHeaderSize]byte)(p[0:16]))
	x.PortNum = p[16]
	x.Index = p[17]
	return nil
}

// Encode writes x to the first [CmdQueryPKeyReqSize] bytes of b and panics if b is shorter.
func (x *CmdQueryPKeyReq) Encode(b []byte) {
	p := (*[CmdQueryPKeyReqSize]byte)(b)
	x.Hdr.encode((*[CmdHeaderSize]byte)(p[0:16]))
	p[16] = x.PortNum
	p[17] = x.Index
	clear(p[18:24]) // reserved
}

// CmdQueryPKeyRespSize is the size of [CmdQueryPKeyResp] in bytes.
const CmdQueryPKeyRespSize = 24

// CmdQueryPKeyResp is struct pvrdma_cmd_query_pkey_resp (pvrdma_dev_api.h).
type CmdQueryPKeyResp struct {
	Hdr  RespHeader
	PKey uint16
}

// Decode reads x from the first [CmdQueryPKeyRespSize] bytes of b; EINVAL if b is shorter.
func (x *CmdQueryPKeyResp) Decode(b []byte) error {
	if len(b) < CmdQueryPKeyRespSize {
		return shortError("CmdQueryPKeyResp", len(b), CmdQueryPKeyRespSize)
	}
	p := (*[CmdQueryPKeyRespSize]byte)(b)
	x.Hdr.decode((*[RespHeaderSize]byte)(p[0:16]))
	x.PKey = get16(p[16:18])
	return nil
}

// Encode writes x to the first [CmdQueryPKeyRespSize] bytes of b and panics if b is shorter.
func (x *CmdQueryPKeyResp) Encode(b []byte) {
	p := (*[CmdQueryPKeyRespSize]byte)(b)
	x.Hdr.encode((*[RespHeaderSize]byte)(p[0:16]))
	put16(p[16:18], x.PKey)
	clear(p[18:24]) // reserved
}
