// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"golang.org/x/sys/unix"
)

// memoryDevice is a recordingDevice that keeps guest memory in a guestmem.Space, as a device does that uses it.
type memoryDevice struct {
	*recordingDevice
	space *guestmem.Space
}

func (d *memoryDevice) MapDMA(m DMAMap) error {
	var prot guestmem.Prot
	if m.Flags&DMARead != 0 {
		prot |= guestmem.ProtRead
	}
	if m.Flags&DMAWrite != 0 {
		prot |= guestmem.ProtWrite
	}
	return d.space.Map(m.Addr, m.Size, m.FD, m.Offset, prot)
}

func (d *memoryDevice) UnmapDMA(addr, size uint64) error { return d.space.Unmap(addr, size) }

func (d *memoryDevice) UnmapAllDMA() error {
	d.space.UnmapAll()
	return nil
}

// numberedMemory returns a file in which each 8 bytes hold their offset.
func numberedMemory(t *testing.T, size int64) int {
	t.Helper()
	fd := newMemFD(t, size)
	var p []byte
	for off := int64(0); off < size; off += 8 {
		p = binary.LittleEndian.AppendUint64(p, uint64(off))
	}
	if n, err := unix.Pwrite(fd, p, 0); err != nil || int64(n) != size {
		t.Fatalf("wrote %d bytes: %v", n, err)
	}
	return fd
}

// reader reads guest memory while it is mapped and unmapped. Guest addresses are file offsets.
type reader struct {
	t     *testing.T
	space *guestmem.Space
	stop  *atomic.Bool
}

// read returns whether the memory was there; if so, it must be the right one, to the last byte.
func (r reader) read(addr uint64, p []byte) bool {
	switch err := r.space.Read(addr, p); {
	case errors.Is(err, unix.EFAULT):
		return false
	case err != nil:
		r.t.Errorf("read %#x: %v", addr, err)
		return false
	}
	for i := 0; i < len(p); i += 8 {
		if got := binary.LittleEndian.Uint64(p[i:]); got != addr+uint64(i) {
			r.t.Errorf("read %#x: the memory of %#x is there", addr+uint64(i), got)
			return false
		}
	}
	return true
}

// pause leaves the processor to the session every now and then, where there is none to spare.
func pause(addr uint64) {
	if addr>>12%32 == 0 {
		time.Sleep(50 * time.Microsecond)
	}
}

// always reads from first up to last and expects memory there each time.
func (r reader) always(first, last uint64) {
	p := make([]byte, 64)
	for addr := first; !r.stop.Load(); addr += 4096 - 64 {
		if addr+64 > last {
			addr = first
		}
		pause(addr)
		if !r.read(addr, p) {
			r.t.Errorf("no memory at %#x, which is mapped all the time", addr)
			return
		}
	}
}

// sometimes reads from first up to last, and counts what it finds.
func (r reader) sometimes(first, last uint64, there, gone *atomic.Int64) {
	p := make([]byte, 64)
	for addr := first; !r.stop.Load(); addr += 4096 - 64 {
		if addr+64 > last {
			addr = first
		}
		pause(addr)
		if r.read(addr, p) {
			there.Add(1)
		} else {
			gone.Add(1)
		}
	}
}

// shadow is the memory below 1 MiB in two states of the firmware's shadowing: whole, and in pieces.
func shadow(memory int) (whole, pieces []frame) {
	whole = []frame{mapFrame(3, 0, 0, 0xa0000).with(memory), mapFrame(3, 0xc0000, 0xc0000, 0x40000).with(memory)}
	pieces = []frame{
		mapFrame(3, 0, 0, 0xa0000).with(memory), mapFrame(1, 0, 0xc0000, 0xb000),
		mapFrame(3, 0xcb000, 0xcb000, 0x3000).with(memory), mapFrame(1, 0xce000, 0xce000, 0x1a000).with(memory),
		mapFrame(1, 0, 0xe8000, 0x18000),
	}
	return whole, pieces
}

// unmapOf returns the unmapping of a mapping.
func unmapOf(f frame) frame {
	return frame{command: CommandDMAUnmap, body: append(words(dmaUnmapSize, 0), f.body[16:]...)}
}

// swap sends a burst that takes one set of mappings back and makes another, and reads the answers.
func (c *client) swap(old, new []frame) {
	c.t.Helper()
	var burst []frame
	for _, f := range old {
		burst = append(burst, unmapOf(f))
	}
	burst = append(burst, new...)
	for _, f := range burst {
		c.send(f)
	}
	for range burst {
		if r, err := c.receive(); err != nil || r.errno != 0 {
			c.t.Fatalf("answer of a burst: %+v, %v", r.header, err)
		}
	}
}

func TestMemoryThatStaysMappedIsThereInEveryMomentOfABurst(t *testing.T) {
	const top = 0x200000
	domain := guestmem.NewDomain()
	space := domain.NewSpace("guest")
	t.Cleanup(func() { _ = space.Close() })
	r := start(t, func(cfg *Config) {
		open := cfg.Open
		cfg.Open = func(s *Session) (Device, error) {
			d, err := open(s)
			return &memoryDevice{d.(*recordingDevice), space}, err
		}
	}, nil)
	c := r.client()
	memory := numberedMemory(t, top)
	whole, pieces := shadow(memory)
	c.must(mapFrame(3, 0x100000, 0x100000, 0x80000).with(memory))
	c.must(mapFrame(3, 0x180000, 0x180000, 0x80000).with(memory))
	c.swap(nil, whole)

	var stop atomic.Bool
	var there, gone atomic.Int64
	var readers sync.WaitGroup
	look := reader{t, space, &stop}
	readers.Go(func() { look.always(0x100000, top) })
	readers.Go(func() { look.always(0x180000-4096, 0x180000+4096) }) // across the seam of two mappings
	readers.Go(func() { look.sometimes(0xc0000, 0xf0000, &there, &gone) })
	for range 100 {
		c.swap(whole, pieces)
		p := make([]byte, 64)
		if !look.read(0xd0000, p) || look.read(0xc0000, p) {
			t.Error("after a burst, the memory is not as it says")
		}
		if err := space.Write(0xd0000, p); !errors.Is(err, unix.EFAULT) && !errors.Is(err, unix.EACCES) {
			t.Errorf("a write to what is to be read only: %v", err)
		}
		c.swap(pieces, whole)
		if !look.read(0xc0000, p) {
			t.Error("after a burst, the memory is not there")
		}
	}
	stop.Store(true)
	readers.Wait()

	if there.Load() == 0 || gone.Load() == 0 {
		t.Errorf("a reader of what came and went found it %d times and missed it %d times", there.Load(), gone.Load())
	}
	if n := space.Stats().Regions; n != 4 {
		t.Errorf("%d regions are left", n)
	}
	c.swap(slices.Concat(whole, []frame{mapFrame(3, 0, 0x100000, 0x80000), mapFrame(3, 0, 0x180000, 0x80000)}), nil)
}
