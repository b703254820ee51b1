// SPDX-License-Identifier: Apache-2.0

package abi

// RDMAWRSize is the size of [RDMAWR] in bytes.
const RDMAWRSize = 16

// RDMAWR is the union member wr.rdma of struct pvrdma_sq_wqe_hdr (vmw_pvrdma-abi.h): RDMA
// writes and reads.
type RDMAWR struct {
	RemoteAddr uint64
	RKey       uint32
}

// Decode reads x from the first [RDMAWRSize] bytes of b; EINVAL if b is shorter.
func (x *RDMAWR) Decode(b []byte) error {
	if len(b) < RDMAWRSize {
		return shortError("RDMAWR", len(b), RDMAWRSize)
	}
	p := (*[RDMAWRSize]byte)(b)
	x.RemoteAddr = get64(p[0:8])
	x.RKey = get32(p[8:12])
	return nil
}

// Encode writes x to the first [RDMAWRSize] bytes of b and panics if b is shorter.
func (x *RDMAWR) Encode(b []byte) {
	p := (*[RDMAWRSize]byte)(b)
	put64(p[0:8], x.RemoteAddr)
	put32(p[8:12], x.RKey)
	clear(p[12:16]) // reserved
}

// AtomicWRSize is the size of [AtomicWR] in bytes.
const AtomicWRSize = 32

// AtomicWR is the union member wr.atomic of struct pvrdma_sq_wqe_hdr (vmw_pvrdma-abi.h).
type AtomicWR struct {
	RemoteAddr uint64
	CompareAdd uint64 // compare of a swap, addend of an addition
	Swap       uint64 // of a swap only; not written for an addition
	RKey       uint32
}

// Decode reads x from the first [AtomicWRSize] bytes of b; EINVAL if b is shorter.
func (x *AtomicWR) Decode(b []byte) error {
	if len(b) < AtomicWRSize {
		return shortError("AtomicWR", len(b), AtomicWRSize)
	}
	p := (*[AtomicWRSize]byte)(b)
	x.RemoteAddr = get64(p[0:8])
	x.CompareAdd = get64(p[8:16])
	x.Swap = get64(p[16:24])
	x.RKey = get32(p[24:28])
	return nil
}

// Encode writes x to the first [AtomicWRSize] bytes of b and panics if b is shorter.
func (x *AtomicWR) Encode(b []byte) {
	p := (*[AtomicWRSize]byte)(b)
	put64(p[0:8], x.RemoteAddr)
	put64(p[8:16], x.CompareAdd)
	put64(p[16:24], x.Swap)
	put32(p[24:28], x.RKey)
	clear(p[28:32]) // reserved
}

// FastRegWRSize is the size of [FastRegWR] in bytes.
const FastRegWRSize = 40

// FastRegWR is the union member wr.fast_reg of struct pvrdma_sq_wqe_hdr (vmw_pvrdma-abi.h).
type FastRegWR struct {
	IOVAStart   uint64 // its low 12 bits are the offset in the first page
	PLPDirDMA   uint64 // guest address of the page directory
	PageShift   uint32 // 12
	PageListLen uint32 // pages
	Length      uint32 // bytes
	AccessFlags AccessFlags
	RKey        uint32
}

// Decode reads x from the first [FastRegWRSize] bytes of b; EINVAL if b is shorter.
func (x *FastRegWR) Decode(b []byte) error {
	if len(b) < FastRegWRSize {
		return shortError("FastRegWR", len(b), FastRegWRSize)
	}
	p := (*[FastRegWRSize]byte)(b)
	x.IOVAStart = get64(p[0:8])
	x.PLPDirDMA = get64(p[8:16])
	x.PageShift = get32(p[16:20])
	x.PageListLen = get32(p[20:24])
	x.Length = get32(p[24:28])
	x.AccessFlags = AccessFlags(get32(p[28:32]))
	x.RKey = get32(p[32:36])
	return nil
}

