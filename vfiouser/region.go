// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sys/unix"
)

// Flags of a region info reply, linux/vfio.h, beside RegionRead, RegionWrite and RegionMMap.
const regionCaps = 1 << 3 // VFIO_REGION_INFO_FLAG_CAPS

// The sparse mmap capability, linux/vfio.h.
const (
	capSparseMMap       = 1 // VFIO_REGION_INFO_CAP_SPARSE_MMAP
	capVersion          = 1
	capSparseHeaderSize = 16 // struct vfio_region_info_cap_sparse_mmap without its areas
	capAreaSize         = 16
)

// maxRegionSize keeps offset arithmetic of a region and of its file away from the sign.
const maxRegionSize = math.MaxInt64 / 2

// copyRegions checks what a device says of its regions, and keeps a copy.
func copyRegions(regions []Region) (kept [NumRegions]Region, err error) {
	if len(regions) > NumRegions {
		return kept, fmt.Errorf("device with %d regions, more than %d: %w", len(regions), NumRegions, unix.EINVAL)
	}
	for i, r := range regions {
		if err := r.check(); err != nil {
			return kept, fmt.Errorf("device's %s: %w: %w", RegionIndex(i), err, unix.EINVAL)
		}
		r.MMapAreas = slices.Clone(r.MMapAreas)
		kept[i] = r
	}
	return kept, nil
}

// check returns an error if a region breaks the rules written at its fields.
func (r *Region) check() error {
	switch {
	case r.Flags&^(RegionRead|RegionWrite|RegionMMap) != 0:
		return fmt.Errorf("flags %#x", uint32(r.Flags))
	case r.Size > maxRegionSize:
		return fmt.Errorf("size %#x", r.Size)
	case len(r.MMapAreas) == 0:
		return nil
	case r.Flags&RegionMMap == 0:
		return fmt.Errorf("areas to map without RegionMMap")
	case len(r.MMapAreas) > MaxMMapAreas:
		return fmt.Errorf("%d areas to map, more than %d", len(r.MMapAreas), MaxMMapAreas)
	case r.FD < 0:
		return fmt.Errorf("areas to map without a file")
	case r.FDOffset > maxRegionSize || r.FDOffset%PageSize != 0:
		return fmt.Errorf("file offset %#x", r.FDOffset)
	}
	var end uint64
	for _, a := range r.MMapAreas {
		if a.Size == 0 || (a.Offset|a.Size)%PageSize != 0 || a.Offset < end || !within(a.Offset, a.Size, r.Size) {
			return fmt.Errorf("area to map %#x+%#x", a.Offset, a.Size)
		}
		end = a.Offset + a.Size
	}
	return nil
}

// within says whether n bytes from off lie in size bytes.
func within(off, n, size uint64) bool { return off <= size && n <= size-off }

// appendInfo appends the region info for a client; fd is the file to send along, or -1.
func (r *Region) appendInfo(out []byte, index RegionIndex, room uint32, p *Peer) (_ []byte, fd int) {
	flags, areas, offset, fd := r.Flags, r.MMapAreas, uint64(0), -1
	switch {
	case len(areas) > 0 && p.Capabilities.MaxMsgFDs > 0:
		offset, fd = r.FDOffset, r.FD
	case p.Capabilities.WriteMultiple:
		areas = nil
	default:
		// Without areas such a client would take the whole region for mappable.
		flags &^= RegionMMap
	}
	argsz := uint32(regionInfoSize)
	if flags&RegionMMap != 0 {
		argsz += capSparseHeaderSize + uint32(len(areas))*capAreaSize
	}
	var capOffset uint32
	if argsz > regionInfoSize && room >= argsz {
		flags |= regionCaps
		capOffset = regionInfoSize
	}
	out = binary.NativeEndian.AppendUint32(out, argsz)
	out = binary.NativeEndian.AppendUint32(out, uint32(flags))
	out = binary.NativeEndian.AppendUint32(out, uint32(index))
	out = binary.NativeEndian.AppendUint32(out, capOffset)
	out = binary.NativeEndian.AppendUint64(out, r.Size)
	out = binary.NativeEndian.AppendUint64(out, offset)
	if capOffset == 0 {
		// It asks again with the room that argsz names, and gets the file then.
		return out, -1
	}
	return appendSparse(out, areas), fd
}

// appendSparse appends the sparse mmap capability.
func appendSparse(out []byte, areas []MMapArea) []byte {
	out = binary.NativeEndian.AppendUint16(out, capSparseMMap)
	out = binary.NativeEndian.AppendUint16(out, capVersion)
	out = binary.NativeEndian.AppendUint32(out, 0) // no next capability
	out = binary.NativeEndian.AppendUint32(out, uint32(len(areas)))
	out = binary.NativeEndian.AppendUint32(out, 0)
	for _, a := range areas {
		out = binary.NativeEndian.AppendUint64(out, a.Offset)
		out = binary.NativeEndian.AppendUint64(out, a.Size)
	}
	return out
}

// regionInfo serves DEVICE_GET_REGION_INFO.
func (s *Session) regionInfo(m *message) (answer, error) {
	room := binary.NativeEndian.Uint32(m.body)
	index := RegionIndex(binary.NativeEndian.Uint32(m.body[8:]))
	if room < regionInfoSize || index >= NumRegions {
		return answer{}, refuse(FaultArgs, unix.EINVAL, "info on %s into %d bytes", index, room)
	}
	var fd int
	s.link.out, fd = s.regions[index].appendInfo(s.link.out, index, room, &s.peer)
	return answer{fd: fd, hasFD: fd >= 0}, nil
}
