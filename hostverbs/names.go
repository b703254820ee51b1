// SPDX-License-Identifier: Apache-2.0

package hostverbs

import (
	"fmt"
	"math/bits"
	"strings"
)

// The names below are the kernel's constants without their prefix, so that a log line can be searched for in its
// sources and manual pages. A value without a name shows its type and number.

// enumName returns the name of v, or its kind and number if it has none.
func enumName(kind string, v uint8, names []string) string {
	if int(v) < len(names) && names[v] != "" {
		return names[v]
	}
	return fmt.Sprintf("%s(%d)", kind, v)
}

// maskNames lists the names of the bits of v from bit 0 upwards, then what has no name as one hexadecimal number.
func maskNames(v uint32, name func(bit int) string) string {
	if v == 0 {
		return "0"
	}
	var b strings.Builder
	var unknown uint32
	for rest := v; rest != 0; rest &= rest - 1 {
		bit := bits.TrailingZeros32(rest)
		s := name(bit)
		if s == "" {
			unknown |= 1 << bit
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('|')
		}
		b.WriteString(s)
	}
	if unknown != 0 {
		if b.Len() > 0 {
			b.WriteByte('|')
		}
		fmt.Fprintf(&b, "%#x", unknown)
	}
	return b.String()
}

// nameAt returns a lookup in names that answers "" beyond its end.
func nameAt(names ...string) func(int) string {
	return func(i int) string {
		if i < len(names) {
			return names[i]
		}
		return ""
	}
}

// String returns the type's name, for example "RC".
func (t QPType) String() string {
	return enumName("QPType", uint8(t), []string{
		QPTypeSMI: "SMI", QPTypeGSI: "GSI", QPTypeRC: "RC", QPTypeUC: "UC", QPTypeUD: "UD", QPTypeRawPacket: "RAW_PACKET",
	})
}

// String returns the state's name, for example "RTS".
func (s QPState) String() string {
	return enumName("QPState", uint8(s), []string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"})
}

// String returns the names of the bits, for example "STATE|PKEY_INDEX|PORT".
func (m AttrMask) String() string {
	standard := nameAt("STATE", "CUR_STATE", "EN_SQD_ASYNC_NOTIFY", "ACCESS_FLAGS", "PKEY_INDEX", "PORT", "QKEY", "AV",
		"PATH_MTU", "TIMEOUT", "RETRY_CNT", "RNR_RETRY", "RQ_PSN", "MAX_QP_RD_ATOMIC", "ALT_PATH", "MIN_RNR_TIMER",
		"SQ_PSN", "MAX_DEST_RD_ATOMIC", "PATH_MIG_STATE", "CAP", "DEST_QPN")
	return maskNames(uint32(m), func(bit int) string {
		if AttrMask(1)<<bit == QPRateLimit {
			return "RATE_LIMIT"
		}
		return standard(bit)
	})
}

// String returns the MTU in bytes, for example "1024".
func (m MTU) String() string {
	if n := m.Bytes(); n != 0 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("MTU(%d)", uint8(m))
}

// String returns the names of the bits, for example "LOCAL_WRITE|REMOTE_READ".
func (a AccessFlags) String() string {
	return maskNames(uint32(a), nameAt("LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC", "MW_BIND", "ZERO_BASED"))
}

// String returns the GID as an IPv6 address without abbreviations, as sysfs shows it.
func (g GID) String() string {
	var b strings.Builder
	for i := 0; i < len(g); i += 2 {
		if i > 0 {
			b.WriteByte(':')
		}
		fmt.Fprintf(&b, "%02x%02x", g[i], g[i+1])
	}
	return b.String()
}

// String returns the type as sysfs shows it, for example "RoCE v2".
func (t GIDType) String() string {
	return enumName("GIDType", uint8(t), []string{GIDTypeRoCEv1: "RoCE v1", GIDTypeRoCEv2: "RoCE v2"})
}

// String returns the header's name, for example "IPV4".
func (n Network) String() string {
	return enumName("Network", uint8(n), []string{NetworkRoCEv1: "ROCE_V1", NetworkIPv4: "IPV4", NetworkIPv6: "IPV6"})
}

// String returns the operation's name, for example "RDMA_WRITE_WITH_IMM".
func (o WROpcode) String() string {
	return enumName("WROpcode", uint8(o), []string{
		"INVALID", "SEND", "SEND_WITH_IMM", "SEND_WITH_INV", "RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "RDMA_READ",
		"ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD", "LOCAL_INV", "REG_MR",
	})
}

// String returns the names of the bits, for example "FENCE|SIGNALED".
func (f SendFlags) String() string {
	return maskNames(uint32(f), nameAt("FENCE", "SIGNALED", "SOLICITED"))
}

// String returns the status's name, for example "RNR_RETRY_EXC_ERR".
func (s WCStatus) String() string {
	return enumName("WCStatus", uint8(s), []string{
		"SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR", "MW_BIND_ERR",
		"BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR", "RETRY_EXC_ERR",
		"RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR", "REM_ABORT_ERR", "INV_EECN_ERR",
		"INV_EEC_STATE_ERR", "FATAL_ERR", "RESP_TIMEOUT_ERR", "GENERAL_ERR",
	})
}

// String returns the operation's name, for example "RECV_RDMA_WITH_IMM".
func (o WCOpcode) String() string {
	return enumName("WCOpcode", uint8(o), []string{
		"SEND", "RDMA_WRITE", "RDMA_READ", "COMP_SWAP", "FETCH_ADD", "LOCAL_INV", "REG_MR", "RECV", "RECV_RDMA_WITH_IMM",
	})
}

// String returns the names of the bits, for example "GRH|WITH_IMM".
func (f WCFlags) String() string {
	return maskNames(uint32(f), nameAt("GRH", "WITH_IMM", "WITH_INVALIDATE", "", "", "", "WITH_NETWORK_HDR_TYPE"))
}

// String returns the event's name, for example "QP_ACCESS_ERR".
func (e EventType) String() string {
	return enumName("EventType", uint8(e), []string{
		"QP_FATAL", "QP_REQ_ERR", "QP_ACCESS_ERR", "COMM_EST", "SQ_DRAINED", "QP_LAST_WQE_REACHED", "SRQ_LIMIT_REACHED",
	})
}
