// SPDX-License-Identifier: Apache-2.0

package abi

// PCIResource is enum pvrdma_pci_resource (pvrdma_dev_api.h): the number of a BAR.
type PCIResource uint8

// The values of [PCIResource].
const (
	PCIResourceMSIX PCIResource = 0
	PCIResourceReg  PCIResource = 1
	PCIResourceUAR  PCIResource = 2
	PCIResourceLast PCIResource = 3
)

// String returns the header's name without its prefix, or a hexadecimal number.
func (p PCIResource) String() string {
	return enumString(uint32(p), []string{
		0: "MSIX",
		1: "REG",
		2: "UAR",
	})
}

// DeviceCtl is enum pvrdma_device_ctl (pvrdma_dev_api.h): what is written to RegCtl. There
// is no quiesce.
type DeviceCtl uint32

// The values of [DeviceCtl].
const (
	DeviceCtlActivate  DeviceCtl = 0
	DeviceCtlUnquiesce DeviceCtl = 1
	DeviceCtlReset     DeviceCtl = 2
)

// String returns the header's name without its prefix, or a hexadecimal number.
func (d DeviceCtl) String() string {
	return enumString(uint32(d), []string{
		0: "ACTIVATE",
		1: "UNQUIESCE",
		2: "RESET",
	})
}

// IntrVector is enum pvrdma_intr_vector (pvrdma_dev_api.h): the MSI-X vectors.
type IntrVector uint32

// The values of [IntrVector].
const (
	IntrVectorResponse IntrVector = 0
	IntrVectorAsync    IntrVector = 1
	IntrVectorCQ       IntrVector = 2
)

// String returns the header's name without its prefix, or a hexadecimal number.
func (i IntrVector) String() string {
	return enumString(uint32(i), []string{
		0: "RESPONSE",
		1: "ASYNC",
		2: "CQ",
	})
}

// IntrCause is enum pvrdma_intr_cause (pvrdma_dev_api.h): the bits of RegICR, one for each
// vector. Without MSI-X the driver sees a response only if RegICR is IntrCauseResponse and
// nothing else.
type IntrCause uint32

// The values of [IntrCause].
const (
	IntrCauseResponse IntrCause = 1 << 0
	IntrCauseAsync    IntrCause = 1 << 1
	IntrCauseCQ       IntrCause = 1 << 2
)

// String returns the header's name without its prefix, or a hexadecimal number for
// bits without one.
func (i IntrCause) String() string {
	return flagString(uint32(i), []string{
		0: "RESPONSE",
		1: "ASYNC",
		2: "CQ",
	})
}
