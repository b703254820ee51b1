// SPDX-License-Identifier: Apache-2.0

package abi

// CmdCreateBindReqSize is the size of [CmdCreateBindReq] in bytes.
const CmdCreateBindReqSize = 48

// CmdCreateBindReq is struct pvrdma_cmd_create_bind (pvrdma_dev_api.h): the guest puts a
// GID into its table.
type CmdCreateBindReq struct {
	Hdr     CmdHeader
	MTU     uint32 // bytes; Linux sends 1024
	VLAN    uint32 // Linux sends 0xfff, none
	Index   uint32 // of the guest's GID table
	NewGID  GID
	GIDType GIDTypes // exactly one bit
}

// Decode reads x from the first [CmdCreateBindReqSize] bytes of b; EINVAL if b is shorter.
func (x *CmdCreateBindReq) Decode(b []byte) error {
	if len(b) < CmdCreateBindReqSize {
		return shortError("CmdCreateBindReq", len(b), CmdCreateBindReqSize)
	}
	p := (*[CmdCreateBindReqSize]byte)(b)
	x.Hdr.decode((*[CmdHeaderSize]byte)(p[0:16]))
	x.MTU = get32(p[16:20])
	x.VLAN = get32(p[20:24])
	x.Index = get32(p[24:28])
	x.NewGID = GID(p[28:44])
	x.GIDType = GIDTypes(p[44])
	return nil
}

// Encode writes x to the first [CmdCreateBindReqSize] bytes of b and panics if b is shorter.
func (x *CmdCreateBindReq) Encode(b []byte) {
	p := (*[CmdCreateBindReqSize]byte)(b)
	x.Hdr.encode((*[CmdHeaderSize]byte)(p[0:16]))
	put32(p[16:20], x.MTU)
	put32(p[20:24], x.VLAN)
	put32(p[24:28], x.Index)
	copy(p[28:44], x.NewGID[:])
	p[44] = uint8(x.GIDType)
	clear(p[45:48]) // reserved
}

// CmdDestroyBindReqSize is the size of [CmdDestroyBindReq] in bytes.
const CmdDestroyBindReqSize = 40

// CmdDestroyBindReq is struct pvrdma_cmd_destroy_bind (pvrdma_dev_api.h).
type CmdDestroyBindReq struct {
	Hdr     CmdHeader
	Index   uint32 // of the guest's GID table
	DestGID GID
}

// Decode reads x from the first [CmdDestroyBindReqSize] bytes of b; EINVAL if b is shorter.
func (x *CmdDestroyBindReq) Decode(b []byte) error {
	if len(b) < CmdDestroyBindReqSize {
		return shortError("CmdDestroyBindReq", len(b), CmdDestroyBindReqSize)
	}
	p := (*[CmdDestroyBindReqSize]byte)(b)
	x.Hdr.decode((*[CmdHeaderSize]byte)(p[0:16]))
	x.Index = get32(p[16:20])
	x.DestGID = GID(p[20:36])
	return nil
}

// Encode writes x to the first [CmdDestroyBindReqSize] bytes of b and panics if b is shorter.
func (x *CmdDestroyBindReq) Encode(b []byte) {
	p := (*[CmdDestroyBindReqSize]byte)(b)
	x.Hdr.encode((*[CmdHeaderSize]byte)(p[0:16]))
	put32(p[16:20], x.Index)
	copy(p[20:36], x.DestGID[:])
	clear(p[36:40]) // reserved
}
