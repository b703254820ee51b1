// SPDX-License-Identifier: Apache-2.0

package pcifn

import (
	"encoding/binary"
	"fmt"

	"github.com/pvrdmad/pvrdmad/pvrdma"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"github.com/pvrdmad/pvrdmad/vfiouser"
	"golang.org/x/sys/unix"
)

const regSize = 4

// Regions implements vfiouser.Device. One region is always flagged as one that can be mapped: QEMU posts no writes then,
// and the driver looks at memory right after it has written a register.
func (s *session) Regions() []vfiouser.Region {
	const rw = vfiouser.RegionRead | vfiouser.RegionWrite
	sizes := barSizes(s.cfg.Device.MaxUAR)
	r := make([]vfiouser.Region, vfiouser.NumRegions)
	for i := range r {
		r[i].FD = -1
	}
	for i, size := range sizes {
		r[i].Size, r[i].Flags = size, rw
	}
	r[vfiouser.RegionConfig].Size, r[vfiouser.RegionConfig].Flags = configSize, rw
	if s.doorbells == nil {
		r[vfiouser.RegionBAR1].Flags |= vfiouser.RegionMMap
		return r
	}
	uar := &r[vfiouser.RegionBAR2]
	uar.Flags |= vfiouser.RegionMMap
	uar.FD = s.doorbells.FD()
	// Page 0 is the guest kernel's. Its doorbells stay messages, so that they are exact.
	uar.MMapAreas = []vfiouser.MMapArea{{Offset: abi.UARPageSize, Size: uar.Size - abi.UARPageSize}}
	return r
}

// IRQs implements vfiouser.Device.
func (s *session) IRQs() [vfiouser.NumIRQs]uint32 {
	return [vfiouser.NumIRQs]uint32{vfiouser.IRQMSIX: abi.MaxInterrupts, vfiouser.IRQErr: 1, vfiouser.IRQReq: 1}
}

// ReadRegion implements vfiouser.Device.
func (s *session) ReadRegion(index vfiouser.RegionIndex, off uint64, p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dev.Rung()
	switch index {
	case vfiouser.RegionConfig:
		s.config.Read(off, p)
	case vfiouser.RegionBAR1:
		s.readRegister(off, p)
	case vfiouser.RegionBAR0:
		clear(p) // pending bits: a vector that waits is the client's to know
	case vfiouser.RegionBAR2:
		for i := range p {
			p[i] = 0xff // nobody reads doorbells; all ones is what a bus returns for nothing
		}
	}
	return nil
}

// readRegister reads registers of BAR1. The driver reads aligned words; anything else gets the bytes of the words it
// touches.
func (s *session) readRegister(off uint64, p []byte) {
	var word [regSize]byte
	for i := range p {
		at := off + uint64(i)
		if i == 0 || at%regSize == 0 {
			binary.LittleEndian.PutUint32(word[:], s.regs.read(at&^(regSize-1)))
		}
		p[i] = word[at%regSize]
	}
}

// WriteRegion implements vfiouser.Device.
func (s *session) WriteRegion(index vfiouser.RegionIndex, off uint64, p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dev.Rung()
	switch index {
	case vfiouser.RegionConfig:
		s.config.Write(off, p)
		s.wroteConfig()
	case vfiouser.RegionBAR1:
		if len(p) != regSize || off%regSize != 0 {
			s.violation(pvrdma.BadRegister, fmt.Errorf("write of %d bytes to register offset %#x: %w", len(p), off,
				unix.EINVAL))
			return nil
		}
		s.writeRegister(off, binary.LittleEndian.Uint32(p))
	case vfiouser.RegionBAR2:
		if len(p) != regSize || off%regSize != 0 {
			s.violation(pvrdma.BadDoorbell, fmt.Errorf("write of %d bytes to doorbell offset %#x: %w", len(p), off,
				unix.EINVAL))
			return nil
		}
		s.usedUnprobed("doorbell")
		s.rung = rungDoorbell{
			page: uint32(off / abi.UARPageSize), offset: uint32(off % abi.UARPageSize),
			value: binary.LittleEndian.Uint32(p), valid: true,
		}
	}
	return nil
}

// rungDoorbell is a doorbell that waits until the guest's store has been answered.
type rungDoorbell struct {
	page, offset, value uint32
	valid               bool
}

// Replied implements vfiouser.Device: what a write started and its answer did not have to wait for.
func (s *session) Replied() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rung.valid {
		s.rung.valid = false
		s.dev.Doorbell(s.rung.page, s.rung.offset, s.rung.value)
	}
	if s.requested {
		s.requested = false
		s.execute()
	}
}
