// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"encoding/binary"
	"math"
	"slices"

	"golang.org/x/sys/unix"
)

// Flags of DMA_MAP beside DMARead and DMAWrite: how the file is to be accessed, of newer vfio-user documents.
const (
	dmaFlagMMap   = 1 << 2 // by mapping it; also without the flag
	dmaFlagFileIO = 1 << 3 // by pread(2) and pwrite(2)
)

// Flags of DMA_UNMAP, linux/vfio.h.
const dmaUnmapAll = 1 << 1 // VFIO_DMA_UNMAP_FLAG_ALL

// mapping is one piece of guest memory that the device knows.
type mapping struct{ addr, size uint64 }

// mappings is what the device knows, by address. A slice, since the order decides about overlaps; moving it for an
// insertion is at most MaxDMAMaps * 16 bytes.
type mappings []mapping

// find returns the place of the first mapping that begins at addr or behind it, and whether it begins there.
func (ms mappings) find(addr uint64) (int, bool) {
	return slices.BinarySearchFunc(ms, addr, func(m mapping, a uint64) int {
		switch {
		case m.addr < a:
			return -1
		case m.addr > a:
			return 1
		default:
			return 0
		}
	})
}

// overlaps says whether some mapping has a byte in common with n.
func (ms mappings) overlaps(n mapping) bool {
	i, _ := ms.find(n.addr)
	if i < len(ms) && ms[i].addr-n.addr < n.size {
		return true
	}
	return i > 0 && n.addr-ms[i-1].addr < ms[i-1].size
}

// parseDMAMap reads a DMA_MAP without its file, and checks what can be checked alone.
func parseDMAMap(p []byte, fds int) (DMAMap, error) {
	argsz, flags := binary.NativeEndian.Uint32(p), binary.NativeEndian.Uint32(p[4:])
	m := DMAMap{
		Offset: binary.NativeEndian.Uint64(p[8:]),
		Addr:   binary.NativeEndian.Uint64(p[16:]),
		Size:   binary.NativeEndian.Uint64(p[24:]),
		FD:     -1,
		Flags:  DMAFlags(flags) & (DMARead | DMAWrite),
	}
	access := flags & (dmaFlagMMap | dmaFlagFileIO)
	switch {
	case argsz < dmaMapSize || flags&^(dmaFlagMMap|dmaFlagFileIO) != uint32(m.Flags) || m.Flags == 0:
		return m, refuse(FaultArgs, unix.EINVAL, "DMA_MAP with argsz %d and flags %#x", argsz, flags)
	case access != 0 && fds == 0:
		return m, refuse(FaultFDs, unix.EINVAL, "DMA_MAP with flags %#x and no file", flags)
	case access == dmaFlagFileIO:
		return m, refuse(FaultAbsent, unix.EOPNOTSUPP, "DMA_MAP of a file that may not be mapped")
	case m.Size == 0 || (m.Addr|m.Size)%PageSize != 0 || m.Size > math.MaxUint64-m.Addr:
		return m, refuse(FaultArgs, unix.EINVAL, "DMA_MAP of %#x+%#x", m.Addr, m.Size)
	case fds > 0 && (m.Offset%PageSize != 0 || m.Size > math.MaxInt64 || m.Offset > math.MaxInt64-m.Size):
		return m, refuse(FaultArgs, unix.EINVAL, "DMA_MAP of %#x+%#x at file offset %#x", m.Addr, m.Size, m.Offset)
	}
	return m, nil
}

// dmaMap serves DMA_MAP.
func (s *Session) dmaMap(m *message) (answer, error) {
	d, err := parseDMAMap(m.body, m.fds.n)
	if err != nil {
		return answer{}, err
	}
	n := mapping{d.Addr, d.Size}
	switch {
	case s.maps.overlaps(n):
		return answer{}, refuse(FaultMapping, unix.EEXIST, "DMA_MAP of %#x+%#x over another", d.Addr, d.Size)
	case len(s.maps) >= MaxDMAMaps:
		return answer{}, refuse(FaultLimit, unix.ENOSPC, "DMA_MAP of %#x+%#x beside %d others", d.Addr, d.Size, MaxDMAMaps)
	}
	if m.fds.n > 0 {
		d.FD = m.fds.fd[0] // lent: it is closed with the message
	}
	if err := s.dev.MapDMA(d); err != nil {
		return answer{}, err
	}
	i, _ := s.maps.find(n.addr)
	s.maps = slices.Insert(s.maps, i, n)
	return answer{}, nil
}

// dmaUnmap serves DMA_UNMAP.
func (s *Session) dmaUnmap(m *message) (answer, error) {
	argsz, flags := binary.NativeEndian.Uint32(m.body), binary.NativeEndian.Uint32(m.body[4:])
	n := mapping{binary.NativeEndian.Uint64(m.body[8:]), binary.NativeEndian.Uint64(m.body[16:])}
	var err error
	switch {
	case argsz < dmaUnmapSize || flags&^dmaUnmapAll != 0:
		err = refuse(FaultArgs, unix.EINVAL, "DMA_UNMAP with argsz %d and flags %#x", argsz, flags)
	case flags == 0:
		err = s.unmap(n)
	case n != mapping{}:
		err = refuse(FaultArgs, unix.EINVAL, "DMA_UNMAP of all with %#x+%#x", n.addr, n.size)
	default:
		if err = s.dev.UnmapAllDMA(); err == nil {
			s.maps = nil
		}
	}
	if err != nil {
		return answer{}, err
	}
	s.link.out = append(s.link.out, m.body...)
	return answer{}, nil
}

// unmap takes back the mappings in a range, which are whole and at least one: the document wants the address and size of
// one, but QEMU's virtual IOMMUs take back with one message what they mapped page by page.
func (s *Session) unmap(n mapping) error {
	i, known := s.maps.find(n.addr)
	j := i
	for j < len(s.maps) && s.maps[j].addr-n.addr < n.size {
		j++
	}
	switch {
	case n.size == 0 || n.size > math.MaxUint64-n.addr:
		return refuse(FaultMapping, unix.EINVAL, "DMA_UNMAP of %#x+%#x", n.addr, n.size)
	case !known && i > 0 && n.addr-s.maps[i-1].addr < s.maps[i-1].size, i == j:
		return refuse(FaultMapping, unix.ENOENT, "DMA_UNMAP of %#x+%#x, which is not mapped", n.addr, n.size)
	}
	if last := s.maps[j-1]; n.size-(last.addr-n.addr) < last.size {
		return refuse(FaultMapping, unix.EINVAL, "DMA_UNMAP of %#x+%#x, mapped with size %#x", n.addr, n.size, last.size)
	}
	if err := s.dev.UnmapDMA(n.addr, n.size); err != nil {
		return err
	}
	s.maps = slices.Delete(s.maps, i, j)
	return nil
}
