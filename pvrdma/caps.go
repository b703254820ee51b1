// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

const (
	// portNum is the device's only port.
	portNum = 1
	// gidTableLen is as long as the driver can use: an address names its source by eight bits.
	gidTableLen = 256
	// pkeyTableLen is 1: RoCE has the default partition only.
	pkeyTableLen = 1
	defaultPKey  = 0xffff
	// maxQPHandles is what user space can tell apart: it keeps 16 bits of a queue pair's handle.
	maxQPHandles = 65535
	// maxPinnedPages bounds what a guest registers at any time: 64 GiB, for which the page lists take at most 400 MiB.
	maxPinnedPages = 64 << 30 / abi.PageSize
	pageSizeCap    = abi.PageSize
	vendorID       = abi.PCIVendorID
)

// capabilities returns what the device offers: the engine's abilities, cut by the configuration. What is not there is 0.
func (d *Device) capabilities() abi.DeviceCaps {
	a := d.provider.QueryDevice()
	l := d.cfg.Limits
	guid := guidFromMAC(d.cfg.MAC)
	c := abi.DeviceCaps{
		FWVer: a.FWVer, NodeGUID: guid, SysImageGUID: guid,
		MaxMRSize:   min(a.MaxMRSize, abi.MaxPages*abi.PageSize),
		PageSizeCap: pageSizeCap, VendorID: vendorID, VendorPartID: abi.PCIDeviceID, HWVer: a.HWVer,
		MaxQP: min(cut(a.MaxQP, l.MaxQP), maxQPHandles), MaxQPWR: a.MaxQPWR, MaxSGE: a.MaxSGE, MaxSGERd: a.MaxSGERd,
		MaxCQ: cut(a.MaxCQ, l.MaxCQ), MaxCQE: a.MaxCQE, MaxMR: cut(a.MaxMR, l.MaxMR), MaxPD: cut(a.MaxPD, l.MaxPD),
		MaxQPRdAtom: a.MaxQPRdAtom, MaxQPInitRdAtom: a.MaxQPInitRdAtom, MaxAH: a.MaxAH,
		MaxSRQ: cut(a.MaxSRQ, l.MaxSRQ), MaxSRQWR: a.MaxSRQWR, MaxSRQSGE: a.MaxSRQSGE,
		MaxUAR: d.cfg.MaxUAR, GIDTblLen: gidTableLen, MaxPKeys: pkeyTableLen, LocalCAAckDelay: a.LocalCAAckDelay,
		PhysPortCnt: portNum, Mode: abi.DeviceModeRoCE, GIDTypes: abi.GIDTypes(d.cfg.GIDType),
	}
	offerOperations(&c, &a)
	return c
}

// offerOperations offers the operations that not every engine has. The driver calls atomics those of an adapter
// (IB_ATOMIC_HCA), and passes that on as the capability of masked atomics too, of which it has none.
func offerOperations(c *abi.DeviceCaps, a *hostverbs.DeviceAttr) {
	if a.AtomicCmpSwap {
		c.AtomicOps |= abi.AtomicOpCompSwap
	}
	if a.AtomicFetchAdd {
		c.AtomicOps |= abi.AtomicOpFetchAdd
	}
	if a.LocalInvalidate && a.RemoteInvalidate && a.FastRegistration { // the driver looks for all of them
		c.BMMEFlags = abi.BMMEFlagLocalInv | abi.BMMEFlagRemoteInv | abi.BMMEFlagFastRegWR
		c.MaxFastRegPageListLen = min(a.MaxFastRegPageLen, maxFastRegPages)
	}
}

// cut returns the smaller of a capability and a configured limit, of which 0 means none.
func cut(have uint32, limit int) uint32 {
	if limit > 0 && uint32(limit) < have {
		return uint32(limit)
	}
	return have
}

// guidFromMAC is the modified EUI-64 of a MAC (RFC 4291 appendix A), in network byte order. It is never 0.
func guidFromMAC(mac [6]byte) [8]byte {
	return [8]byte{mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]}
}