// Encode writes x to the first [FastRegWRSize] bytes of b and panics if b is shorter.
func (x *FastRegWR) Encode(b []byte) {
	p := (*[FastRegWRSize]byte)(b)
	put64(p[0:8], x.IOVAStart)
	put64(p[8:16], x.PLPDirDMA)
	put32(p[16:20], x.PageShift)
	put32(p[20:24], x.PageListLen)
	put32(p[24:28], x.Length)
	put32(p[28:32], uint32(x.AccessFlags))
	put32(p[32:36], x.RKey)
	clear(p[36:40]) // reserved
}

// UDWRSize is the size of [UDWR] in bytes.
const UDWRSize = 48

// UDWR is the union member wr.ud of struct pvrdma_sq_wqe_hdr (vmw_pvrdma-abi.h): datagrams.
type UDWR struct {
	RemoteQPN  uint32
	RemoteQKey uint32 // bit 31 asks for the QP's own; the guest kernel has resolved it
	AV         AV
}

// Decode reads x from the first [UDWRSize] bytes of b; EINVAL if b is shorter.
func (x *UDWR) Decode(b []byte) error {
	if len(b) < UDWRSize {
		return shortError("UDWR", len(b), UDWRSize)
	}
	p := (*[UDWRSize]byte)(b)
	x.RemoteQPN = get32(p[0:4])
	x.RemoteQKey = get32(p[4:8])
	x.AV.decode((*[AVSize]byte)(p[8:48]))
	return nil
}

// Encode writes x to the first [UDWRSize] bytes of b and panics if b is shorter.
func (x *UDWR) Encode(b []byte) {
	p := (*[UDWRSize]byte)(b)
	put32(p[0:4], x.RemoteQPN)
	put32(p[4:8], x.RemoteQKey)
	x.AV.encode((*[AVSize]byte)(p[8:48]))
}

// MaskedCmpSwapWRSize is the size of [MaskedCmpSwapWR] in bytes.
const MaskedCmpSwapWRSize = 48

// MaskedCmpSwapWR is the union member wr.masked_atomics of struct pvrdma_sq_wqe_hdr
// (vmw_pvrdma-abi.h) with its inner union as a compare and swap. Linux never fills it.
type MaskedCmpSwapWR struct {
	RemoteAddr uint64
	LogArgSz   uint32 // log2 of bytes
	RKey       uint32
	CmpSwap    ExCmpSwap
}

// Decode reads x from the first [MaskedCmpSwapWRSize] bytes of b; EINVAL if b is shorter.
func (x *MaskedCmpSwapWR) Decode(b []byte) error {
	if len(b) < MaskedCmpSwapWRSize {
		return shortError("MaskedCmpSwapWR", len(b), MaskedCmpSwapWRSize)
	}
	p := (*[MaskedCmpSwapWRSize]byte)(b)
	x.RemoteAddr = get64(p[0:8])
	x.LogArgSz = get32(p[8:12])
	x.RKey = get32(p[12:16])
	x.CmpSwap.decode((*[ExCmpSwapSize]byte)(p[16:48]))
	return nil
}

// Encode writes x to the first [MaskedCmpSwapWRSize] bytes of b and panics if b is shorter.
func (x *MaskedCmpSwapWR) Encode(b []byte) {
	p := (*[MaskedCmpSwapWRSize]byte)(b)
	put64(p[0:8], x.RemoteAddr)
	put32(p[8:12], x.LogArgSz)
	put32(p[12:16], x.RKey)
	x.CmpSwap.encode((*[ExCmpSwapSize]byte)(p[16:48]))
}

// MaskedFetchAddWRSize is the size of [MaskedFetchAddWR] in bytes.
const MaskedFetchAddWRSize = 48

// MaskedFetchAddWR is the union member wr.masked_atomics of struct pvrdma_sq_wqe_hdr
// (vmw_pvrdma-abi.h) with its inner union as a fetch and add. Linux never fills it.
type MaskedFetchAddWR struct {
	RemoteAddr uint64
	LogArgSz   uint32 // log2 of bytes
	RKey       uint32
	FetchAdd   ExFetchAdd
}

