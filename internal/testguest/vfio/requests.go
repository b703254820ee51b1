// SPDX-License-Identifier: Apache-2.0

package vfio

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Access flags of DMA_MAP.
const (
	DMARead  = 1 << 0
	DMAWrite = 1 << 1
)

// unmapAll is the flag of DMA_UNMAP that takes back everything.
const unmapAll = 1 << 1

// DMAMap is guest memory to be made known.
type DMAMap struct {
	Addr, Size, Offset uint64
	// FD is sent along, unless it is negative.
	FD    int
	Flags uint32
}

// Encode returns the payload of a DMA_MAP message.
func (m DMAMap) Encode() []byte {
	b := make([]byte, 32)
	binary.NativeEndian.PutUint32(b, 32)
	binary.NativeEndian.PutUint32(b[4:], m.Flags)
	binary.NativeEndian.PutUint64(b[8:], m.Offset)
	binary.NativeEndian.PutUint64(b[16:], m.Addr)
	binary.NativeEndian.PutUint64(b[24:], m.Size)
	return b
}

// MapDMA makes guest memory known to the device.
func (c *Client) MapDMA(m DMAMap) error {
	var fds []int
	if m.FD >= 0 {
		fds = []int{m.FD}
	}
	_, err := c.fixed(CmdDMAMap, m.Encode(), 0, fds...)
	if err != nil {
		return fmt.Errorf("map guest range %#x+%#x: %w", m.Addr, m.Size, err)
	}
	return nil
}

// UnmapDMA takes back a mapping. When it returns the device has let go of the memory.
func (c *Client) UnmapDMA(addr, size uint64) error { return c.unmap(0, addr, size) }

// UnmapAllDMA takes back every mapping.
func (c *Client) UnmapAllDMA() error { return c.unmap(unmapAll, 0, 0) }

func (c *Client) unmap(flags uint32, addr, size uint64) error {
	b := make([]byte, 24)
	binary.NativeEndian.PutUint32(b, 24)
	binary.NativeEndian.PutUint32(b[4:], flags)
	binary.NativeEndian.PutUint64(b[8:], addr)
	binary.NativeEndian.PutUint64(b[16:], size)
	if _, err := c.fixed(CmdDMAUnmap, b, len(b)); err != nil {
		return fmt.Errorf("unmap guest range %#x+%#x: %w", addr, size, err)
	}
	return nil
}

// Reset takes the device back to its power-on state.
func (c *Client) Reset() error {
	if _, err := c.fixed(CmdDeviceReset, nil, 0); err != nil {
		return fmt.Errorf("reset the device: %w", err)
	}
	return nil
}

// DeviceInfo is the answer to DEVICE_GET_INFO.
type DeviceInfo struct{ Flags, Regions, IRQs uint32 }

// Flags of DeviceInfo.
const (
	DeviceReset = 1 << 0
	DevicePCI   = 1 << 1
)

// DeviceInfo asks what the device has.
func (c *Client) DeviceInfo() (DeviceInfo, error) {
	b := make([]byte, 16)
	binary.NativeEndian.PutUint32(b, 16)
	p, err := c.fixed(CmdDeviceGetInfo, b, 16)
	if err != nil {
		return DeviceInfo{}, fmt.Errorf("get device info: %w", err)
	}
	return DeviceInfo{
		Flags: binary.NativeEndian.Uint32(p[4:]), Regions: binary.NativeEndian.Uint32(p[8:]),
		IRQs: binary.NativeEndian.Uint32(p[12:]),
	}, nil
}

// IRQCount asks how many vectors an interrupt index has.
func (c *Client) IRQCount(index uint32) (uint32, error) {
	b := make([]byte, 16)
	binary.NativeEndian.PutUint32(b, 16)
	binary.NativeEndian.PutUint32(b[8:], index)
	p, err := c.fixed(CmdGetIRQInfo, b, 16)
	if err != nil {
		return 0, fmt.Errorf("get info of interrupt %d: %w", index, err)
	}
	if got := binary.NativeEndian.Uint32(p[8:]); got != index {
		return 0, fmt.Errorf("info of interrupt %d is of %d: %w", index, got, unix.EPROTO)
	}
	return binary.NativeEndian.Uint32(p[12:]), nil
}

