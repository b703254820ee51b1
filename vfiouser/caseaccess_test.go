// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
	"math"
	"slices"
	"testing"
)

// reads returns a scenario of one REGION_READ; want is the data.
func reads(id string, index RegionIndex, off uint64, want []byte) scenario {
	return scenario{id, func(t *testing.T, _ *program, c *client) string {
		if got := c.read(index, off, uint32(len(want))); !bytes.Equal(got, want) {
			t.Errorf("got %v", got)
		}
		return success
	}}
}

func accessScenarios() []scenario {
	all := make([]byte, MaxTransfer)
	for i := range all {
		all[i] = byte(i)
	}
	return []scenario{
		reads("read-3-bytes", RegionBAR3, 5, []byte{5, 6, 7}),
		reads("read-4096", RegionBAR3, 0, all),
		reads("read-0-bytes", RegionConfig, 256, nil),
		reads("read-whole-config", RegionConfig, 0, make([]byte, 256)),
		{"write-0-bytes", func(t *testing.T, _ *program, c *client) string {
			got := c.call(writeFrame(RegionBAR0, 0))
			if !bytes.Equal(got.body, access{0, RegionBAR0, 0}.append(nil)) {
				t.Errorf("got %v", got.body)
			}
			c.wantRegister(regWrites, 0)
			return said(got)
		}},
		{"write-read", func(t *testing.T, _ *program, c *client) string {
			got := c.call(writeFrame(RegionBAR0, 4093, 170, 187, 204))
			if !bytes.Equal(got.body, access{4093, RegionBAR0, 3}.append(nil)) {
				t.Errorf("got %v", got.body)
			}
			if data := c.read(RegionBAR0, 4093, 3); !bytes.Equal(data, []byte{170, 187, 204}) {
				t.Errorf("got %v", data)
			}
			c.wantRegister(regWrites, 1)
			return said(got)
		}},
		{"write-4096", func(_ *testing.T, _ *program, c *client) string {
			return said(c.call(writeFrame(RegionBAR0, 12288, make([]byte, MaxTransfer)...)))
		}},
		{"write-posted", func(t *testing.T, _ *program, c *client) string {
			c.send(posted(writeFrame(RegionBAR0, 0, 7)))
			got := c.call(readFrame(RegionBAR0, 0, 1))
			if !bytes.Equal(got.body[regionAccessSize:], []byte{7}) {
				t.Errorf("got %v", got.body)
			}
			return said(got)
		}},
		unanswered("refused-posted", readFrame(99, 0, 4)),
		unanswered("command-posted", command(99, 4)),
		{"device-refuses", func(_ *testing.T, _ *program, c *client) string { return said(c.call(poke(regRefuse, 16))) }},
		{"device-refuses-without-errno", func(_ *testing.T, _ *program, c *client) string { return said(c.call(poke(regRefuse, 0))) }},
		{"device-panics", func(t *testing.T, p *program, c *client) string {
			before := p.state(t)
			c.send(poke(regPanic, 1))
			c.ended()
			dial(t, p.path).handshake().close()
			after := p.state(t)
			if after.Panics != before.Panics+1 || after.Disconnected["panic"] != before.Disconnected["panic"]+1 {
				t.Errorf("got %+v, before %+v", after, before)
			}
			return noAnswer
		}},
	}
}

// unanswered returns a scenario of a message that wants no reply: the next answer is that to the next message.
func unanswered(id string, f frame) scenario {
	return scenario{id, func(_ *testing.T, _ *program, c *client) string {
		c.send(posted(f))
		c.alive()
		return noAnswer
	}}
}

// burst is the 200 writes of the cases.
func burst() []access {
	all := make([]access, 200)
	for i := range all {
		all[i] = access{uint64(i) * 8, RegionBAR0, uint32(1 + i%8)}
	}
	return all
}

// digestOf returns what the register with the digest holds after writes of multiFrame.
func digestOf(writes []access) uint32 {
	h := fnv.New32a()
	for _, w := range writes {
		p := binary.LittleEndian.AppendUint64(nil, w.off)
		p = binary.LittleEndian.AppendUint32(p, uint32(w.index))
		p = binary.LittleEndian.AppendUint32(p, w.count)
		_, _ = h.Write(append(p, []byte{1, 2, 3, 4, 5, 6, 7, 8}[:w.count]...))
	}
	return h.Sum32()
}

