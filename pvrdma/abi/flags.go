// SPDX-License-Identifier: Apache-2.0

package abi

// GIDTypes are the bits of DeviceCaps.GIDTypes and CmdCreateBindReq.GIDType
// (PVRDMA_GID_TYPE_FLAG_* of pvrdma_dev_api.h).
type GIDTypes uint8

// The values of [GIDTypes].
const (
	GIDTypeRoCEv1 GIDTypes = 1 << 0
	GIDTypeRoCEv2 GIDTypes = 1 << 1
)

// String returns the header's name without its prefix, or a hexadecimal number for
// bits without one.
func (g GIDTypes) String() string {
	return flagString(uint32(g), []string{"ROCE_V1", "ROCE_V2"})
}

// AtomicOps are the bits of DeviceCaps.AtomicOps (PVRDMA_ATOMIC_OP_* of pvrdma_dev_api.h).
type AtomicOps uint8

// The values of [AtomicOps].
const (
	AtomicOpCompSwap     AtomicOps = 1 << 0
	AtomicOpFetchAdd     AtomicOps = 1 << 1
	AtomicOpMaskCompSwap AtomicOps = 1 << 2
	AtomicOpMaskFetchAdd AtomicOps = 1 << 3
)

// String returns the header's name without its prefix, or a hexadecimal number for
// bits without one.
func (a AtomicOps) String() string {
	return flagString(uint32(a), []string{
		"COMP_SWAP", "FETCH_ADD", "MASK_COMP_SWAP", "MASK_FETCH_ADD",
	})
}

// BMMEFlags are the bits of DeviceCaps.BMMEFlags, base memory management extensions
// (PVRDMA_BMME_FLAG_* of pvrdma_dev_api.h). Linux uses the extensions if it finds all.
type BMMEFlags uint8

// The values of [BMMEFlags].
const (
	BMMEFlagLocalInv  BMMEFlags = 1 << 0
	BMMEFlagRemoteInv BMMEFlags = 1 << 1
	BMMEFlagFastRegWR BMMEFlags = 1 << 2
)

// String returns the header's name without its prefix, or a hexadecimal number for
// bits without one.
func (b BMMEFlags) String() string {
	return flagString(uint32(b), []string{"LOCAL_INV", "REMOTE_INV", "FAST_REG_WR"})
}

// MRFlags are the bits of CmdCreateMRReq.Flags (PVRDMA_MR_FLAG_* of pvrdma_dev_api.h).
type MRFlags uint32

// The values of [MRFlags].
const (
	MRFlagDMA  MRFlags = 1 << 0 // all of guest memory, by guest address
	MRFlagFRMR MRFlags = 1 << 1 // pages come later, with WRFastRegMR
)

// String returns the header's name without its prefix, or a hexadecimal number for
// bits without one.
func (m MRFlags) String() string { return flagString(uint32(m), []string{"DMA", "FRMR"}) }

// CQFlags are PVRDMA_CQ_FLAG_* of pvrdma_dev_api.h; nothing carries them.
type CQFlags uint32

// The values of [CQFlags].
const (
	CQFlagArmedSol CQFlags = 1 << 0
	CQFlagArmed    CQFlags = 1 << 1
)

// String returns the header's name without its prefix, or a hexadecimal number for
// bits without one.
func (c CQFlags) String() string { return flagString(uint32(c), []string{"ARMED_SOL", "ARMED"}) }

// SRQAttrMask is enum ib_srq_attr_mask (rdma/ib_verbs.h), CmdModifySRQReq.AttrMask.
type SRQAttrMask uint32

// The values of [SRQAttrMask].
const (
	SRQMaskMaxWR SRQAttrMask = 1 << 0
	SRQMaskLimit SRQAttrMask = 1 << 1 // Linux always sets it
)

// String returns the kernel's name without its prefix, or a hexadecimal number for
// bits without one.
func (s SRQAttrMask) String() string { return flagString(uint32(s), []string{"MAX_WR", "LIMIT"}) }
