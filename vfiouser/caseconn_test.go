// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
	"slices"
	"testing"
	"time"
)

// ends returns how many connections have ended.
func (s programState) ends() (n int) {
	for _, m := range s.Disconnected {
		n += m
	}
	return n
}

func connectionScenarios() []scenario {
	return []scenario{
		refusesAnother("second-client", nil),
		refusesAnother("second-client-version", (&client{}).bytes(version(0, qemuVersionData))),
		{"reconnect", func(t *testing.T, p *program, c *client) string {
			busy := p.state(t).Busy
			for range 20 {
				c.close()
				*c = *dial(t, p.path).handshake()
				c.alive()
			}
			if got := p.state(t).Busy; got != busy {
				t.Errorf("%d clients were refused", got-busy)
			}
			return success
		}},
		{"loss-at-every-byte", loseAtEveryByte},
		{"loss-with-answers-unread", func(_ *testing.T, p *program, c *client) string {
			c.write(bytes.Repeat(c.bytes(readFrame(RegionBAR3, 0, MaxTransfer)), 20))
			c.close()
			return noAnswer
		}},
		{"loss-with-everything", func(t *testing.T, _ *program, c *client) string {
			fds := c.assign(t, IRQMSIX, 0, 3)
			memory := newMemFD(t, 16*PageSize)
			for i := range uint64(16) {
				c.must(mapFrame(3, i*PageSize, i*PageSize, PageSize).with(memory))
			}
			c.close()
			wantAllEvents(t, fds, 0, 0, 0)
			return noAnswer
		}},
		{"loss-half-closed", func(t *testing.T, _ *program, c *client) string {
			c.send(version(0, qemuVersionData))
			if err := c.conn.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			return said(c.answer(CommandVersion))
		}},
		timesOut("silent", nil),
		timesOut("silent-half-header", make([]byte, 8)),
		{"idle", func(_ *testing.T, _ *program, c *client) string {
			time.Sleep(1500 * time.Millisecond)
			c.alive()
			return success
		}},
		{"slow", func(t *testing.T, p *program, c *client) string {
			before := p.state(t).Disconnected["slow"]
			if err := c.conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			var err error
			for many := bytes.Repeat(c.bytes(readFrame(RegionBAR3, 0, MaxTransfer)), 1000); err == nil; {
				_, err = c.conn.Write(many)
			}
			eventually(t, "the connection is over", func() bool { return p.state(t).Disconnected["slow"] == before+1 })
			c.close()
			return noAnswer
		}},
	}
}

// refusesAnother returns a scenario of a second client, which sends what is given.
func refusesAnother(id string, begin []byte) scenario {
	return scenario{id, func(t *testing.T, p *program, c *client) string {
		before := p.state(t)
		second := dial(t, p.path)
		_, _ = second.conn.Write(begin) // it may be closed already
		second.ended()
		if got := p.state(t).Busy; got != before.Busy+1 {
			t.Errorf("%d clients were refused", got-before.Busy)
		}
		return noAnswer
	}}
}

// timesOut returns a scenario of a client that sends what is given and no more.
func timesOut(id string, begin []byte) scenario {
	return scenario{id, func(t *testing.T, p *program, c *client) string {
		before := p.state(t).Disconnected["handshake"]
		if begin != nil {
			c.write(begin)
		}
		c.ended()
		eventually(t, "the connection is over", func() bool { return p.state(t).Disconnected["handshake"] == before+1 })
		return noAnswer
	}}
}

// loseAtEveryByte ends connections at every byte of a conversation, and in between every time has another client served.
func loseAtEveryByte(t *testing.T, p *program, c *client) string {
	c.close()
	before := p.state(t)
	fd := newEventFD(t)
	hello, assign := c.bytes(version(0, "{}")), c.bytes(irqFrame(assignFlags, IRQMSIX, 0, 1))
	all := slices.Concat(hello, assign, c.bytes(frame{command: CommandDeviceReset}))
	for n := range len(all) + 1 {
		lost := dial(t, p.path)
		lost.write(all[:min(n, len(hello))])
		if n > len(hello) {
			lost.write(all[len(hello):n], fd)
		}
		lost.close()
		dial(t, p.path).handshake().close()
	}
	eventually(t, "all connections are over", func() bool {
		after := p.state(t)
		return after.ends()-before.ends() >= 2*(len(all)+1)
	})
	return success
}

