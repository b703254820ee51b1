// SPDX-License-Identifier: Apache-2.0

package abi

// DeviceMode is enum pvrdma_device_mode (pvrdma_dev_api.h), the value of DeviceCaps.Mode.
type DeviceMode uint8

// The values of [DeviceMode].
const (
	DeviceModeRoCE  DeviceMode = 0
	DeviceModeIWARP DeviceMode = 1
	DeviceModeIB    DeviceMode = 2
)

// String returns the header's name without its prefix, or a hexadecimal number.
func (d DeviceMode) String() string {
	return enumString(uint32(d), []string{
		0: "ROCE",
		1: "IWARP",
		2: "IB",
	})
}

// GOSBits is enum pvrdma_gos_bits (pvrdma_dev_api.h), the word size of the guest.
type GOSBits uint8

// The values of [GOSBits].
const (
	GOSBitsUnknown GOSBits = 0
	GOSBits32      GOSBits = 1
	GOSBits64      GOSBits = 2
)

// String returns the header's name without its prefix, or a hexadecimal number.
func (g GOSBits) String() string {
	return enumString(uint32(g), []string{
		0: "UNK",
		1: "32",
		2: "64",
	})
}

// GOSType is enum pvrdma_gos_type (pvrdma_dev_api.h), the operating system of the guest.
type GOSType uint8

// The values of [GOSType].
const (
	GOSTypeUnknown GOSType = 0
	GOSTypeLinux   GOSType = 1
)

// String returns the header's name without its prefix, or a hexadecimal number.
func (g GOSType) String() string {
	return enumString(uint32(g), []string{
		0: "UNK",
		1: "LINUX",
	})
}
