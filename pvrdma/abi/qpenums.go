// SPDX-License-Identifier: Apache-2.0

package abi

// QPType is enum pvrdma_qp_type (pvrdma_verbs.h). Linux creates RC, UD and GSI.
type QPType uint8

// The values of [QPType].
const (
	QPTypeSMI          QPType = 0
	QPTypeGSI          QPType = 1
	QPTypeRC           QPType = 2
	QPTypeUC           QPType = 3
	QPTypeUD           QPType = 4
	QPTypeRawIPv6      QPType = 5
	QPTypeRawEtherType QPType = 6
	QPTypeRawPacket    QPType = 8
	QPTypeXRCIni       QPType = 9
	QPTypeXRCTgt       QPType = 10
	QPTypeMax          QPType = 11
)

// String returns the header's name without its prefix, or a hexadecimal number.
func (q QPType) String() string {
	return enumString(uint32(q), []string{
		0:  "SMI",
		1:  "GSI",
		2:  "RC",
		3:  "UC",
		4:  "UD",
		5:  "RAW_IPV6",
		6:  "RAW_ETHERTYPE",
		8:  "RAW_PACKET",
		9:  "XRC_INI",
		10: "XRC_TGT",
	})
}

// QPState is enum pvrdma_qp_state (pvrdma_verbs.h).
type QPState uint32

// The values of [QPState].
const (
	QPStateReset QPState = 0
	QPStateInit  QPState = 1
	QPStateRTR   QPState = 2
	QPStateRTS   QPState = 3
	QPStateSQD   QPState = 4
	QPStateSQE   QPState = 5
	QPStateErr   QPState = 6
)

// String returns the header's name without its prefix, or a hexadecimal number.
func (q QPState) String() string {
	return enumString(uint32(q), []string{
		0: "RESET",
		1: "INIT",
		2: "RTR",
		3: "RTS",
		4: "SQD",
		5: "SQE",
		6: "ERR",
	})
}

// MigState is enum pvrdma_mig_state (pvrdma_verbs.h), the state of path migration.
type MigState uint32

// The values of [MigState].
const (
	MigMigrated MigState = 0
	MigRearm    MigState = 1
	MigArmed    MigState = 2
)

// String returns the header's name without its prefix, or a hexadecimal number.
func (m MigState) String() string {
	return enumString(uint32(m), []string{
		0: "MIGRATED",
		1: "REARM",
		2: "ARMED",
	})
}

// QPAttrMask is enum pvrdma_qp_attr_mask (pvrdma_verbs.h), the fields of a QPAttr that a
// MODIFY_QP sets.
type QPAttrMask uint32

// The values of [QPAttrMask].
const (
	QPMaskState            QPAttrMask = 1 << 0
	QPMaskCurState         QPAttrMask = 1 << 1
	QPMaskEnSQDAsyncNotify QPAttrMask = 1 << 2
	QPMaskAccessFlags      QPAttrMask = 1 << 3
	QPMaskPKeyIndex        QPAttrMask = 1 << 4
	QPMaskPort             QPAttrMask = 1 << 5
	QPMaskQKey             QPAttrMask = 1 << 6
	QPMaskAV               QPAttrMask = 1 << 7
	QPMaskPathMTU          QPAttrMask = 1 << 8
	QPMaskTimeout          QPAttrMask = 1 << 9
	QPMaskRetryCnt         QPAttrMask = 1 << 10
	QPMaskRNRRetry         QPAttrMask = 1 << 11
	QPMaskRQPSN            QPAttrMask = 1 << 12
	QPMaskMaxQPRdAtomic    QPAttrMask = 1 << 13
	QPMaskAltPath          QPAttrMask = 1 << 14
	QPMaskMinRNRTimer      QPAttrMask = 1 << 15
	QPMaskSQPSN            QPAttrMask = 1 << 16
	QPMaskMaxDestRdAtomic  QPAttrMask = 1 << 17
	QPMaskPathMigState     QPAttrMask = 1 << 18
	QPMaskCap              QPAttrMask = 1 << 19
	QPMaskDestQPN          QPAttrMask = 1 << 20
	QPMaskMax              QPAttrMask = QPMaskDestQPN
)

// String returns the header's name without its prefix, or a hexadecimal number for
// bits without one.
func (q QPAttrMask) String() string {
	return flagString(uint32(q), []string{
		0:  "STATE",
		1:  "CUR_STATE",
		2:  "EN_SQD_ASYNC_NOTIFY",
		3:  "ACCESS_FLAGS",
		4:  "PKEY_INDEX",
		5:  "PORT",
		6:  "QKEY",
		7:  "AV",
		8:  "PATH_MTU",
		9:  "TIMEOUT",
		10: "RETRY_CNT",
		11: "RNR_RETRY",
		12: "RQ_PSN",
		13: "MAX_QP_RD_ATOMIC",
		14: "ALT_PATH",
		15: "MIN_RNR_TIMER",
		16: "SQ_PSN",
		17: "MAX_DEST_RD_ATOMIC",
		18: "PATH_MIG_STATE",
		19: "CAP",
		20: "DEST_QPN",
	})
}

// QPCreateFlags is enum pvrdma_qp_create_flags (pvrdma_verbs.h); no command carries them.
type QPCreateFlags uint32

// The values of [QPCreateFlags].
const (
	QPCreateIPoPVRDMAUDLSO         QPCreateFlags = 1 << 0
	QPCreateBlockMulticastLoopback QPCreateFlags = 1 << 1
)

// String returns the header's name without its prefix, or a hexadecimal number for
// bits without one.
func (q QPCreateFlags) String() string {
	return flagString(uint32(q), []string{
		0: "IPOPVRDMA_UD_LSO",
		1: "BLOCK_MULTICAST_LOOPBACK",
	})
}

// SigType is enum pvrdma_sig_type (pvrdma_verbs.h); no command carries it, see
// CmdCreateQPReq.SQSigAll.
type SigType uint32

// The values of [SigType].
const (
	SignalAllWR SigType = 0
	SignalReqWR SigType = 1
)

// String returns the header's name without its prefix, or a hexadecimal number.
func (s SigType) String() string {
	return enumString(uint32(s), []string{
		0: "ALL_WR",
		1: "REQ_WR",
	})
}