// Flags of SET_IRQS, linux/vfio.h.
const (
	IRQDataNone      = 1 << 0
	IRQDataBool      = 1 << 1
	IRQDataEventFD   = 1 << 2
	IRQActionMask    = 1 << 3
	IRQActionUnmask  = 1 << 4
	IRQActionTrigger = 1 << 5
)

// SetIRQs configures interrupt vectors.
func (c *Client) SetIRQs(flags, index, start, count uint32, fds ...int) error {
	b := make([]byte, 20)
	for i, v := range []uint32{20, flags, index, start, count} {
		binary.NativeEndian.PutUint32(b[4*i:], v)
	}
	if _, err := c.fixed(CmdSetIRQs, b, 0, fds...); err != nil {
		return fmt.Errorf("set %d vectors of interrupt %d: %w", count, index, err)
	}
	return nil
}

func regionAccess(region uint32, off uint64, count int) []byte {
	b := make([]byte, 16, 16+count)
	binary.NativeEndian.PutUint64(b, off)
	binary.NativeEndian.PutUint32(b[8:], region)
	binary.NativeEndian.PutUint32(b[12:], uint32(count))
	return b
}

// RegionRead reads bytes of a region.
func (c *Client) RegionRead(region uint32, off uint64, p []byte) error {
	request := regionAccess(region, off, len(p))
	answer, err := c.fixed(CmdRegionRead, request, 16+len(p))
	if err != nil {
		return fmt.Errorf("read %d bytes of region %d at %#x: %w", len(p), region, off, err)
	}
	if !bytes.Equal(answer[:16], request) {
		return fmt.Errorf("the read of region %d at %#x is answered for another: %w", region, off, unix.EPROTO)
	}
	copy(p, answer[16:])
	return nil
}

// RegionWrite writes bytes of a region: posted if nothing of the device can be mapped, as QEMU does.
func (c *Client) RegionWrite(region uint32, off uint64, p []byte) error {
	request := regionAccess(region, off, len(p))
	var err error
	if c.Posting() {
		err = c.post(CmdRegionWrite, append(request, p...))
	} else {
		var answer []byte
		answer, err = c.fixed(CmdRegionWrite, append(request, p...), 16)
		if err == nil && !bytes.Equal(answer, request) {
			err = unix.EPROTO
		}
	}
	if err != nil {
		return fmt.Errorf("write %d bytes of region %d at %#x: %w", len(p), region, off, err)
	}
	return nil
}

// Posting reports whether register writes go out without waiting for an answer.
func (c *Client) Posting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.posting
}

// MultiWrite is one entry of REGION_WRITE_MULTI: up to 8 bytes.
type MultiWrite struct {
	Region uint32
	Offset uint64
	Data   []byte
}

// RegionWriteMulti writes several registers with one message and waits for the answer.
func (c *Client) RegionWriteMulti(writes []MultiWrite) error {
	b := make([]byte, 8, 8+24*len(writes))
	binary.NativeEndian.PutUint64(b, uint64(len(writes)))
	for _, w := range writes {
		data := make([]byte, 8)
		copy(data, w.Data)
		b = append(append(b, regionAccess(w.Region, w.Offset, len(w.Data))...), data...)
	}
	answer, err := c.fixed(CmdRegionWriteMulti, b, 8)
	if err != nil {
		return fmt.Errorf("write %d registers: %w", len(writes), err)
	}
	if n := binary.NativeEndian.Uint64(answer); n != uint64(len(writes)) {
		return fmt.Errorf("%d of %d registers are written: %w", n, len(writes), unix.EPROTO)
	}
	return nil
}