func streamScenarios() []scenario {
	unassigned := irqFrame(assignFlags, IRQMSIX, 0, 1)
	return []scenario{
		{"pipelined", func(t *testing.T, _ *program, c *client) string {
			var p []byte
			first := c.id + 1
			for i := range uint64(100) {
				p = append(p, c.bytes(readFrame(RegionBAR3, i, 1))...)
			}
			c.write(p)
			for i := range uint16(100) {
				if r, err := c.receive(); err != nil || r.errno != 0 || r.id != first+i || r.body[regionAccessSize] != byte(i) {
					t.Errorf("answer %d: %+v, %v", i, r.header, err)
				}
			}
			return success
		}},
		{"same-ids", func(t *testing.T, _ *program, c *client) string {
			c.id = 6
			c.write(bytes.Repeat(c.bytes(frame{command: CommandDeviceGetInfo, body: words(16, 0, 0, 0)}), 10))
			for range 10 {
				c.answer(CommandDeviceGetInfo)
			}
			return success
		}},
		{"single-bytes", func(_ *testing.T, _ *program, c *client) string {
			for _, b := range c.bytes(writeFrame(RegionBAR0, 0, 5)) {
				c.write([]byte{b})
				time.Sleep(time.Millisecond)
			}
			return said(c.answer(CommandRegionWrite))
		}},
		{"largest-message", func(t *testing.T, _ *program, c *client) string {
			for p := range slices.Chunk(c.bytes(multiFrame(slices.Repeat([]access{{0, RegionBAR0, 8}}, 2729)...)), 1000) {
				c.write(p)
			}
			got := c.answer(CommandRegionWriteMulti)
			if !bytes.Equal(got.body, longs(2729)) {
				t.Errorf("got %v", got.body)
			}
			return said(got)
		}},
		{"fd-with-any-header-byte", func(t *testing.T, _ *program, c *client) string {
			for n := range headerSize {
				if got := c.sendSplit(unassigned, n, nil, []int{newEventFD(t)}); got != success {
					t.Errorf("at byte %d: %s", n, got)
				}
			}
			return success
		}},
		{"fd-with-payload", func(t *testing.T, _ *program, c *client) string {
			return c.sendSplit(unassigned, headerSize, nil, []int{newEventFD(t)})
		}},
		{"fd-in-payload", func(t *testing.T, _ *program, c *client) string {
			return c.sendSplit(unassigned, 21, nil, []int{newEventFD(t)})
		}},
		{"fds-16-and-16", func(t *testing.T, _ *program, c *client) string {
			many := slices.Repeat([]int{newEventFD(t)}, 16)
			return c.sendSplit(unassigned, 1, many, many)
		}},
		{"fds-of-own-message", func(t *testing.T, _ *program, c *client) string {
			fd := newEventFD(t)
			c.write(append(c.bytes(posted(writeFrame(RegionBAR0, 0, 1))), c.bytes(posted(writeFrame(RegionBAR0, 1, 2)))...))
			got := c.call(unassigned.with(fd))
			c.raise(IRQMSIX, 0)
			wantEvents(t, fd, 1)
			return said(got)
		}},
	}
}

// sendSplit sends a frame in two writes, the first of n bytes, each with its files.
func (c *client) sendSplit(f frame, n int, first, second []int) string {
	c.t.Helper()
	p := c.bytes(f)
	if n > 0 {
		c.write(p[:n], first...)
	}
	c.write(p[n:], second...)
	return said(c.answer(f.command))
}
