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

// access is a REGION_READ or REGION_WRITE, or one write of a REGION_WRITE_MULTI.
type access struct {
	off   uint64
	index RegionIndex
	count uint32
}

// parseAccess reads an access; p has at least regionAccessSize bytes.
func parseAccess(p []byte) access {
	return access{
		off:   binary.NativeEndian.Uint64(p),
		index: RegionIndex(binary.NativeEndian.Uint32(p[8:])),
		count: binary.NativeEndian.Uint32(p[12:]),
	}
}

// append appends an access, as the reply begins with it.
func (a access) append(out []byte) []byte {
	out = binary.NativeEndian.AppendUint64(out, a.off)
	out = binary.NativeEndian.AppendUint32(out, uint32(a.index))
	return binary.NativeEndian.AppendUint32(out, a.count)
}

// check returns a violation if a device may not be given the access.
func (a access) check(regions *[NumRegions]Region, need RegionFlags) error {
	switch {
	case a.index >= NumRegions:
		return refuse(FaultArgs, unix.EINVAL, "access to %s", a.index)
	case a.count > MaxTransfer:
		return refuse(FaultLimit, unix.EINVAL, "access of %d bytes, more than %d", a.count, MaxTransfer)
	}
	r := &regions[a.index]
	switch {
	case !within(a.off, uint64(a.count), r.Size):
		return refuse(FaultArgs, unix.EINVAL, "access to %s at %#x+%#x, which has %#x bytes", a.index, a.off, a.count, r.Size)
	case r.Flags&need == 0:
		return refuse(FaultArgs, unix.EACCES, "access to %s, which has flags %#x", a.index, uint32(r.Flags))
	}
	return nil
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

// regionRead serves REGION_READ.
func (s *Session) regionRead(m *message) (answer, error) {
	a := parseAccess(m.body)
	if err := a.check(&s.regions, RegionRead); err != nil {
		return answer{}, err
	}
	out := a.append(s.link.out)
	n := len(out)
	out = out[:n+int(a.count)] // out was made with room for MaxTransfer
	clear(out[n:])
	if a.count > 0 {
		if err := s.dev.ReadRegion(a.index, a.off, out[n:]); err != nil {
			return answer{}, err
		}
	}
	s.link.out = out
	return answer{}, nil
}

// regionWrite serves REGION_WRITE.
func (s *Session) regionWrite(m *message) (answer, error) {
	if len(m.body) < regionAccessSize {
		return answer{}, refuse(FaultBody, unix.EINVAL, "%s with %d bytes of payload", m.command, len(m.body))
	}
	a := parseAccess(m.body)
	data := m.body[regionAccessSize:]
	if uint64(a.count) != uint64(len(data)) {
		return answer{}, refuse(FaultBody, unix.EINVAL, "%s of %d bytes with %d", m.command, a.count, len(data))
	}
	if err := a.check(&s.regions, RegionWrite); err != nil {
		return answer{}, err
	}
	if a.count > 0 {
		if err := s.dev.WriteRegion(a.index, a.off, data); err != nil {
			return answer{}, err
		}
	}
	s.link.out = a.append(s.link.out)
	return answer{written: a.count > 0}, nil
}

// regionWriteMulti serves REGION_WRITE_MULTI: each write like a posted one that came alone. A write that fails is
// reported and left out, since QEMU has told the guest already that all of them are done; the number of those
// that did not fail is the answer.
func (s *Session) regionWriteMulti(m *message) (answer, error) {
	if len(m.body) < multiHeaderSize {
		return answer{}, refuse(FaultBody, unix.EINVAL, "%s with %d bytes of payload", m.command, len(m.body))
	}
	count := binary.NativeEndian.Uint64(m.body)
	// MaxFrame bounds the number of writes, to 2729.
	writes := m.body[multiHeaderSize:]
	if len(writes)%multiWriteSize != 0 || count != uint64(len(writes)/multiWriteSize) {
		return answer{}, refuse(FaultBody, unix.EINVAL, "%s of %d writes with %d bytes of payload", m.command, count, len(m.body))
	}
	var done uint64
	var written bool
	var failed error
	for ; len(writes) > 0 && !s.isOver(); writes = writes[multiWriteSize:] {
		if written {
			s.dev.Replied()
		}
		if written = s.writeOne(writes[:multiWriteSize], &failed); written {
			done++
		}
	}
	if failed != nil {
		s.obs.Refused(Refusal{Peer: s.peer, Command: m.command, Fault: faultOf(failed), Errno: errnoOf(failed), Err: failed})
	}
	s.link.out = binary.NativeEndian.AppendUint64(s.link.out, done)
	return answer{written: written}, nil
}

// writeOne serves one write of a REGION_WRITE_MULTI. It returns whether it was done; the first one that was not
// leaves its error in failed.
func (s *Session) writeOne(p []byte, failed *error) bool {
	a := parseAccess(p)
	err := a.check(&s.regions, RegionWrite)
	switch {
	case err != nil:
	case a.count == 0 || a.count > multiWriteSize-regionAccessSize:
		err = refuse(FaultArgs, unix.EINVAL, "write of %d bytes in a REGION_WRITE_MULTI", a.count)
	default:
		err = s.dev.WriteRegion(a.index, a.off, p[regionAccessSize:][:a.count])
	}
	if err != nil && *failed == nil {
		*failed = err
	}
	return err == nil
}
