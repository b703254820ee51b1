// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
	"math"
	"testing"
)

// mapped returns a scenario of mappings, all but the last of which succeed; afterwards the device has count of them.
func mapped(id string, count uint32, maps ...frame) scenario {
	return scenario{id, func(t *testing.T, p *program, c *client) string {
		held := p.state(t)
		last := len(maps) - 1
		for _, m := range maps[:last] {
			c.must(m)
		}
		got := c.call(maps[last])
		c.wantRegister(regMappings, count)
		p.holds(t, held)
		return said(got)
	}}
}

// overlapping returns a scenario of a mapping beside two others.
func overlapping(id string, count uint32, addr, size uint64) scenario {
	return scenario{id, func(t *testing.T, p *program, c *client) string {
		third := mapFrame(3, 0, addr, size).with(newMemFD(t, 4096))
		return mapped(id, count, mapFrame(3, 0, 0x4000, 0x2000), mapFrame(3, 0, 0x8000, 0x2000), third).run(t, p, c)
	}}
}

// withFile returns a scenario of one mapping with a file of 1 MiB.
func withFile(id string, f frame) scenario {
	return scenario{id, func(t *testing.T, p *program, c *client) string {
		return mapped(id, 1, f.with(newMemFD(t, 1<<20))).run(t, p, c)
	}}
}

func memoryScenarios() []scenario {
	one := mapFrame(3, 0, 0x4000, 0x2000)
	return []scenario{
		withFile("map-fd", mapFrame(3, 0x2000, 0x1000, 0x4000)),
		withFile("map-mmap-flag", mapFrame(3|dmaFlagMMap, 0, 0, 4096)),
		withFile("map-mmap-and-file-io", mapFrame(3|dmaFlagMMap|dmaFlagFileIO, 0, 0, 4096)),
		mapped("map-no-fd", 1, mapFrame(1, 0, 0xc0000, 0x1000)),
		mapped("map-crooked-offset-no-fd", 1, mapFrame(3, 2048, 0, 4096)),
		overlapping("map-over-same", 2, 0x4000, 0x2000),
		overlapping("map-over-inside", 2, 0x5000, 0x1000),
		overlapping("map-over-around", 2, 0x3000, 0x4000),
		overlapping("map-over-begin", 2, 0x3000, 0x2000),
		overlapping("map-over-end", 2, 0x5000, 0x2000),
		overlapping("map-over-two", 2, 0x5000, 0x4000),
		overlapping("map-between", 3, 0x6000, 0x2000),
		{"map-65536", func(_ *testing.T, _ *program, c *client) string {
			for i := range uint64(MaxDMAMaps) {
				c.must(mapFrame(3, 0, i*PageSize, PageSize))
			}
			got := c.call(mapFrame(3, 0, MaxDMAMaps*PageSize, PageSize))
			c.wantRegister(regMappings, MaxDMAMaps)
			return said(got)
		}},
		{"unmap", func(t *testing.T, _ *program, c *client) string {
			c.must(mapFrame(3, 0, 0x1000, 0x4000))
			return c.unmap(t, unmapFrame(0, 0x1000, 0x4000))
		}},
		mapped("unmap-smaller", 1, one, unmapFrame(0, 0x4000, 0x1000)),
		mapped("unmap-inside", 1, one, unmapFrame(0, 0x5000, 0x1000)),
		mapped("unmap-twice", 0, one, unmapFrame(0, 0x4000, 0x2000), unmapFrame(0, 0x4000, 0x2000)),
		{"unmap-all", func(t *testing.T, _ *program, c *client) string {
			c.must(mapFrame(3, 0, 0x1000, 0x1000))
			c.must(mapFrame(3, 0, 0x8000, 0x1000))
			return c.unmap(t, unmapFrame(dmaUnmapAll, 0, 0))
		}},
		{"unmap-range", func(t *testing.T, _ *program, c *client) string {
			for _, addr := range []uint64{0x1ff000, 0x200000, 0x201000, 0x3ff000, 0x400000} {
				c.must(mapFrame(3, 0, addr, 0x1000))
			}
			f := unmapFrame(0, 0x200000, 0x200000)
			got := c.call(f)
			if !bytes.Equal(got.body, f.body) {
				t.Errorf("got %v", got.body)
			}
			c.wantRegister(regMappings, 2)
			return said(got)
		}},
		mapped("unmap-range-cut", 2, mapFrame(3, 0, 0x4000, 0x1000), mapFrame(3, 0, 0x5000, 0x2000), unmapFrame(0, 0x4000, 0x2000)),
		mapped("unmap-wrap", 1, mapFrame(3, 0, 0x4000, 0x1000), unmapFrame(0, 0x4000, math.MaxUint64)),
		mapped("unmap-all-of-nothing", 0, unmapFrame(dmaUnmapAll, 0, 0)),
		{"unmap-map-burst", remapInBursts},
	}
}

