// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// call is one call of a Device, as recordingDevice has seen it.
type call struct {
	Method string
	Index  RegionIndex
	Off    uint64
	Data   string // hex of what was written
	DMA    DMAMap
	Addr   uint64
	Size   uint64
}

// recordingDevice is a PCI device that keeps a list of its calls, and fails or panics on demand.
type recordingDevice struct {
	regions []Region
	irqs    [NumIRQs]uint32
	// before is called at the begin of each call; the error it returns is the call's.
	before func(method string) error

	mu    sync.Mutex
	calls []call
	// mapped says of each MapDMA whether its fd was open.
	mapped []bool
	// closed is closed by Close.
	closed chan struct{}
}

// newRecordingDevice returns a device with registers in BAR0, BAR1 that makes QEMU write synchronously, doorbells in
// BAR2 of which the file doorbells can be mapped from its second page on, a BAR3 to be read only, and a config space.
func newRecordingDevice(doorbells int) *recordingDevice {
	regions := make([]Region, NumRegions)
	regions[RegionBAR0] = Region{Size: 16 << 10, Flags: RegionRead | RegionWrite}
	regions[RegionBAR1] = Region{Size: 4096, Flags: RegionRead | RegionWrite | RegionMMap}
	regions[RegionBAR2] = Region{
		Size: 4 * PageSize, Flags: RegionRead | RegionWrite | RegionMMap, FD: doorbells,
		MMapAreas: []MMapArea{{PageSize, PageSize}, {2 * PageSize, 2 * PageSize}},
	}
	regions[RegionBAR3] = Region{Size: 4096, Flags: RegionRead}
	regions[RegionConfig] = Region{Size: 256, Flags: RegionRead | RegionWrite}
	return &recordingDevice{
		regions: regions,
		irqs:    [NumIRQs]uint32{IRQINTx: 1, IRQMSIX: 3, IRQErr: 1, IRQReq: 1},
		closed:  make(chan struct{}),
	}
}

func (d *recordingDevice) note(c call) error {
	if d.before != nil {
		if err := d.before(c.Method); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, c)
	return nil
}

// taken returns the calls since the last taken.
func (d *recordingDevice) taken() []call {
	d.mu.Lock()
	defer d.mu.Unlock()
	calls := d.calls
	d.calls = nil
	return calls
}

// methods returns the names of the calls since the last taken.
func (d *recordingDevice) methods() []string {
	var names []string
	for _, c := range d.taken() {
		names = append(names, c.Method)
	}
	return names
}

func (d *recordingDevice) Regions() []Region {
	if d.before != nil {
		_ = d.before("Regions")
	}
	return d.regions
}

func (d *recordingDevice) IRQs() [NumIRQs]uint32 { return d.irqs }

// inBounds panics if the server lets an access through that it promises to refuse.
func (d *recordingDevice) inBounds(index RegionIndex, off uint64, p []byte, need RegionFlags) {
	r := d.regions[index]
	if len(p) == 0 || len(p) > MaxTransfer || off > r.Size || uint64(len(p)) > r.Size-off || r.Flags&need == 0 {
		panic(fmt.Sprintf("access to %s at %#x+%#x got through", index, off, len(p)))
	}
}

func (d *recordingDevice) ReadRegion(index RegionIndex, off uint64, p []byte) error {
	d.inBounds(index, off, p, RegionRead)
	if slices.ContainsFunc(p, func(b byte) bool { return b != 0 }) {
		panic("a read's buffer came with bytes of somebody else")
	}
	if err := d.note(call{Method: "ReadRegion", Index: index, Off: off, Size: uint64(len(p))}); err != nil {
		return err
	}
	for i := range p {
		p[i] = byte(off) + byte(i)
	}
	return nil
}

func (d *recordingDevice) WriteRegion(index RegionIndex, off uint64, p []byte) error {
	d.inBounds(index, off, p, RegionWrite)
	return d.note(call{Method: "WriteRegion", Index: index, Off: off, Data: fmt.Sprintf("%x", p)})
}

func (d *recordingDevice) Replied() { _ = d.note(call{Method: "Replied"}) }

func (d *recordingDevice) MapDMA(m DMAMap) error {
	open := false
	if m.FD >= 0 {
		_, err := unix.FcntlInt(uintptr(m.FD), unix.F_GETFD, 0)
		open, m.FD = err == nil, 0
	}
	if err := d.note(call{Method: "MapDMA", DMA: m}); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mapped = append(d.mapped, open)
	return nil
}

func (d *recordingDevice) UnmapDMA(addr, size uint64) error {
	return d.note(call{Method: "UnmapDMA", Addr: addr, Size: size})
}

func (d *recordingDevice) UnmapAllDMA() error { return d.note(call{Method: "UnmapAllDMA"}) }

func (d *recordingDevice) Reset() error { return d.note(call{Method: "Reset"}) }

func (d *recordingDevice) Close() {
	close(d.closed)
	_ = d.note(call{Method: "Close"})
}
