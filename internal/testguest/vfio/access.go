// SPDX-License-Identifier: Apache-2.0

package vfio

import (
	"encoding/binary"

	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
)

// Read32 reads a register: from a mapped part without a message, otherwise by one.
func (f *Function) Read32(bar uint32, off uint64) (uint32, error) {
	if mem, at := f.mapped(bar, off); mem != nil {
		return ram.Load32(mem, at), nil
	}
	return f.read32(bar, off)
}

// Write32 writes a register: into a mapped part without a message, otherwise by one.
func (f *Function) Write32(bar uint32, off uint64, v uint32) error {
	if mem, at := f.mapped(bar, off); mem != nil {
		ram.Store32(mem, at, v)
		return nil
	}
	return f.RegionWrite(bar, off, binary.LittleEndian.AppendUint32(nil, v))
}

// Mapped returns the bytes of a region from an offset on if they are mapped, and nil if they are not.
func (f *Function) Mapped(bar uint32, off uint64) []byte {
	mem, at := f.mapped(bar, off)
	if mem == nil {
		return nil
	}
	return mem[at:]
}

func (f *Function) mapped(region uint32, off uint64) (mem []byte, at int) {
	for _, m := range f.maps {
		if m.region == region && off >= m.off && off-m.off < uint64(len(m.mem)) {
			return m.mem, int(off - m.off)
		}
	}
	return nil, 0
}

func (f *Function) read32(region uint32, off uint64) (uint32, error) {
	p := make([]byte, 4)
	if err := f.RegionRead(region, off, p); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(p), nil
}
