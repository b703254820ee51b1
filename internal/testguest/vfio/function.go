// SPDX-License-Identifier: Apache-2.0

package vfio

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Regions and interrupts of a PCI function, linux/vfio.h.
const (
	ConfigRegion = 7
	irqMSIX      = 2
	irqErr       = 3
)

// Fields of the PCI configuration space, linux/pci_regs.h.
const (
	ConfigSize = 256

	pciCommand     = 0x04
	pciStatus      = 0x06
	pciBAR0        = 0x10
	pciCapPointer  = 0x34
	pciCapIDMSIX   = 0x11
	msixControl    = 2
	msixEnable     = 1 << 15
	commandMemory  = 1 << 1
	commandMaster  = 1 << 2
	statusCapList  = 1 << 4
	maxPCICaps     = 48 // a capability has 4 bytes at least, and they begin at 0x40
	barIs64        = 1 << 2
	barPrefetch    = 1 << 3
	numBARs        = 6
	barWindow      = 0xe0000000 // where this machine puts BARs, 32 MiB apart
	barWindowSpace = 32 << 20
)

// Function is a PCI function as a virtual machine sees it: regions partly mapped, interrupts as eventfds.
type Function struct {
	*Client
	// Regions are BARs 0 to 5 and the configuration space at ConfigRegion; nil where there is none.
	Regions [ConfigRegion + 1]*RegionInfo
	// Base is where each BAR lies in the guest.
	Base [numBARs]uint64

	maps    []mapping
	msixCap uint64
	vectors uint32
	errFD   int
}

// mapping is a part of a region that is mapped here.
type mapping struct {
	region uint32
	off    uint64
	mem    []byte
}

// Realize does what QEMU does when a vfio-user-pci device appears in a machine whose memory is dma.
func Realize(path string, dma []DMAMap) (*Function, error) {
	c, err := Dial(path)
	if err != nil {
		return nil, err
	}
	f := &Function{Client: c, errFD: -1}
	if err := f.realize(dma); err != nil {
		return nil, errors.Join(fmt.Errorf("realize the device: %w", err), f.Close())
	}
	return f, nil
}

func (f *Function) realize(dma []DMAMap) error {
	for _, m := range dma {
		if err := f.MapDMA(m); err != nil {
			return err
		}
	}
	info, err := f.DeviceInfo()
	if err != nil {
		return err
	}
	if want := uint32(DeviceReset | DevicePCI); info.Flags&want != want || info.Regions > 100 || info.IRQs > 50 {
		return fmt.Errorf("%+v is not a PCI device that can be reset: %w", info, unix.EPROTO)
	}
	for _, i := range []uint32{0, 1, 2, 3, 4, 5, ConfigRegion} {
		if err := f.region(i); err != nil {
			return err
		}
	}
	reporters, err := f.IRQCount(irqErr)
	if err != nil {
		return err
	}
	if f.vectors, err = f.IRQCount(irqMSIX); err != nil {
		return err
	}
	if err := f.findMSIX(); err != nil {
		return err
	}
	return f.start(reporters == 1)
}

// region learns of a region and maps what may be mapped.
func (f *Function) region(index uint32) error {
	info, err := f.RegionInfo(index)
	if err != nil {
		return err
	}
	if info.Size == 0 {
		return nil
	}
	f.Regions[index] = info
	if info.Flags&RegionMMap == 0 {
		return nil
	}
	areas := info.Areas
	if !info.Sparse {
		areas = []Area{{Offset: 0, Size: info.Size}}
	}
	for _, a := range areas {
		mem, err := unix.Mmap(info.FD, int64(info.Offset+a.Offset), int(a.Size), unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_SHARED)
		if err != nil {
			return fmt.Errorf("map %#x+%#x of region %d: %w", a.Offset, a.Size, index, err)
		}
		f.maps = append(f.maps, mapping{region: index, off: a.Offset, mem: mem})
	}
	return nil
}

// findMSIX reads the configuration space and walks its capabilities.
func (f *Function) findMSIX() error {
	config := make([]byte, ConfigSize)
	if err := f.RegionRead(ConfigRegion, 0, config); err != nil {
		return err
	}
	if binary.LittleEndian.Uint16(config[pciStatus:])&statusCapList == 0 {
		return fmt.Errorf("the function has no capabilities: %w", unix.ENODEV)
	}
	at := config[pciCapPointer] &^ 3
	for range maxPCICaps {
		if at < 0x40 {
			break
		}
		if config[at] == pciCapIDMSIX {
			f.msixCap = uint64(at)
			n := uint32(binary.LittleEndian.Uint16(config[at+msixControl:])&0x7ff) + 1
			if n != f.vectors {
				return fmt.Errorf("%d vectors in the table, %d interrupts: %w", n, f.vectors, unix.EPROTO)
			}
			return nil
		}
		at = config[at+1] &^ 3
	}
	return fmt.Errorf("the function has no MSI-X: %w", unix.ENODEV)
}

