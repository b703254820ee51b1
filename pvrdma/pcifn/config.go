// SPDX-License-Identifier: Apache-2.0

package pcifn

import (
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"github.com/pvrdmad/pvrdmad/vfiouser"
)

const (
	configSize = vfiouser.ConfigSpaceSize
	numBARs    = 3
	msixPBAOff = 0x2000
	bar0Size   = 0x4000
	bar1Size   = 0x1000
	classOther = 0x028000 // PCI_CLASS_NETWORK_OTHER
)

// barSizes returns the sizes of the three BARs: MSI-X table, registers, doorbell pages.
func barSizes(maxUAR uint32) [numBARs]uint64 {
	return [numBARs]uint64{bar0Size, bar1Size, uint64(maxUAR) * abi.UARPageSize}
}

// newConfigSpace returns the function's configuration space after power-on.
func newConfigSpace(maxUAR uint32) (*vfiouser.ConfigSpace, error) {
	regions := make([]vfiouser.Region, numBARs)
	for i, size := range barSizes(maxUAR) {
		regions[i].Size = size
	}
	return vfiouser.NewConfigSpace(vfiouser.Identity{
		VendorID: abi.PCIVendorID, DeviceID: abi.PCIDeviceID,
		SubsystemVendorID: abi.PCIVendorID, SubsystemID: abi.PCIDeviceID,
		Class: classOther,
	}, regions, vfiouser.MSIX{
		Vectors: abi.MaxInterrupts, TableBAR: vfiouser.RegionBAR0, PBABAR: vfiouser.RegionBAR0, PBAOffset: msixPBAOff,
	})
}
