// SPDX-License-Identifier: Apache-2.0

package vfio

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Flags of a region, linux/vfio.h.
const (
	RegionRead  = 1 << 0
	RegionWrite = 1 << 1
	RegionMMap  = 1 << 2
	RegionCaps  = 1 << 3
)

const (
	regionInfoSize = 32
	sparseID       = 1
	sparseVersion  = 1
	// maxCaps bounds the capability chain of one region: there are six kinds in linux/vfio.h.
	maxCaps = 16
)

// Area is a part of a region that may be mapped.
type Area struct{ Offset, Size uint64 }

// RegionInfo describes a region.
type RegionInfo struct {
	Flags, Index uint32
	Size, Offset uint64
	// Sparse says that Areas are the only parts that may be mapped, none if there are none.
	Sparse bool
	Areas  []Area
	// FD is the file to map, -1 if none came. It is the receiver's.
	FD int
}

// RegionInfo asks for a region as QEMU does: once for the fixed part, and again if there is more.
func (c *Client) RegionInfo(index uint32) (*RegionInfo, error) {
	f, err := c.regionInfo(index, regionInfoSize)
	if err != nil {
		return nil, err
	}
	if argsz := binary.NativeEndian.Uint32(f.Payload); argsz > regionInfoSize {
		f.CloseFDs()
		if f, err = c.regionInfo(index, argsz); err != nil {
			return nil, err
		}
	}
	info, err := parseRegionInfo(index, f)
	if err != nil {
		f.CloseFDs()
		return nil, fmt.Errorf("get info of region %d: %w", index, err)
	}
	if info.Flags&RegionMMap != 0 {
		c.mu.Lock()
		c.posting = false
		c.mu.Unlock()
	}
	return info, nil
}

func (c *Client) regionInfo(index, argsz uint32) (*Frame, error) {
	b := make([]byte, regionInfoSize)
	binary.NativeEndian.PutUint32(b, argsz)
	binary.NativeEndian.PutUint32(b[8:], index)
	f, err := c.call(CmdGetRegionInfo, b)
	if err != nil {
		return nil, fmt.Errorf("get info of region %d: %w", index, err)
	}
	if len(f.Payload) < regionInfoSize || len(f.Payload) > int(argsz) {
		f.CloseFDs()
		return nil, fmt.Errorf("info of region %d is %d bytes, want 32 to %d: %w", index, len(f.Payload), argsz,
			unix.EPROTO)
	}
	return f, nil
}

func parseRegionInfo(index uint32, f *Frame) (*RegionInfo, error) {
	p := f.Payload
	info := &RegionInfo{
		Flags: binary.NativeEndian.Uint32(p[4:]), Index: binary.NativeEndian.Uint32(p[8:]),
		Size: binary.NativeEndian.Uint64(p[16:]), Offset: binary.NativeEndian.Uint64(p[24:]), FD: -1,
	}
	if info.Index != index {
		return nil, fmt.Errorf("the answer is of region %d: %w", info.Index, unix.EPROTO)
	}
	if info.Flags&RegionCaps != 0 {
		if err := info.parseCaps(p, binary.NativeEndian.Uint32(p[12:])); err != nil {
			return nil, err
		}
	}
	switch {
	case len(f.FDs) == 1:
		info.FD = f.FDs[0]
	case len(f.FDs) > 1:
		return nil, fmt.Errorf("%d descriptors came, want at most one: %w", len(f.FDs), unix.EPROTO)
	}
	return info, nil
}

// parseCaps walks the chain of capabilities that begins at an offset of the answer.
func (info *RegionInfo) parseCaps(p []byte, at uint32) error {
	for range maxCaps {
		if at == 0 {
			return nil
		}
		if at < regionInfoSize || int(at)+8 > len(p) {
			return fmt.Errorf("a capability lies at %d of %d bytes: %w", at, len(p), unix.EPROTO)
		}
		id, version := binary.NativeEndian.Uint16(p[at:]), binary.NativeEndian.Uint16(p[at+2:])
		if id == sparseID && version == sparseVersion {
			if err := info.parseSparse(p[at+8:]); err != nil {
				return err
			}
		}
		at = binary.NativeEndian.Uint32(p[at+4:])
	}
	return fmt.Errorf("more than %d capabilities: %w", maxCaps, unix.EPROTO)
}

func (info *RegionInfo) parseSparse(p []byte) error {
	if len(p) < 8 {
		return fmt.Errorf("a sparse list of %d bytes: %w", len(p), unix.EPROTO)
	}
	n := uint64(binary.NativeEndian.Uint32(p))
	p = p[8:]
	if uint64(len(p)) < 16*n {
		return fmt.Errorf("a sparse list of %d areas in %d bytes: %w", n, len(p), unix.EPROTO)
	}
	info.Sparse = true
	for i := range int(n) {
		a := Area{
			Offset: binary.NativeEndian.Uint64(p[16*i:]), Size: binary.NativeEndian.Uint64(p[16*i+8:]),
		}
		if a.Offset > info.Size || a.Size > info.Size-a.Offset || a.Offset%4096 != 0 || a.Size%4096 != 0 {
			return fmt.Errorf("area %#x+%#x of a region of %#x bytes: %w", a.Offset, a.Size, info.Size, unix.EPROTO)
		}
		info.Areas = append(info.Areas, a)
	}
	return nil
}