// unmap sends the last unmapping there can be, and checks that it is repeated in the reply.
func (c *client) unmap(t *testing.T, f frame) string {
	got := c.call(f)
	if !bytes.Equal(got.body, f.body) {
		t.Errorf("got %v", got.body)
	}
	c.wantRegister(regMappings, 0)
	return said(got)
}

// remapInBursts splits the guest's memory and joins it again, over and over, as a firmware's changes of its shadow
// memory make QEMU do.
func remapInBursts(t *testing.T, _ *program, c *client) string {
	memory := newMemFD(t, 0x40000000)
	whole := mapFrame(3, 0, 0, 0x40000000).with(memory)
	pieces := []frame{
		mapFrame(3, 0, 0, 0xa0000).with(memory), mapFrame(1, 0, 0xc0000, 0xb000),
		mapFrame(3, 0xcb000, 0xcb000, 0x3000).with(memory), mapFrame(3, 0x100000, 0x100000, 0x3ff00000).with(memory),
	}
	c.must(whole)
	for range 50 {
		burst := append([]frame{unmapFrame(0, 0, 0x40000000)}, pieces...)
		for _, p := range pieces {
			burst = append(burst, frame{command: CommandDMAUnmap, body: append(words(dmaUnmapSize, 0), p.body[16:]...)})
		}
		burst = append(burst, whole)
		first := c.id
		for _, f := range burst {
			c.send(f)
		}
		for i := range burst {
			if r, err := c.receive(); err != nil || r.errno != 0 || r.id != first+1+uint16(i) {
				t.Fatalf("answer %d of a burst: %+v, %v", i, r.header, err)
			}
		}
	}
	c.wantRegister(regMappings, 1)
	return success
}

func resetScenarios() []scenario {
	reset := frame{command: CommandDeviceReset}
	return []scenario{
		{"reset", func(t *testing.T, _ *program, c *client) string {
			got := c.call(reset)
			if len(got.body) > 0 {
				t.Errorf("got %v", got.body)
			}
			c.wantRegister(regResets, 1)
			return said(got)
		}},
		{"reset-twice", func(_ *testing.T, _ *program, c *client) string {
			c.must(reset)
			got := c.call(reset)
			c.wantRegister(regResets, 2)
			return said(got)
		}},
		{"reset-memory", func(t *testing.T, _ *program, c *client) string {
			for _, index := range []RegionIndex{RegionBAR0, RegionBAR2, RegionConfig} {
				c.must(writeFrame(index, 0, 9))
			}
			got := c.call(reset)
			for _, index := range []RegionIndex{RegionBAR0, RegionBAR2, RegionConfig} {
				if data := c.read(index, 0, 1); data[0] != 0 {
					t.Errorf("%s: got %v", index, data)
				}
			}
			c.wantRegister(regWrites, 0)
			return said(got)
		}},
		{"reset-between-writes", func(_ *testing.T, _ *program, c *client) string {
			p := c.bytes(posted(writeFrame(RegionBAR0, 0, 1)))
			p = append(p, c.bytes(reset)...)
			id := c.id
			c.write(append(p, c.bytes(posted(writeFrame(RegionBAR0, 0, 1)))...))
			c.id = id
			got := c.answer(CommandDeviceReset)
			c.wantRegister(regWrites, 1)
			return said(got)
		}},
		{"reset-mappings", func(t *testing.T, _ *program, c *client) string {
			c.must(mapFrame(3, 0, 0x1000, 0x1000))
			got := c.call(reset)
			c.wantRegister(regMappings, 1)
			c.unmap(t, unmapFrame(0, 0x1000, 0x1000))
			return said(got)
		}},
		{"reset-eventfds", func(t *testing.T, _ *program, c *client) string {
			fd := c.assign(t, IRQMSIX, 0, 1)[0]
			got := c.call(reset)
			c.raise(IRQMSIX, 0)
			wantEvents(t, fd, 1)
			return said(got)
		}},
		{"reset-latch", func(t *testing.T, _ *program, c *client) string {
			c.raise(IRQMSIX, 0)
			got := c.call(reset)
			wantEvents(t, c.assign(t, IRQMSIX, 0, 1)[0], 0)
			return said(got)
		}},
		{"reset-masked", func(t *testing.T, _ *program, c *client) string {
			fd := c.assign(t, IRQMSIX, 0, 1)[0]
			c.must(irqFrame(irqDataNone|irqActionMask, IRQMSIX, 0, 1))
			c.raise(IRQMSIX, 0)
			got := c.call(reset)
			c.raise(IRQMSIX, 0)
			wantEvents(t, fd, 0)
			c.must(irqFrame(irqDataNone|irqActionUnmask, IRQMSIX, 0, 1))
			wantEvents(t, fd, 1)
			return said(got)
		}},
		{"reset-posted", func(_ *testing.T, _ *program, c *client) string {
			c.send(posted(reset))
			c.wantRegister(regResets, 1)
			return noAnswer
		}},
	}
}
