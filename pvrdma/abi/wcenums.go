// SPDX-License-Identifier: Apache-2.0

package abi

// WCStatus is enum pvrdma_wc_status (vmw_pvrdma-abi.h), the status of a completion.
type WCStatus uint32

// The values of [WCStatus].
const (
	WCSuccess        WCStatus = 0
	WCLocLenErr      WCStatus = 1
	WCLocQPOpErr     WCStatus = 2
	WCLocEECOpErr    WCStatus = 3
	WCLocProtErr     WCStatus = 4
	WCWRFlushErr     WCStatus = 5
	WCMWBindErr      WCStatus = 6
	WCBadRespErr     WCStatus = 7
	WCLocAccessErr   WCStatus = 8
	WCRemInvReqErr   WCStatus = 9
	WCRemAccessErr   WCStatus = 10
	WCRemOpErr       WCStatus = 11
	WCRetryExcErr    WCStatus = 12
	WCRNRRetryExcErr WCStatus = 13
	WCLocRDDViolErr  WCStatus = 14
	WCRemInvRdReqErr WCStatus = 15
	WCRemAbortErr    WCStatus = 16
	WCInvEECNErr     WCStatus = 17
	WCInvEECStateErr WCStatus = 18
	WCFatalErr       WCStatus = 19
	WCRespTimeoutErr WCStatus = 20
	WCGeneralErr     WCStatus = 21
)

// String returns the header's name without its prefix, or a hexadecimal number.
func (w WCStatus) String() string {
	return enumString(uint32(w), []string{
		0:  "SUCCESS",
		1:  "LOC_LEN_ERR",
		2:  "LOC_QP_OP_ERR",
		3:  "LOC_EEC_OP_ERR",
		4:  "LOC_PROT_ERR",
		5:  "WR_FLUSH_ERR",
		6:  "MW_BIND_ERR",
		7:  "BAD_RESP_ERR",
		8:  "LOC_ACCESS_ERR",
		9:  "REM_INV_REQ_ERR",
		10: "REM_ACCESS_ERR",
		11: "REM_OP_ERR",
		12: "RETRY_EXC_ERR",
		13: "RNR_RETRY_EXC_ERR",
		14: "LOC_RDD_VIOL_ERR",
		15: "REM_INV_RD_REQ_ERR",
		16: "REM_ABORT_ERR",
		17: "INV_EECN_ERR",
		18: "INV_EEC_STATE_ERR",
		19: "FATAL_ERR",
		20: "RESP_TIMEOUT_ERR",
		21: "GENERAL_ERR",
	})
}

// WCOpcode is enum pvrdma_wc_opcode (vmw_pvrdma-abi.h), the operation of a completion. User
// space sees the number as it is, and its own numbering differs from 6 on.
type WCOpcode uint32

// The values of [WCOpcode].
const (
	WCSend            WCOpcode = 0
	WCRDMAWrite       WCOpcode = 1
	WCRDMARead        WCOpcode = 2
	WCCompSwap        WCOpcode = 3
	WCFetchAdd        WCOpcode = 4
	WCBindMW          WCOpcode = 5
	WCLSO             WCOpcode = 6
	WCLocalInv        WCOpcode = 7
	WCFastRegMR       WCOpcode = 8
	WCMaskedCompSwap  WCOpcode = 9
	WCMaskedFetchAdd  WCOpcode = 10
	WCRecv            WCOpcode = 128
	WCRecvRDMAWithImm WCOpcode = 129
)

// String returns the header's name without its prefix, or a hexadecimal number.
func (w WCOpcode) String() string {
	switch w {
	case WCSend:
		return "SEND"
	case WCRDMAWrite:
		return "RDMA_WRITE"
	case WCRDMARead:
		return "RDMA_READ"
	case WCCompSwap:
		return "COMP_SWAP"
	case WCFetchAdd:
		return "FETCH_ADD"
	case WCBindMW:
		return "BIND_MW"
	case WCLSO:
		return "LSO"
	case WCLocalInv:
		return "LOCAL_INV"
	case WCFastRegMR:
		return "FAST_REG_MR"
	case WCMaskedCompSwap:
		return "MASKED_COMP_SWAP"
	case WCMaskedFetchAdd:
		return "MASKED_FETCH_ADD"
	case WCRecv:
		return "RECV"
	case WCRecvRDMAWithImm:
		return "RECV_RDMA_WITH_IMM"
	}
	return hex(uint32(w))
}

// WCFlags is enum pvrdma_wc_flags (vmw_pvrdma-abi.h). User space sees the word as it is and
// agrees with it about the first two bits only.
type WCFlags uint32

// The values of [WCFlags].
const (
	WCFlagGRH                WCFlags = 1 << 0
	WCFlagWithImm            WCFlags = 1 << 1
	WCFlagWithInvalidate     WCFlags = 1 << 2
	WCFlagIPCsumOK           WCFlags = 1 << 3
	WCFlagWithSMAC           WCFlags = 1 << 4
	WCFlagWithVLAN           WCFlags = 1 << 5
	WCFlagWithNetworkHdrType WCFlags = 1 << 6
	WCFlagMax                WCFlags = WCFlagWithNetworkHdrType
)

// String returns the header's name without its prefix, or a hexadecimal number for
// bits without one.
func (w WCFlags) String() string {
	return flagString(uint32(w), []string{
		0: "GRH",
		1: "WITH_IMM",
		2: "WITH_INVALIDATE",
		3: "IP_CSUM_OK",
		4: "WITH_SMAC",
		5: "WITH_VLAN",
		6: "WITH_NETWORK_HDR_TYPE",
	})
}

// NetworkType is enum pvrdma_network_type (vmw_pvrdma-abi.h), the header of a received
// datagram.
type NetworkType uint8

// The values of [NetworkType].
const (
	NetworkRoCEv1 NetworkType = 0
	NetworkIB     NetworkType = 0
	NetworkIPv4   NetworkType = 1
	NetworkIPv6   NetworkType = 2
)

// String returns the header's name without its prefix, or a hexadecimal number.
func (n NetworkType) String() string {
	return enumString(uint32(n), []string{
		0: "ROCE_V1",
		1: "IPV4",
		2: "IPV6",
	})
}

// CQNotifyFlags is enum pvrdma_cq_notify_flags (pvrdma_verbs.h); nothing carries them, see
// UARCQArm.
type CQNotifyFlags uint32

// The values of [CQNotifyFlags].
const (
	CQNotifySolicited          CQNotifyFlags = 1 << 0
	CQNotifyNextComp           CQNotifyFlags = 1 << 1
	CQNotifySolicitedMask      CQNotifyFlags = 3
	CQNotifyReportMissedEvents CQNotifyFlags = 1 << 2
)

// String returns the header's name without its prefix, or a hexadecimal number for
// bits without one.
func (c CQNotifyFlags) String() string {
	return flagString(uint32(c), []string{
		0: "SOLICITED",
		1: "NEXT_COMP",
		2: "REPORT_MISSED_EVENTS",
	})
}
