// SPDX-License-Identifier: Apache-2.0

package abi

// CmdHeaderSize is the size of [CmdHeader] in bytes.
const CmdHeaderSize = 16

// CmdHeader is struct pvrdma_cmd_hdr (pvrdma_dev_api.h), the start of each request.
type CmdHeader struct {
	Response uint64 // to be echoed in RespHeader.Response; Linux writes 0
	Cmd      Cmd
}

// Decode reads x from the first [CmdHeaderSize] bytes of b; EINVAL if b is shorter.
func (x *CmdHeader) Decode(b []byte) error {
	if len(b) < CmdHeaderSize {
		return shortError("CmdHeader", len(b), CmdHeaderSize)
	}
	x.decode((*[CmdHeaderSize]byte)(b))
	return nil
}

// Encode writes x to the first [CmdHeaderSize] bytes of b and panics if b is shorter.
func (x *CmdHeader) Encode(b []byte) {
	x.encode((*[CmdHeaderSize]byte)(b))
}

func (x *CmdHeader) decode(p *[CmdHeaderSize]byte) {
	x.Response = get64(p[0:8])
	x.Cmd = Cmd(get32(p[8:12]))
}

func (x *CmdHeader) encode(p *[CmdHeaderSize]byte) {
	put64(p[0:8], x.Response)
	put32(p[8:12], uint32(x.Cmd))
	clear(p[12:16]) // reserved
}

// RespHeaderSize is the size of [RespHeader] in bytes.
const RespHeaderSize = 16

// RespHeader is struct pvrdma_cmd_resp_hdr (pvrdma_dev_api.h), the start of each response.
type RespHeader struct {
	Response uint64 // CmdHeader.Response of the request
	Ack      uint32 // Cmd.Ack of the request; anything else is a failure to Linux
	Err      uint8  // errno, 0 to 255; Linux looks at it for MODIFY_QP only
}

// Decode reads x from the first [RespHeaderSize] bytes of b; EINVAL if b is shorter.
func (x *RespHeader) Decode(b []byte) error {
	if len(b) < RespHeaderSize {
		return shortError("RespHeader", len(b), RespHeaderSize)
	}
	x.decode((*[RespHeaderSize]byte)(b))
	return nil
}

// Encode writes x to the first [RespHeaderSize] bytes of b and panics if b is shorter.
func (x *RespHeader) Encode(b []byte) {
	x.encode((*[RespHeaderSize]byte)(b))
}

func (x *RespHeader) decode(p *[RespHeaderSize]byte) {
	x.Response = get64(p[0:8])
	x.Ack = get32(p[8:12])
	x.Err = p[12]
}

func (x *RespHeader) encode(p *[RespHeaderSize]byte) {
	put64(p[0:8], x.Response)
	put32(p[8:12], x.Ack)
	p[12] = x.Err
	clear(p[13:16]) // reserved
}
