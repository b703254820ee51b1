// SPDX-License-Identifier: Apache-2.0

package abi

// UverbsAllocUcontextRespSize is the size of [UverbsAllocUcontextResp] in bytes.
const UverbsAllocUcontextRespSize = 8

// UverbsAllocUcontextResp is struct pvrdma_alloc_ucontext_resp (vmw_pvrdma-abi.h). It and
// the types below travel between the guest's driver and its user-space library and never
// reach the device; they are here so that the package has the whole of the header.
type UverbsAllocUcontextResp struct {
	QPTabSize uint32 // DeviceCaps.MaxQP; the library keeps 16 bits of it
}

// Decode reads x from the first [UverbsAllocUcontextRespSize] bytes of b; EINVAL if b is shorter.
func (x *UverbsAllocUcontextResp) Decode(b []byte) error {
	if len(b) < UverbsAllocUcontextRespSize {
		return shortError("UverbsAllocUcontextResp", len(b), UverbsAllocUcontextRespSize)
	}
	p := (*[UverbsAllocUcontextRespSize]byte)(b)
	x.QPTabSize = get32(p[0:4])
	return nil
}

// Encode writes x to the first [UverbsAllocUcontextRespSize] bytes of b and panics if b is shorter.
func (x *UverbsAllocUcontextResp) Encode(b []byte) {
	p := (*[UverbsAllocUcontextRespSize]byte)(b)
	put32(p[0:4], x.QPTabSize)
	clear(p[4:8]) // reserved
}

// UverbsAllocPDRespSize is the size of [UverbsAllocPDResp] in bytes.
const UverbsAllocPDRespSize = 8

// UverbsAllocPDResp is struct pvrdma_alloc_pd_resp (vmw_pvrdma-abi.h).
type UverbsAllocPDResp struct {
	PDN uint32 // PD handle
}

// Decode reads x from the first [UverbsAllocPDRespSize] bytes of b; EINVAL if b is shorter.
func (x *UverbsAllocPDResp) Decode(b []byte) error {
	if len(b) < UverbsAllocPDRespSize {
		return shortError("UverbsAllocPDResp", len(b), UverbsAllocPDRespSize)
	}
	p := (*[UverbsAllocPDRespSize]byte)(b)
	x.PDN = get32(p[0:4])
	return nil
}

// Encode writes x to the first [UverbsAllocPDRespSize] bytes of b and panics if b is shorter.
func (x *UverbsAllocPDResp) Encode(b []byte) {
	p := (*[UverbsAllocPDRespSize]byte)(b)
	put32(p[0:4], x.PDN)
	clear(p[4:8]) // reserved
}

// UverbsCreateCQSize is the size of [UverbsCreateCQ] in bytes.
const UverbsCreateCQSize = 16

// UverbsCreateCQ is struct pvrdma_create_cq (vmw_pvrdma-abi.h).
type UverbsCreateCQ struct {
	BufAddr uint64
	BufSize uint32 // bytes
}

// Decode reads x from the first [UverbsCreateCQSize] bytes of b; EINVAL if b is shorter.
func (x *UverbsCreateCQ) Decode(b []byte) error {
	if len(b) < UverbsCreateCQSize {
		return shortError("UverbsCreateCQ", len(b), UverbsCreateCQSize)
	}
	p := (*[UverbsCreateCQSize]byte)(b)
	x.BufAddr = get64(p[0:8])
	x.BufSize = get32(p[8:12])
	return nil
}

// Encode writes x to the first [UverbsCreateCQSize] bytes of b and panics if b is shorter.
func (x *UverbsCreateCQ) Encode(b []byte) {
	p := (*[UverbsCreateCQSize]byte)(b)
	put64(p[0:8], x.BufAddr)
	put32(p[8:12], x.BufSize)
	clear(p[12:16]) // reserved
}

// UverbsCreateCQRespSize is the size of [UverbsCreateCQResp] in bytes.
const UverbsCreateCQRespSize = 8

// UverbsCreateCQResp is struct pvrdma_create_cq_resp (vmw_pvrdma-abi.h).
type UverbsCreateCQResp struct {
	CQN uint32 // CQ handle
}

// Decode reads x from the first [UverbsCreateCQRespSize] bytes of b; EINVAL if b is shorter.
func (x *UverbsCreateCQResp) Decode(b []byte) error {
	if len(b) < UverbsCreateCQRespSize {
		return shortError("UverbsCreateCQResp", len(b), UverbsCreateCQRespSize)
	}
	p := (*[UverbsCreateCQRespSize]byte)(b)
	x.CQN = get32(p[0:4])
	return nil
}

// Encode writes x to the first [UverbsCreateCQRespSize] bytes of b and panics if b is shorter.
func (x *UverbsCreateCQResp) Encode(b []byte) {
	p := (*[UverbsCreateCQRespSize]byte)(b)
	put32(p[0:4], x.CQN)
	clear(p[4:8]) // reserved
}

// UverbsResizeCQSize is the size of [UverbsResizeCQ] in bytes.
const UverbsResizeCQSize = 16

// UverbsResizeCQ is struct pvrdma_resize_cq (vmw_pvrdma-abi.h).
type UverbsResizeCQ struct {
	BufAddr uint64
	BufSize uint32 // bytes
}

// Decode reads x from the first [UverbsResizeCQSize] bytes of b; EINVAL if b is shorter.
func (x *UverbsResizeCQ) Decode(b []byte) error {
	if len(b) < UverbsResizeCQSize {
		return shortError("UverbsResizeCQ", len(b), UverbsResizeCQSize)
	}
	p := (*[UverbsResizeCQSize]byte)(b)
	x.BufAddr = get64(p[0:8])
	x.BufSize = get32(p[8:12])
	return nil
}