// Decode reads x from the first [MaskedFetchAddWRSize] bytes of b; EINVAL if b is shorter.
func (x *MaskedFetchAddWR) Decode(b []byte) error {
	if len(b) < MaskedFetchAddWRSize {
		return shortError("MaskedFetchAddWR", len(b), MaskedFetchAddWRSize)
	}
	p := (*[MaskedFetchAddWRSize]byte)(b)
	x.RemoteAddr = get64(p[0:8])
	x.LogArgSz = get32(p[8:12])
	x.RKey = get32(p[12:16])
	x.FetchAdd.decode((*[ExFetchAddSize]byte)(p[16:32]))
	return nil
}

// Encode writes x to the first [MaskedFetchAddWRSize] bytes of b and panics if b is shorter.
func (x *MaskedFetchAddWR) Encode(b []byte) {
	p := (*[MaskedFetchAddWRSize]byte)(b)
	put64(p[0:8], x.RemoteAddr)
	put32(p[8:12], x.LogArgSz)
	put32(p[12:16], x.RKey)
	x.FetchAdd.encode((*[ExFetchAddSize]byte)(p[16:32]))
	clear(p[32:48])
}

// ExCmpSwapSize is the size of [ExCmpSwap] in bytes.
const ExCmpSwapSize = 32

// ExCmpSwap is struct pvrdma_ex_cmp_swap (vmw_pvrdma-abi.h).
type ExCmpSwap struct {
	SwapVal     uint64
	CompareVal  uint64
	SwapMask    uint64
	CompareMask uint64
}

// Decode reads x from the first [ExCmpSwapSize] bytes of b; EINVAL if b is shorter.
func (x *ExCmpSwap) Decode(b []byte) error {
	if len(b) < ExCmpSwapSize {
		return shortError("ExCmpSwap", len(b), ExCmpSwapSize)
	}
	x.decode((*[ExCmpSwapSize]byte)(b))
	return nil
}

// Encode writes x to the first [ExCmpSwapSize] bytes of b and panics if b is shorter.
func (x *ExCmpSwap) Encode(b []byte) {
	x.encode((*[ExCmpSwapSize]byte)(b))
}

func (x *ExCmpSwap) decode(p *[ExCmpSwapSize]byte) {
	x.SwapVal = get64(p[0:8])
	x.CompareVal = get64(p[8:16])
	x.SwapMask = get64(p[16:24])
	x.CompareMask = get64(p[24:32])
}

func (x *ExCmpSwap) encode(p *[ExCmpSwapSize]byte) {
	put64(p[0:8], x.SwapVal)
	put64(p[8:16], x.CompareVal)
	put64(p[16:24], x.SwapMask)
	put64(p[24:32], x.CompareMask)
}

// ExFetchAddSize is the size of [ExFetchAdd] in bytes.
const ExFetchAddSize = 16

// ExFetchAdd is struct pvrdma_ex_fetch_add (vmw_pvrdma-abi.h).
type ExFetchAdd struct {
	AddVal        uint64
	FieldBoundary uint64
}

// Decode reads x from the first [ExFetchAddSize] bytes of b; EINVAL if b is shorter.
func (x *ExFetchAdd) Decode(b []byte) error {
	if len(b) < ExFetchAddSize {
		return shortError("ExFetchAdd", len(b), ExFetchAddSize)
	}
	x.decode((*[ExFetchAddSize]byte)(b))
	return nil
}

// Encode writes x to the first [ExFetchAddSize] bytes of b and panics if b is shorter.
func (x *ExFetchAdd) Encode(b []byte) {
	x.encode((*[ExFetchAddSize]byte)(b))
}

func (x *ExFetchAdd) decode(p *[ExFetchAddSize]byte) {
	x.AddVal = get64(p[0:8])
	x.FieldBoundary = get64(p[8:16])
}

func (x *ExFetchAdd) encode(p *[ExFetchAddSize]byte) {
	put64(p[0:8], x.AddVal)
	put64(p[8:16], x.FieldBoundary)
}
