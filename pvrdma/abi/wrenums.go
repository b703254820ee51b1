// SPDX-License-Identifier: Apache-2.0

package abi

// WROpcode is enum pvrdma_wr_opcode (vmw_pvrdma-abi.h), the operation of a send work
// request. User space passes its own numbering through unchecked, which differs from 7 on.
type WROpcode uint32

// The values of [WROpcode].
const (
	WRRDMAWrite               WROpcode = 0
	WRRDMAWriteWithImm        WROpcode = 1
	WRSend                    WROpcode = 2
	WRSendWithImm             WROpcode = 3
	WRRDMARead                WROpcode = 4
	WRAtomicCmpAndSwp         WROpcode = 5
	WRAtomicFetchAndAdd       WROpcode = 6
	WRLSO                     WROpcode = 7
	WRSendWithInv             WROpcode = 8
	WRRDMAReadWithInv         WROpcode = 9
	WRLocalInv                WROpcode = 10
	WRFastRegMR               WROpcode = 11
	WRMaskedAtomicCmpAndSwp   WROpcode = 12
	WRMaskedAtomicFetchAndAdd WROpcode = 13
	WRBindMW                  WROpcode = 14
	WRRegSigMR                WROpcode = 15
	WRError                   WROpcode = 16
)

// String returns the header's name without its prefix, or a hexadecimal number.
func (w WROpcode) String() string {
	return enumString(uint32(w), []string{
		0:  "RDMA_WRITE",
		1:  "RDMA_WRITE_WITH_IMM",
		2:  "SEND",
		3:  "SEND_WITH_IMM",
		4:  "RDMA_READ",
		5:  "ATOMIC_CMP_AND_SWP",
		6:  "ATOMIC_FETCH_AND_ADD",
		7:  "LSO",
		8:  "SEND_WITH_INV",
		9:  "RDMA_READ_WITH_INV",
		10: "LOCAL_INV",
		11: "FAST_REG_MR",
		12: "MASKED_ATOMIC_CMP_AND_SWP",
		13: "MASKED_ATOMIC_FETCH_AND_ADD",
		14: "BIND_MW",
		15: "REG_SIG_MR",
		16: "ERROR",
	})
}

// SendFlags is enum pvrdma_send_flags (pvrdma_verbs.h), the flags of a send work request.
type SendFlags uint32

// The values of [SendFlags].
const (
	SendFence     SendFlags = 1 << 0
	SendSignaled  SendFlags = 1 << 1
	SendSolicited SendFlags = 1 << 2
	SendInline    SendFlags = 1 << 3
	SendIPCsum    SendFlags = 1 << 4
	SendMax       SendFlags = SendIPCsum
)

// String returns the header's name without its prefix, or a hexadecimal number for
// bits without one.
func (s SendFlags) String() string {
	return flagString(uint32(s), []string{
		0: "FENCE",
		1: "SIGNALED",
		2: "SOLICITED",
		3: "INLINE",
		4: "IP_CSUM",
	})
}

// AccessFlags is enum pvrdma_access_flags (pvrdma_verbs.h), the rights of a memory region
// or QP. A guest can pass later bits of its kernel, such as relaxed ordering.
type AccessFlags uint32

// The values of [AccessFlags].
const (
	AccessLocalWrite   AccessFlags = 1 << 0
	AccessRemoteWrite  AccessFlags = 1 << 1
	AccessRemoteRead   AccessFlags = 1 << 2
	AccessRemoteAtomic AccessFlags = 1 << 3
	AccessMWBind       AccessFlags = 1 << 4
	AccessZeroBased    AccessFlags = 1 << 5
	AccessOnDemand     AccessFlags = 1 << 6
	AccessMax          AccessFlags = AccessOnDemand
)

// String returns the header's name without its prefix, or a hexadecimal number for
// bits without one.
func (a AccessFlags) String() string {
	return flagString(uint32(a), []string{
		0: "LOCAL_WRITE",
		1: "REMOTE_WRITE",
		2: "REMOTE_READ",
		3: "REMOTE_ATOMIC",
		4: "MW_BIND",
		5: "ZERO_BASED",
		6: "ON_DEMAND",
	})
}

// MWType is enum pvrdma_mw_type (pvrdma_verbs.h); nothing carries it.
type MWType uint32

// The values of [MWType].
const (
	MWType1 MWType = 1
	MWType2 MWType = 2
)

// String returns the header's name without its prefix, or a hexadecimal number.
func (m MWType) String() string {
	return enumString(uint32(m), []string{
		1: "1",
		2: "2",
	})
}