// Encode writes x to the first [UverbsResizeCQSize] bytes of b and panics if b is shorter.
func (x *UverbsResizeCQ) Encode(b []byte) {
	p := (*[UverbsResizeCQSize]byte)(b)
	put64(p[0:8], x.BufAddr)
	put32(p[8:12], x.BufSize)
	clear(p[12:16]) // reserved
}

// UverbsCreateSRQSize is the size of [UverbsCreateSRQ] in bytes.
const UverbsCreateSRQSize = 16

// UverbsCreateSRQ is struct pvrdma_create_srq (vmw_pvrdma-abi.h).
type UverbsCreateSRQ struct {
	BufAddr uint64
	BufSize uint32 // bytes
}

// Decode reads x from the first [UverbsCreateSRQSize] bytes of b; EINVAL if b is shorter.
func (x *UverbsCreateSRQ) Decode(b []byte) error {
	if len(b) < UverbsCreateSRQSize {
		return shortError("UverbsCreateSRQ", len(b), UverbsCreateSRQSize)
	}
	p := (*[UverbsCreateSRQSize]byte)(b)
	x.BufAddr = get64(p[0:8])
	x.BufSize = get32(p[8:12])
	return nil
}

// Encode writes x to the first [UverbsCreateSRQSize] bytes of b and panics if b is shorter.
func (x *UverbsCreateSRQ) Encode(b []byte) {
	p := (*[UverbsCreateSRQSize]byte)(b)
	put64(p[0:8], x.BufAddr)
	put32(p[8:12], x.BufSize)
	clear(p[12:16]) // reserved
}

// UverbsCreateSRQRespSize is the size of [UverbsCreateSRQResp] in bytes.
const UverbsCreateSRQRespSize = 8

// UverbsCreateSRQResp is struct pvrdma_create_srq_resp (vmw_pvrdma-abi.h).
type UverbsCreateSRQResp struct {
	SRQN uint32 // SRQ handle
}

// Decode reads x from the first [UverbsCreateSRQRespSize] bytes of b; EINVAL if b is shorter.
func (x *UverbsCreateSRQResp) Decode(b []byte) error {
	if len(b) < UverbsCreateSRQRespSize {
		return shortError("UverbsCreateSRQResp", len(b), UverbsCreateSRQRespSize)
	}
	p := (*[UverbsCreateSRQRespSize]byte)(b)
	x.SRQN = get32(p[0:4])
	return nil
}

// Encode writes x to the first [UverbsCreateSRQRespSize] bytes of b and panics if b is shorter.
func (x *UverbsCreateSRQResp) Encode(b []byte) {
	p := (*[UverbsCreateSRQRespSize]byte)(b)
	put32(p[0:4], x.SRQN)
	clear(p[4:8]) // reserved
}

// UverbsCreateQPSize is the size of [UverbsCreateQP] in bytes.
const UverbsCreateQPSize = 32

// UverbsCreateQP is struct pvrdma_create_qp (vmw_pvrdma-abi.h).
type UverbsCreateQP struct {
	RbufAddr uint64
	SbufAddr uint64
	RbufSize uint32 // bytes
	SbufSize uint32 // bytes
	QPAddr   uint64
}

// Decode reads x from the first [UverbsCreateQPSize] bytes of b; EINVAL if b is shorter.
func (x *UverbsCreateQP) Decode(b []byte) error {
	if len(b) < UverbsCreateQPSize {
		return shortError("UverbsCreateQP", len(b), UverbsCreateQPSize)
	}
	p := (*[UverbsCreateQPSize]byte)(b)
	x.RbufAddr = get64(p[0:8])
	x.SbufAddr = get64(p[8:16])
	x.RbufSize = get32(p[16:20])
	x.SbufSize = get32(p[20:24])
	x.QPAddr = get64(p[24:32])
	return nil
}

// Encode writes x to the first [UverbsCreateQPSize] bytes of b and panics if b is shorter.
func (x *UverbsCreateQP) Encode(b []byte) {
	p := (*[UverbsCreateQPSize]byte)(b)
	put64(p[0:8], x.RbufAddr)
	put64(p[8:16], x.SbufAddr)
	put32(p[16:20], x.RbufSize)
	put32(p[20:24], x.SbufSize)
	put64(p[24:32], x.QPAddr)
}

// UverbsCreateQPRespSize is the size of [UverbsCreateQPResp] in bytes.
const UverbsCreateQPRespSize = 8

// UverbsCreateQPResp is struct pvrdma_create_qp_resp (vmw_pvrdma-abi.h).
type UverbsCreateQPResp struct {
	QPN      uint32
	QPHandle uint32 // 0: the library takes QPN as the handle
}

// Decode reads x from the first [UverbsCreateQPRespSize] bytes of b; EINVAL if b is shorter.
func (x *UverbsCreateQPResp) Decode(b []byte) error {
	if len(b) < UverbsCreateQPRespSize {
		return shortError("UverbsCreateQPResp", len(b), UverbsCreateQPRespSize)
	}
	p := (*[UverbsCreateQPRespSize]byte)(b)
	x.QPN = get32(p[0:4])
	x.QPHandle = get32(p[4:8])
	return nil
}

// Encode writes x to the first [UverbsCreateQPRespSize] bytes of b and panics if b is shorter.
func (x *UverbsCreateQPResp) Encode(b []byte) {
	p := (*[UverbsCreateQPRespSize]byte)(b)
	put32(p[0:4], x.QPN)
	put32(p[4:8], x.QPHandle)
}
