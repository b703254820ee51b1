// SPDX-License-Identifier: Apache-2.0

package abi

// The registers of BAR 1 by offset in bytes, each 32 bits wide (PVRDMA_REG_* of
// pvrdma_dev_api.h). The direction is the driver's.
const (
	RegVersion = 0x00 // R: device version
	RegDSRLow  = 0x04 // W: guest address of the DSR, low half
	RegDSRHigh = 0x08 // W: high half; this write loads the DSR
	RegCtl     = 0x0c // W: DeviceCtl
	RegRequest = 0x10 // W: a request is in the command slot
	RegErr     = 0x14 // R: result of the last CTL or REQUEST, 0 for success
	RegICR     = 0x18 // R: IntrCause
	RegIMR     = 0x1c // R/W: 0 enables interrupts, ^0 masks them
	RegMACLow  = 0x20 // R/W: not used by Linux
	RegMACHigh = 0x24 // R/W: not used by Linux
)

// RegsSize is the size of the registers in bytes: the end of the last one.
const RegsSize = 0x28

// RegName returns the header's name of the register at offset off, without its prefix, or
// the offset in hexadecimal.
func RegName(off uint64) string {
	if off < RegsSize && off%4 == 0 {
		return [...]string{
			"VERSION", "DSRLOW", "DSRHIGH", "CTL", "REQUEST", "ERR", "ICR", "IMR", "MACL", "MACH",
		}[off/4]
	}
	return hex64(off)
}

// Versions of the device and of the driver (pvrdma_dev_api.h). What both understand is
// EffectiveVersion.
const (
	VersionRoCEv1   = 17 // the first; RoCE v1 only
	VersionRoCEv2   = 18 // RoCE v2; MaxSGERd and MaxFastRegPageListLen count
	VersionPPN64    = 19 // 64-bit page frame numbers
	VersionQPHandle = 20 // CmdCreateQPRespV2
	VersionMax      = VersionQPHandle
)

// EffectiveVersion returns the version whose layouts a driver and a device use: the lower
// of RegVersion and DSR.DriverVersion. The driver itself only looks at the device's, but
// it does not know what came after its own.
func EffectiveVersion(device, driver uint32) uint32 { return min(device, driver) }

// AcceptCaps reports whether Linux accepts a device with these values: the macro
// PVRDMA_SUPPORTED of pvrdma_dev_api.h. A device that offers both GID types is refused.
func AcceptCaps(version uint32, mode DeviceMode, gidTypes GIDTypes) bool {
	if mode != DeviceModeRoCE {
		return false
	}
	switch gidTypes {
	case GIDTypeRoCEv1:
		return version >= VersionRoCEv1
	case GIDTypeRoCEv2:
		return version >= VersionRoCEv2
	}
	return false
}

// PCI identity and limits.
const (
	PCIVendorID      = 0x15ad // linux/pci_ids.h
	PCIDeviceID      = 0x0820 // pvrdma.h
	BoardID          = 1      // pvrdma_dev_api.h
	RevID            = 1      // pvrdma_dev_api.h
	MaxInterrupts    = 3      // pvrdma_dev_api.h: MSI-X vectors that the driver asks for
	UverbsABIVersion = 3      // vmw_pvrdma-abi.h: version of the Uverbs types
	NumRingPages     = 4      // pvrdma.h: RingPageInfo.NumPages as Linux sets it
	QPNumHeaderPages = 1      // pvrdma.h: pages before a QP's send queue
)