// bursts returns a scenario of a REGION_WRITE_MULTI of the 200 writes, some of them replaced by bad ones, which are
// left out.
func bursts(id string, bad map[int]access) scenario {
	return scenario{id, func(t *testing.T, _ *program, c *client) string {
		writes := burst()
		for i, w := range bad {
			writes[i] = w
		}
		good := slices.Clone(writes)
		for i := len(good) - 1; i >= 0; i-- {
			if _, is := bad[i]; is {
				good = slices.Delete(good, i, i+1)
			}
		}
		got := c.call(multiFrame(writes...))
		if want := longs(uint64(len(good))); !bytes.Equal(got.body, want) {
			t.Errorf("got %v, want %v", got.body, want)
		}
		c.wantRegister(regWrites, uint32(len(good)))
		c.wantRegister(regDigest, digestOf(good))
		return said(got)
	}}
}

// multiPokes returns a REGION_WRITE_MULTI of writes of a register of BAR1.
func multiPokes(off uint64, value uint32, n int) frame {
	body := longs(uint64(n))
	for range n {
		body = access{off, RegionBAR1, 4}.append(body)
		body = binary.LittleEndian.AppendUint64(body, uint64(value))
	}
	return frame{command: CommandRegionWriteMulti, body: body}
}

func multiScenarios() []scenario {
	return []scenario{
		replies("multi-0", multiFrame(), longs(0)),
		bursts("multi-200", nil),
		{"multi-200-posted", func(_ *testing.T, _ *program, c *client) string {
			c.send(posted(multiFrame(burst()...)))
			c.wantRegister(regWrites, 200)
			c.wantRegister(regDigest, digestOf(burst()))
			return noAnswer
		}},
		{"multi-2729", func(t *testing.T, _ *program, c *client) string {
			got := c.call(multiFrame(slices.Repeat([]access{{0, RegionBAR0, 8}}, 2729)...))
			if !bytes.Equal(got.body, longs(2729)) {
				t.Errorf("got %v", got.body)
			}
			c.wantRegister(regWrites, 2729)
			return said(got)
		}},
		bursts("multi-bad-count-9", map[int]access{100: {0, RegionBAR0, 9}}),
		bursts("multi-bad-count-0", map[int]access{100: {0, RegionBAR0, 0}}),
		bursts("multi-bad-count-max", map[int]access{100: {0, RegionBAR0, math.MaxUint32}}),
		bursts("multi-bad-region", map[int]access{100: {0, 9, 4}}),
		bursts("multi-bad-offset", map[int]access{100: {1 << 63, RegionBAR0, 4}}),
		bursts("multi-bad-read-only", map[int]access{100: {0, RegionBAR3, 4}}),
		bursts("multi-two-bad", map[int]access{50: {0, 9, 4}, 100: {0, RegionBAR0, math.MaxUint32}}),
		{"multi-all-bad", func(t *testing.T, _ *program, c *client) string {
			got := c.call(multiFrame(slices.Repeat([]access{{0, 9, 4}}, 200)...))
			if !bytes.Equal(got.body, longs(0)) {
				t.Errorf("got %v", got.body)
			}
			c.wantRegister(regWrites, 0)
			return said(got)
		}},
		{"multi-device-refuses", func(t *testing.T, _ *program, c *client) string {
			body := multiFrame(access{0, RegionBAR0, 1}, access{regRefuse, RegionBAR1, 4}, access{1, RegionBAR0, 1}).body
			binary.LittleEndian.PutUint32(body[multiHeaderSize+multiWriteSize+regionAccessSize:], 16)
			got := c.call(frame{command: CommandRegionWriteMulti, body: body})
			if !bytes.Equal(got.body, longs(2)) {
				t.Errorf("got %v", got.body)
			}
			c.wantRegister(regWrites, 2)
			return said(got)
		}},
		{"multi-raise", func(t *testing.T, _ *program, c *client) string {
			fd := newEventFD(t)
			c.must(irqFrame(assignFlags, IRQMSIX, 0, 1).with(fd))
			got := c.call(multiPokes(regRaise, uint32(IRQMSIX)<<16, 3))
			if !bytes.Equal(got.body, longs(3)) {
				t.Errorf("got %v", got.body)
			}
			wantEvents(t, fd, 3)
			return said(got)
		}},
	}
}
