// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"fmt"
	"reflect"

	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// enumeration says which Go type stands for a C enumeration or family of macros. Its
// values are not said here: the headers and the Go type checker say them.
type enumeration struct {
	tag      string // C enumeration; "" for macros
	cPrefix  string // of the enumerators, or of the family
	goPrefix string // of the Go constants
	goType   string
	show     func(v uint32) fmt.Stringer
	flags    bool
}

// enumerations lists the Go types with a String method. A C enumeration missing here
// fails the test.
func enumerations() []enumeration {
	return append(verbsEnumerations(), []enumeration{
		valuesOf[abi.Cmd]("first:PVRDMA_CMD_FIRST", "PVRDMA_CMD_", "Cmd"),
		valuesOf[abi.DeviceCtl]("pvrdma_device_ctl", "PVRDMA_DEVICE_CTL_", "DeviceCtl"),
		valuesOf[abi.DeviceMode]("pvrdma_device_mode", "PVRDMA_DEVICE_MODE_", "DeviceMode"),
		valuesOf[abi.EventType]("pvrdma_eqe_type", "PVRDMA_EVENT_", "Event"),
		valuesOf[abi.GOSBits]("pvrdma_gos_bits", "PVRDMA_GOS_BITS_", "GOSBits"),
		valuesOf[abi.GOSType]("pvrdma_gos_type", "PVRDMA_GOS_TYPE_", "GOSType"),
		bitsOf[abi.IntrCause]("pvrdma_intr_cause", "PVRDMA_INTR_CAUSE_", "IntrCause"),
		valuesOf[abi.IntrVector]("pvrdma_intr_vector", "PVRDMA_INTR_VECTOR_", "IntrVector"),
		valuesOf[abi.PCIResource]("pvrdma_pci_resource", "PVRDMA_PCI_RESOURCE_", "PCIResource"),
		valuesOf[abi.NetworkType]("pvrdma_network_type", "PVRDMA_NETWORK_", "Network"),
		bitsOf[abi.WCFlags]("pvrdma_wc_flags", "PVRDMA_WC_", "WCFlag"),
		valuesOf[abi.WCOpcode]("pvrdma_wc_opcode", "PVRDMA_WC_", "WC"),
		valuesOf[abi.WCStatus]("pvrdma_wc_status", "PVRDMA_WC_", "WC"),
		valuesOf[abi.WROpcode]("pvrdma_wr_opcode", "PVRDMA_WR_", "WR"),

		bitsOf[abi.AtomicOps]("", "PVRDMA_ATOMIC_OP_", "AtomicOp"),
		bitsOf[abi.BMMEFlags]("", "PVRDMA_BMME_FLAG_", "BMMEFlag"),
		bitsOf[abi.CQFlags]("", "PVRDMA_CQ_FLAG_", "CQFlag"),
		bitsOf[abi.GIDTypes]("", "PVRDMA_GID_TYPE_FLAG_", "GIDType"),
		bitsOf[abi.MRFlags]("", "PVRDMA_MR_FLAG_", "MRFlag"),
	}...)
}

// verbsEnumerations are those of pvrdma_verbs.h.
func verbsEnumerations() []enumeration {
	return []enumeration{
		bitsOf[abi.AccessFlags]("pvrdma_access_flags", "PVRDMA_ACCESS_", "Access"),
		bitsOf[abi.AHFlags]("pvrdma_ah_flags", "PVRDMA_AH_", "AHFlag"),
		bitsOf[abi.CQNotifyFlags]("pvrdma_cq_notify_flags", "PVRDMA_CQ_", "CQNotify"),
		valuesOf[abi.LinkLayer]("pvrdma_link_layer", "PVRDMA_LINK_LAYER_", "LinkLayer"),
		valuesOf[abi.MigState]("pvrdma_mig_state", "PVRDMA_MIG_", "Mig"),
		valuesOf[abi.MTU]("pvrdma_mtu", "PVRDMA_MTU_", "MTU"),
		valuesOf[abi.MWType]("pvrdma_mw_type", "PVRDMA_MW_TYPE_", "MWType"),
		bitsOf[abi.PortCapFlags]("pvrdma_port_cap_flags", "PVRDMA_PORT_", "PortCap"),
		valuesOf[abi.PortSpeed]("pvrdma_port_speed", "PVRDMA_SPEED_", "Speed"),
		valuesOf[abi.PortState]("pvrdma_port_state", "PVRDMA_PORT_", "Port"),
		valuesOf[abi.PortWidth]("pvrdma_port_width", "PVRDMA_WIDTH_", "Width"),
		bitsOf[abi.QPAttrMask]("pvrdma_qp_attr_mask", "PVRDMA_QP_", "QPMask"),
		bitsOf[abi.QPCreateFlags]("pvrdma_qp_create_flags", "PVRDMA_QP_CREATE_", "QPCreate"),
		valuesOf[abi.QPState]("pvrdma_qp_state", "PVRDMA_QPS_", "QPState"),
		valuesOf[abi.QPType]("pvrdma_qp_type", "PVRDMA_QPT_", "QPType"),
		valuesOf[abi.Rate]("pvrdma_rate", "PVRDMA_RATE_", "Rate"),
		bitsOf[abi.SendFlags]("pvrdma_send_flags", "PVRDMA_SEND_", "Send"),
		valuesOf[abi.SigType]("pvrdma_sig_type", "PVRDMA_SIGNAL_", "Signal"),
	}
}

