// SPDX-License-Identifier: Apache-2.0

package pcifn

import (
	"encoding/binary"

	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// Offsets in PCI configuration space (include/uapi/linux/pci_regs.h).
const (
	pciVendorID     = 0x00
	pciDeviceID     = 0x02
	pciCommand      = 0x04
	pciStatus       = 0x06
	pciClassProg    = 0x09
	pciClassDevice  = 0x0a
	pciBaseAddress0 = 0x10
	pciSubsysVendor = 0x2c
	pciSubsysID     = 0x2e
	pciCapPointer   = 0x34
	pciInterruptPin = 0x3d

	pciStatusCapList   = 0x10
	pciCommandMemory   = 0x2
	pciCommandMaster   = 0x4
	pciCommandWritable = 0x547 // I/O, memory, master, parity, SERR, INTx disable

	pciCapIDMSIX      = 0x11
	msixControl       = 2
	msixTable         = 4
	msixPBA           = 8
	msixCapLen        = 12
	msixControlWrites = 0xc000 // enable, function mask
)

const (
	configSize  = 256
	numBARs     = 3
	msixCap     = 0x40
	msixPBAOff  = 0x2000
	bar0Size    = 0x4000
	bar1Size    = 0x1000
	classOther  = 0x0280 // network controller, other
	barAddrMask = 0xfffffff0
)

// barSizes returns the sizes of the three BARs: MSI-X table, registers, doorbell pages.
func barSizes(maxUAR uint32) [numBARs]uint64 {
	return [numBARs]uint64{bar0Size, bar1Size, uint64(maxUAR) * abi.UARPageSize}
}

// configSpace is the function's configuration space. The client decodes the BARs and owns the MSI-X table; what it forwards
// of their registers is only remembered.
type configSpace struct {
	b    [configSize]byte
	mask [configSize]byte // bits that can be written
}

func newConfigSpace(bars [numBARs]uint64) configSpace {
	var c configSpace
	put16 := func(off int, v uint16) { binary.LittleEndian.PutUint16(c.b[off:], v) }
	put16(pciVendorID, abi.PCIVendorID)
	put16(pciDeviceID, abi.PCIDeviceID)
	put16(pciSubsysVendor, abi.PCIVendorID)
	put16(pciSubsysID, abi.PCIDeviceID)
	put16(pciStatus, pciStatusCapList)
	put16(pciClassDevice, classOther)
	c.b[pciCapPointer] = msixCap
	c.b[msixCap] = pciCapIDMSIX
	put16(msixCap+msixControl, abi.MaxInterrupts-1)
	binary.LittleEndian.PutUint32(c.b[msixCap+msixTable:], 0)        // BAR0, offset 0
	binary.LittleEndian.PutUint32(c.b[msixCap+msixPBA:], msixPBAOff) // BAR0

	binary.LittleEndian.PutUint16(c.mask[pciCommand:], pciCommandWritable)
	binary.LittleEndian.PutUint16(c.mask[msixCap+msixControl:], msixControlWrites)
	c.mask[0x0c], c.mask[0x3c] = 0xff, 0xff // cache line size, interrupt line
	for i, size := range bars {
		// Sizing a BAR means to write ones and to see which bits stay: those of a power of two's multiples.
		binary.LittleEndian.PutUint32(c.mask[pciBaseAddress0+4*i:], ^uint32(size-1)&barAddrMask)
	}
	return c
}

func (c *configSpace) read(off uint64, p []byte) { copy(p, c.b[off:]) }

func (c *configSpace) write(off uint64, p []byte) {
	for i, v := range p {
		at := off + uint64(i)
		c.b[at] = c.b[at]&^c.mask[at] | v&c.mask[at]
	}
}

// enabled reports whether somebody has switched on the decoding of the function's BARs, which nobody does by accident.
func (c *configSpace) enabled() bool {
	return binary.LittleEndian.Uint16(c.b[pciCommand:])&pciCommandMemory != 0
}

// master reports whether the function may access memory.
func (c *configSpace) master() bool {
	return binary.LittleEndian.Uint16(c.b[pciCommand:])&pciCommandMaster != 0
}
