// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// ConfigSpaceSize is the length of a ConfigSpace in bytes, and so the size of its Region.
const ConfigSpaceSize = 256

// Offsets in a configuration space and in its MSI-X capability, linux/pci_regs.h.
const (
	pciVendorID     = 0x00
	pciDeviceID     = 0x02
	pciCommand      = 0x04
	pciStatus       = 0x06
	pciRevision     = 0x08 // one byte, and the class code behind it
	pciCacheLine    = 0x0c
	pciBaseAddress0 = 0x10
	pciSubsysVendor = 0x2c
	pciSubsysID     = 0x2e
	pciCapPointer   = 0x34
	pciIntLine      = 0x3c

	pciStatusCapList   = 1 << 4
	pciCommandMemory   = 1 << 1
	pciCommandMaster   = 1 << 2
	pciCommandWritable = 0x547 // I/O, memory, master, parity, SERR, INTx disable

	pciCapIDMSIX      = 0x11
	msixCap           = 0x40 // where the capability is here
	msixControl       = msixCap + 2
	msixTable         = msixCap + 4
	msixPBA           = msixCap + 8
	msixControlWrites = 0xc000 // enable, function mask
	msixEntrySize     = 16     // of the table, in bytes

	minBAR = 16 // bytes of a memory BAR, PCI 3.0, 6.2.5.1
)

// Identity says what a PCI function is, in the words of the PCI specification.
type Identity struct {
	VendorID, DeviceID uint16
	// SubsystemVendorID and SubsystemID say whose card it is.
	SubsystemVendorID, SubsystemID uint16
	// Class is the class code: base class << 16 | subclass << 8 | interface, as PCI_CLASS_* of linux/pci_ids.h << 8.
	Class    uint32
	Revision uint8
}

// MSIX says where a function has its MSI-X table and pending bits. QEMU serves the table itself; the device only has to
// own the place. The zero MSIX is none.
type MSIX struct {
	// Vectors is their number, at most MaxVectors; Device.IRQs returns the same for IRQMSIX.
	Vectors uint32
	// The BARs, and the offsets in them in bytes, multiples of 8.
	TableBAR, PBABAR       RegionIndex
	TableOffset, PBAOffset uint32
}

// ConfigSpace is the 256 bytes of a PCI function's configuration space: a header with 32-bit memory BARs and an MSI-X
// capability, no ROM and no interrupt pin. The client decodes the BARs and owns the vectors' masks; what it forwards of
// their registers is only remembered. A Device that has no special wishes lets it serve RegionConfig.
type ConfigSpace struct {
	b    [ConfigSpaceSize]byte
	mask [ConfigSpaceSize]byte // bits that can be written
}

// NewConfigSpace returns the configuration space of a function as it is after power-on. regions are those of
// Device.Regions, of which the BARs are looked at. EINVAL if a BAR's size is not a power of two of 16 bytes or more that
// fits into 32 bits, or if the MSI-X table or its pending bits do not lie in their BARs.
func NewConfigSpace(id Identity, regions []Region, msix MSIX) (*ConfigSpace, error) {
	c := &ConfigSpace{}
	put16, put32 := binary.LittleEndian.PutUint16, binary.LittleEndian.PutUint32
	put16(c.b[pciVendorID:], id.VendorID)
	put16(c.b[pciDeviceID:], id.DeviceID)
	put16(c.b[pciSubsysVendor:], id.SubsystemVendorID)
	put16(c.b[pciSubsysID:], id.SubsystemID)
	put32(c.b[pciRevision:], id.Class<<8|uint32(id.Revision))
	put16(c.mask[pciCommand:], pciCommandWritable)
	c.mask[pciCacheLine], c.mask[pciIntLine] = 0xff, 0xff
	for i := RegionBAR0; i <= RegionBAR5; i++ {
		size := sizeOf(regions, i)
		if size == 0 {
			continue
		}
		if size < minBAR || size > 1<<31 || size&(size-1) != 0 {
			return nil, fmt.Errorf("configuration space with a %s of %#x bytes: %w", i, size, unix.EINVAL)
		}
		// Sizing a BAR means to write ones and to see which bits stay: those of the size's multiples.
		put32(c.mask[pciBaseAddress0+4*i:], ^uint32(size-1))
	}
	if msix.Vectors == 0 {
		return c, nil
	}
	pending := (uint64(msix.Vectors) + 63) / 64 * 8
	if msix.Vectors > MaxVectors || !msixFits(regions, msix.TableBAR, msix.TableOffset, uint64(msix.Vectors)*msixEntrySize) ||
		!msixFits(regions, msix.PBABAR, msix.PBAOffset, pending) {
		return nil, fmt.Errorf("configuration space with MSI-X %+v: %w", msix, unix.EINVAL)
	}
	put16(c.b[pciStatus:], pciStatusCapList)
	c.b[pciCapPointer] = msixCap
	c.b[msixCap] = pciCapIDMSIX
	put16(c.b[msixControl:], uint16(msix.Vectors-1))
	put32(c.b[msixTable:], msix.TableOffset|uint32(msix.TableBAR))
	put32(c.b[msixPBA:], msix.PBAOffset|uint32(msix.PBABAR))
	put16(c.mask[msixControl:], msixControlWrites)
	return c, nil
}

// sizeOf returns a region's size, 0 if there is none.
func sizeOf(regions []Region, index RegionIndex) uint64 {
	if uint64(index) >= uint64(len(regions)) {
		return 0
	}
	return regions[index].Size
}

// msixFits says whether n bytes of MSI-X lie in a BAR.
func msixFits(regions []Region, bar RegionIndex, off uint32, n uint64) bool {
	return bar <= RegionBAR5 && off%8 == 0 && within(uint64(off), n, sizeOf(regions, bar))
}

// Read fills p from offset off. It serves Device.ReadRegion: off+len(p) is at most ConfigSpaceSize.
func (c *ConfigSpace) Read(off uint64, p []byte) { copy(p, c.b[off:]) }

// Write writes those bits of p that can be written. It serves Device.WriteRegion: off+len(p) is at most ConfigSpaceSize.
func (c *ConfigSpace) Write(off uint64, p []byte) {
	for i, v := range p {
		at := off + uint64(i)
		c.b[at] = c.b[at]&^c.mask[at] | v&c.mask[at]
	}
}

// Memory says whether the BARs are decoded: PCI_COMMAND_MEMORY. Firmware or a driver has switched that on.
func (c *ConfigSpace) Memory() bool {
	return binary.LittleEndian.Uint16(c.b[pciCommand:])&pciCommandMemory != 0
}

// BusMaster says whether the driver lets the function access memory: PCI_COMMAND_MASTER.
func (c *ConfigSpace) BusMaster() bool {
	return binary.LittleEndian.Uint16(c.b[pciCommand:])&pciCommandMaster != 0
}
