// SPDX-License-Identifier: Apache-2.0

package abi

// CmdCreateMRReqSize is the size of [CmdCreateMRReq] in bytes.
const CmdCreateMRReqSize = 56

// CmdCreateMRReq is struct pvrdma_cmd_create_mr (pvrdma_dev_api.h).
type CmdCreateMRReq struct {
	Hdr         CmdHeader
	Start       uint64 // guest virtual address of the first byte
	Length      uint64 // bytes
	PDirDMA     uint64 // guest address of the page directory; 0 with a flag set
	PDHandle    uint32
	AccessFlags AccessFlags // as the guest gave them; unknown bits are possible
	Flags       MRFlags
	NChunks     uint32 // pages; with MRFlagFRMR the most pages a later registration may have
}

// Decode reads x from the first [CmdCreateMRReqSize] bytes of b; EINVAL if b is shorter.
func (x *CmdCreateMRReq) Decode(b []byte) error {
	if len(b) < CmdCreateMRReqSize {
		return shortError("CmdCreateMRReq", len(b), CmdCreateMRReqSize)
	}
	p := (*[CmdCreateMRReqSize]byte)(b)
	x.Hdr.decode((*[CmdHeaderSize]byte)(p[0:16]))
	x.Start = get64(p[16:24])
	x.Length = get64(p[24:32])
	x.PDirDMA = get64(p[32:40])
	x.PDHandle = get32(p[40:44])
	x.AccessFlags = AccessFlags(get32(p[44:48]))
	x.Flags = MRFlags(get32(p[48:52]))
	x.NChunks = get32(p[52:56])
	return nil
}

// Encode writes x to the first [CmdCreateMRReqSize] bytes of b and panics if b is shorter.
func (x *CmdCreateMRReq) Encode(b []byte) {
	p := (*[CmdCreateMRReqSize]byte)(b)
	x.Hdr.encode((*[CmdHeaderSize]byte)(p[0:16]))
	put64(p[16:24], x.Start)
	put64(p[24:32], x.Length)
	put64(p[32:40], x.PDirDMA)
	put32(p[40:44], x.PDHandle)
	put32(p[44:48], uint32(x.AccessFlags))
	put32(p[48:52], uint32(x.Flags))
	put32(p[52:56], x.NChunks)
}

// CmdCreateMRRespSize is the size of [CmdCreateMRResp] in bytes.
const CmdCreateMRRespSize = 32

// CmdCreateMRResp is struct pvrdma_cmd_create_mr_resp (pvrdma_dev_api.h).
type CmdCreateMRResp struct {
	Hdr      RespHeader
	MRHandle uint32
	LKey     uint32
	RKey     uint32
}

// Decode reads x from the first [CmdCreateMRRespSize] bytes of b; EINVAL if b is shorter.
func (x *CmdCreateMRResp) Decode(b []byte) error {
	if len(b) < CmdCreateMRRespSize {
		return shortError("CmdCreateMRResp", len(b), CmdCreateMRRespSize)
	}
	p := (*[CmdCreateMRRespSize]byte)(b)
	x.Hdr.decode((*[RespHeaderSize]byte)(p[0:16]))
	x.MRHandle = get32(p[16:20])
	x.LKey = get32(p[20:24])
	x.RKey = get32(p[24:28])
	return nil
}

// Encode writes x to the first [CmdCreateMRRespSize] bytes of b and panics if b is shorter.
func (x *CmdCreateMRResp) Encode(b []byte) {
	p := (*[CmdCreateMRRespSize]byte)(b)
	x.Hdr.encode((*[RespHeaderSize]byte)(p[0:16]))
	put32(p[16:20], x.MRHandle)
	put32(p[20:24], x.LKey)
	put32(p[24:28], x.RKey)
	clear(p[28:32]) // reserved
}

// CmdDestroyMRReqSize is the size of [CmdDestroyMRReq] in bytes.
const CmdDestroyMRReqSize = 24

// CmdDestroyMRReq is struct pvrdma_cmd_destroy_mr (pvrdma_dev_api.h).
type CmdDestroyMRReq struct {
	Hdr      CmdHeader
	MRHandle uint32
}

// Decode reads x from the first [CmdDestroyMRReqSize] bytes of b; EINVAL if b is shorter.
func (x *CmdDestroyMRReq) Decode(b []byte) error {
	if len(b) < CmdDestroyMRReqSize {
		return shortError("CmdDestroyMRReq", len(b), CmdDestroyMRReqSize)
	}
	p := (*[CmdDestroyMRReqSize]byte)(b)
	x.Hdr.decode((*[CmdHeaderSize]byte)(p[0:16]))
	x.MRHandle = get32(p[16:20])
	return nil
}

// Encode writes x to the first [CmdDestroyMRReqSize] bytes of b and panics if b is shorter.
func (x *CmdDestroyMRReq) Encode(b []byte) {
	p := (*[CmdDestroyMRReqSize]byte)(b)
	x.Hdr.encode((*[CmdHeaderSize]byte)(p[0:16]))
	put32(p[16:20], x.MRHandle)
	clear(p[20:24]) // reserved
}