// valuesOf describes an enumeration whose values are T, bitsOf one whose values are T's bits.
func valuesOf[T named](tag, cPrefix, goPrefix string) enumeration {
	return enumeration{tag, cPrefix, goPrefix, reflect.TypeFor[T]().Name(), show[T], false}
}

func bitsOf[T named](tag, cPrefix, goPrefix string) enumeration {
	return enumeration{tag, cPrefix, goPrefix, reflect.TypeFor[T]().Name(), show[T], true}
}

type named interface {
	~uint8 | ~uint32
	fmt.Stringer
}

// show makes a T of a number, cut to T's width.
func show[T named](v uint32) fmt.Stringer {
	return T(v)
}

// goNames are the constants whose names do not follow from C's by goName.
func goNames() map[string]string {
	return map[string]string{
		"PVRDMA_ACCESS_FLAGS_MAX":         "AccessMax",
		"PVRDMA_PORT_CAP_FLAGS_MAX":       "PortCapMax",
		"PVRDMA_PORT_CAP_MASK_NOTICE_SUP": "PortCapMaskNoticeSup",
		"PVRDMA_QP_ATTR_MASK_MAX":         "QPMaskMax",
		"PVRDMA_SEND_FLAGS_MAX":           "SendMax",
		"PVRDMA_WC_FLAGS_MAX":             "WCFlagMax",
		"PVRDMA_RATE_2_5_GBPS":            "Rate2_5Gbps",
		"PVRDMA_ZERO_BASED":               "AccessZeroBased",

		"PVRDMA_ROCEV1_VERSION":       "VersionRoCEv1",
		"PVRDMA_ROCEV2_VERSION":       "VersionRoCEv2",
		"PVRDMA_PPN64_VERSION":        "VersionPPN64",
		"PVRDMA_QPHANDLE_VERSION":     "VersionQPHandle",
		"PVRDMA_VERSION":              "VersionMax",
		"PVRDMA_PAGE_DIR_MAX_PAGES":   "MaxPages",
		"PCI_DEVICE_ID_VMWARE_PVRDMA": "PCIDeviceID",

		"PVRDMA_CMD_FIRST_RESP": "AckFirst",
		"PVRDMA_CMD_MAX_RESP":   "AckMax",
	}
}

// unusedMacros are the macros without a Go counterpart, each with its reason.
func unusedMacros() map[string]string {
	return map[string]string{
		"PVRDMA_INVALID_IDX": "C's way to return no index; Go functions return ok",
	}
}

// ownConstants are the Go constants that C has no name for, and what they must be.
func ownConstants(l *cLayout) map[string]uint32 {
	s := l.Structs
	return map[string]uint32{
		"CmdReqSize":         uint32(s["pvrdma_cmd_req"].Size),
		"CmdRespSize":        uint32(s["pvrdma_cmd_resp"].Size),
		"DSRUARPFNOffset":    uint32(s["pvrdma_device_shared_region"].Fields["uar_pfn64"].Offset),
		"DSRCapsOffset":      uint32(s["pvrdma_device_shared_region"].Fields["caps"].Offset),
		"ModifyQPAttrOffset": uint32(s["pvrdma_cmd_modify_qp"].Fields["attrs"].Offset),
		"QueryQPAttrOffset":  uint32(s["pvrdma_cmd_query_qp_resp"].Fields["attrs"].Offset),
		"RingProdTailOffset": uint32(s["pvrdma_ring"].Fields["prod_tail"].Offset),
		"RingConsHeadOffset": uint32(s["pvrdma_ring"].Fields["cons_head"].Offset),
		"RingStateTXOffset":  uint32(s["pvrdma_ring_state"].Fields["tx"].Offset),
		"RingStateRXOffset":  uint32(s["pvrdma_ring_state"].Fields["rx"].Offset),
		"SendWQEWROffset":    uint32(s["pvrdma_sq_wqe_hdr"].Fields["wr"].Offset),
		"SendWQEWRSize":      uint32(s["pvrdma_sq_wqe_hdr"].Fields["wr"].Size),
		"SendWQESGEOffset":   uint32(s["pvrdma_sq_wqe_hdr"].Size),
		"RecvWQESGEOffset":   uint32(s["pvrdma_rq_wqe_hdr"].Size),
		"RegsSize":           l.Macros["PVRDMA_REG_MACH"] + 4,
		"PDirEntries":        1 << l.Macros["PVRDMA_PTABLE_SHIFT"],
		"PDirEntSize":        8, // u64 *dir, struct pvrdma_page_dir
		"PageSize":           4096,
		"UARPageSize":        4096,
		"MaxWQESGE":          128,
		"PCIVendorID":        0x15ad,
		"QPMaskAll":          l.Enums["pvrdma_qp_attr_mask"]["PVRDMA_QP_ATTR_MASK_MAX"]<<1 - 1,
		"AVSrcPathBitsSet":   0x80, // pvrdma_create_ah
		"SRQMaskMaxWR":       1,    // IB_SRQ_MAX_WR
		"SRQMaskLimit":       2,    // IB_SRQ_LIMIT
	}
}
