// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"maps"

	"github.com/pvrdmad/pvrdmad/vfiouser"
	"golang.org/x/sys/unix"
)

// The regions' sizes in bytes, see vfiouser/testdata/cases.md.
const (
	memorySize    = 16 << 10
	registersSize = 4 << 10
	sharedSize    = 16 << 10
	romSize       = 4 << 10
	configSize    = 256
)

// The registers of BAR1: 32-bit little-endian numbers that are accessed whole.
const (
	regWrites   = 0x00 // read: writes to BAR0, BAR2 and the config space since the last reset
	regDigest   = 0x04 // read: FNV-1a of those writes
	regMappings = 0x08 // read: DMA mappings
	regResets   = 0x0c // read: DEVICE_RESETs of this session
	regRaise    = 0x10 // write: raise an interrupt, IRQ index << 16 | vector
	regRefuse   = 0x14 // write: is refused with the errno that is written, or with no errno if that is 0
	regPanic    = 0x18 // write: panics
)

// device is the device of the cases. Each client gets a new one.
type device struct {
	session *vfiouser.Session
	shared  int // memory file of BAR2
	memory  [memorySize]byte
	config  [configSize]byte

	writes, resets uint32
	digest         hash.Hash32
	mappings       map[uint64]bool // by their addresses
}

func openDevice(s *vfiouser.Session) (vfiouser.Device, error) {
	fd, err := unix.MemfdCreate("caseserver", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("create the memory of BAR2: %w", err)
	}
	err = unix.Ftruncate(fd, sharedSize)
	if err == nil {
		// A client that shrinks it would have its own reads of BAR2 fail.
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("create the memory of BAR2: %w", err)
	}
	return &device{session: s, shared: fd, digest: fnv.New32a(), mappings: map[uint64]bool{}}, nil
}

// Regions implements vfiouser.Device.
func (d *device) Regions() []vfiouser.Region {
	const rw = vfiouser.RegionRead | vfiouser.RegionWrite
	return []vfiouser.Region{
		vfiouser.RegionBAR0: {Size: memorySize, Flags: rw},
		vfiouser.RegionBAR1: {Size: registersSize, Flags: rw | vfiouser.RegionMMap},
		vfiouser.RegionBAR2: {
			Size: sharedSize, Flags: rw | vfiouser.RegionMMap, FD: d.shared,
			MMapAreas: []vfiouser.MMapArea{{Offset: 0x1000, Size: 0x1000}, {Offset: 0x2000, Size: 0x2000}},
		},
		vfiouser.RegionBAR3:   {Size: romSize, Flags: vfiouser.RegionRead},
		vfiouser.RegionConfig: {Size: configSize, Flags: rw},
	}
}

// IRQs implements vfiouser.Device.
func (d *device) IRQs() [vfiouser.NumIRQs]uint32 {
	return [vfiouser.NumIRQs]uint32{vfiouser.IRQINTx: 1, vfiouser.IRQMSIX: 3, vfiouser.IRQErr: 1, vfiouser.IRQReq: 1}
}

// ReadRegion implements vfiouser.Device.
func (d *device) ReadRegion(index vfiouser.RegionIndex, off uint64, p []byte) error {
	switch index {
	case vfiouser.RegionBAR0:
		copy(p, d.memory[off:])
	case vfiouser.RegionBAR1:
		d.readRegister(off, p)
	case vfiouser.RegionBAR2:
		_, err := unix.Pread(d.shared, p, int64(off))
		return err
	case vfiouser.RegionBAR3:
		for i := range p {
			p[i] = byte(off) + byte(i)
		}
	case vfiouser.RegionConfig:
		copy(p, d.config[off:])
	}
	return nil
}

// readRegister reads a register; p comes zeroed.
func (d *device) readRegister(off uint64, p []byte) {
	if len(p) != 4 {
		return
	}
	switch off {
	case regWrites:
		binary.LittleEndian.PutUint32(p, d.writes)
	case regDigest:
		binary.LittleEndian.PutUint32(p, d.digest.Sum32())
	case regMappings:
		binary.LittleEndian.PutUint32(p, uint32(len(d.mappings)))
	case regResets:
		binary.LittleEndian.PutUint32(p, d.resets)
	}
}

// WriteRegion implements vfiouser.Device.
func (d *device) WriteRegion(index vfiouser.RegionIndex, off uint64, p []byte) error {
	switch index {
	case vfiouser.RegionBAR0:
		copy(d.memory[off:], p)
	case vfiouser.RegionBAR1:
		return d.writeRegister(off, p)
	case vfiouser.RegionBAR2:
		if _, err := unix.Pwrite(d.shared, p, int64(off)); err != nil {
			return err
		}
	case vfiouser.RegionConfig:
		copy(d.config[off:], p)
	}
	d.note(index, off, p)
	return nil
}

// note adds a write to the count and to the digest.
func (d *device) note(index vfiouser.RegionIndex, off uint64, p []byte) {
	d.writes++
	head := binary.LittleEndian.AppendUint64(nil, off)
	head = binary.LittleEndian.AppendUint32(head, uint32(index))
	head = binary.LittleEndian.AppendUint32(head, uint32(len(p)))
	_, _ = d.digest.Write(append(head, p...)) // a hash takes everything
}

func (d *device) writeRegister(off uint64, p []byte) error {
	if len(p) != 4 {
		return nil
	}
	value := binary.LittleEndian.Uint32(p)
	switch off {
	case regRaise:
		d.session.Trigger(vfiouser.IRQIndex(value>>16), value&0xffff)
	case regRefuse:
		if value == 0 {
			return errors.New("refused as asked, without an errno")
		}
		return fmt.Errorf("refused as asked: %w", unix.Errno(value))
	case regPanic:
		panic("as asked")
	}
	return nil
}

// Replied implements vfiouser.Device.
func (d *device) Replied() {}

// MapDMA implements vfiouser.Device.
func (d *device) MapDMA(m vfiouser.DMAMap) error {
	d.mappings[m.Addr] = true
	return nil
}

// UnmapDMA implements vfiouser.Device.
func (d *device) UnmapDMA(addr, size uint64) error {
	maps.DeleteFunc(d.mappings, func(a uint64, _ bool) bool { return a >= addr && a-addr < size })
	return nil
}

// UnmapAllDMA implements vfiouser.Device.
func (d *device) UnmapAllDMA() error {
	clear(d.mappings)
	return nil
}

// Reset implements vfiouser.Device.
func (d *device) Reset() error {
	d.memory, d.config = [memorySize]byte{}, [configSize]byte{}
	if _, err := unix.Pwrite(d.shared, make([]byte, sharedSize), 0); err != nil {
		return err
	}
	d.writes = 0
	d.digest.Reset()
	d.resets++
	return nil
}

// Close implements vfiouser.Device.
func (d *device) Close() { _ = unix.Close(d.shared) }