// start asks for errors, if the function reports any, resets the function, and does what firmware and guest kernel do: places the BARs and lets
// the function reach memory.
func (f *Function) start(reportsErrors bool) (err error) {
	if reportsErrors {
		if f.errFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
			return fmt.Errorf("create an eventfd: %w", err)
		}
		if err := f.SetIRQs(IRQDataEventFD|IRQActionTrigger, irqErr, 0, 1, f.errFD); err != nil {
			return err
		}
	}
	if err := f.Reset(); err != nil {
		return err
	}
	return f.Boot()
}

// Boot places the BARs and enables the function, as firmware and guest kernel do after every reset.
func (f *Function) Boot() error {
	for i := 0; i < numBARs; i++ {
		if f.Regions[i] == nil {
			continue
		}
		f.Base[i] = barWindow + uint64(i)*barWindowSpace
		wide, err := f.placeBAR(i)
		if err != nil {
			return err
		}
		if wide {
			i++
		}
	}
	return f.SetCommand(commandMemory | commandMaster)
}

// placeBAR sizes a BAR and places it; it reports whether the BAR takes two registers.
func (f *Function) placeBAR(i int) (wide bool, err error) {
	reg := uint64(pciBAR0 + 4*i)
	if err := f.WriteConfig32(reg, 0xffffffff); err != nil {
		return false, err
	}
	v, err := f.ReadConfig32(reg)
	if err != nil {
		return false, err
	}
	if v&1 != 0 {
		return false, fmt.Errorf("BAR %d is not memory: %w", i, unix.ENODEV)
	}
	if size := uint64(^(v &^ 0xf)) + 1; size != f.Regions[i].Size {
		return false, fmt.Errorf("BAR %d sizes as %#x, its region has %#x: %w", i, size, f.Regions[i].Size, unix.EPROTO)
	}
	if err := f.WriteConfig32(reg, uint32(f.Base[i])); err != nil {
		return false, err
	}
	if v, err = f.ReadConfig32(reg); err != nil {
		return false, err
	}
	if v&^(barIs64|barPrefetch) != uint32(f.Base[i]) {
		return false, fmt.Errorf("BAR %d reads %#x after %#x was written: %w", i, v, f.Base[i], unix.EPROTO)
	}
	return v&barIs64 != 0, nil
}

// SetCommand writes the PCI command register.
func (f *Function) SetCommand(v uint16) error {
	return f.RegionWrite(ConfigRegion, pciCommand, binary.LittleEndian.AppendUint16(nil, v))
}

// SetBusMaster allows or forbids the function to reach memory.
func (f *Function) SetBusMaster(on bool) error {
	v := uint16(commandMemory)
	if on {
		v |= commandMaster
	}
	return f.SetCommand(v)
}

// ReadConfig32 reads four bytes of the configuration space.
func (f *Function) ReadConfig32(off uint64) (uint32, error) { return f.read32(ConfigRegion, off) }

// WriteConfig32 writes four bytes of the configuration space.
func (f *Function) WriteConfig32(off uint64, v uint32) error {
	return f.RegionWrite(ConfigRegion, off, binary.LittleEndian.AppendUint32(nil, v))
}

// EnableMSIX hands over an eventfd for each vector, one more with each message, as QEMU does while a driver allocates
// its interrupts.
func (f *Function) EnableMSIX(fds []int) error {
	if err := f.writeMSIXControl(msixEnable); err != nil {
		return err
	}
	if err := f.SetIRQs(IRQDataEventFD|IRQActionTrigger, irqMSIX, 0, 1); err != nil {
		return err
	}
	for n := range fds {
		if err := f.SetIRQs(IRQDataNone|IRQActionTrigger, irqMSIX, 0, 0); err != nil {
			return err
		}
		err := f.SetIRQs(IRQDataEventFD|IRQActionTrigger, irqMSIX, 0, uint32(n+1), fds[:n+1]...)
		if err != nil {
			return err
		}
	}
	return nil
}

// DisableMSIX takes all vectors back.
func (f *Function) DisableMSIX() error {
	err := f.SetIRQs(IRQDataNone|IRQActionTrigger, irqMSIX, 0, 0)
	return errors.Join(err, f.writeMSIXControl(0))
}

func (f *Function) writeMSIXControl(v uint16) error {
	return f.RegionWrite(ConfigRegion, f.msixCap+msixControl, binary.LittleEndian.AppendUint16(nil, v))
}

// Vectors is how many MSI-X vectors the function has.
func (f *Function) Vectors() uint32 { return f.vectors }

// Close unmaps what is mapped and closes the connection.
func (f *Function) Close() error {
	err := f.Client.Close()
	for _, m := range f.maps {
		err = errors.Join(err, unix.Munmap(m.mem))
	}
	f.maps = nil
	for _, r := range f.Regions {
		if r != nil && r.FD >= 0 {
			err = errors.Join(err, unix.Close(r.FD))
		}
	}
	f.Regions = [ConfigRegion + 1]*RegionInfo{}
	if f.errFD >= 0 {
		err = errors.Join(err, unix.Close(f.errFD))
		f.errFD = -1
	}
	return err
}
