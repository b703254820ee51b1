// SPDX-License-Identifier: Apache-2.0

package abi_test

import "strings"

// goWord spells the words of C names that are not merely capitalised in Go.
func goWord(w string) string {
	switch w {
	case "qp", "cq", "srq", "pd", "mr", "ah", "av", "wr", "sge", "cqe", "wqe", "qpn", "cqn",
		"pdn", "srqn", "gid", "sgid", "dgid", "guid", "mtu", "psn", "rq", "sq", "id", "dma",
		"uar", "pfn", "rnr", "ee", "rdd", "mw", "fmr", "frmr", "ca", "bmme", "hw", "fw",
		"smac", "dmac", "slid", "dlid", "lid", "sl", "sm", "lmc", "vl", "gos", "sqd", "vlan",
		"wc", "iova", "pl", "rx", "tx", "rdma", "smi", "gsi", "rc", "uc", "ud", "xrc", "rtr",
		"rts", "sqe", "eec", "eecn", "lso", "grh", "ip", "cm", "snmp", "dr",
		"led", "nvram", "sdr", "ddr", "qdr", "fdr", "fdr10", "edr", "msix", "ib", "pfn64",
		"1x", "4x", "8x", "12x", "icr", "imr", "pci":
		return strings.ToUpper(w)
	case "v1", "v2":
		return w
	case "qkey", "pkey", "mkey", "lkey", "rkey":
		return strings.ToUpper(w[:1]) + "K" + w[2:]
	}
	special := map[string]string{
		"pkeys": "PKeys", "pdir": "PDir", "ptable": "PTable", "nchunks": "NChunks",
		"ipv4": "IPv4", "ipv6": "IPv6", "tclass": "TClass", "flowlabel": "FlowLabel",
		"paylen": "PayLen", "roce": "RoCE", "iwarp": "IWARP", "infiniband": "InfiniBand",
		"unk": "Unknown", "gids": "GIDs", "ethertype": "EtherType", "ipopvrdma": "IPoPVRDMA",
		"ok": "OK", "dsrlow": "DSRLow", "dsrhigh": "DSRHigh", "macl": "MACLow",
		"mach": "MACHigh", "uverbs": "Uverbs", "abi": "ABI",
	}
	if s, ok := special[w]; ok {
		return s
	}
	return strings.ToUpper(w[:1]) + w[1:]
}

// goName is the rule of the package comment: a C name in camel case.
func goName(c string) string {
	var b strings.Builder
	for w := range strings.SplitSeq(strings.ToLower(c), "_") {
		if w != "" {
			b.WriteString(goWord(w))
		}
	}
	return b.String()
}
