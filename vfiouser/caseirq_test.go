// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"testing"

	"golang.org/x/sys/unix"
)

// assign assigns new eventfds to count vectors.
func (c *client) assign(t *testing.T, index IRQIndex, start, count uint32) []int {
	t.Helper()
	fds := make([]int, count)
	for i := range fds {
		fds[i] = newEventFD(t)
	}
	c.must(irqFrame(assignFlags, index, start, count).with(fds...))
	return fds
}

// wantAllEvents reads eventfds.
func wantAllEvents(t *testing.T, fds []int, want ...uint64) {
	t.Helper()
	for i, fd := range fds {
		wantEvents(t, fd, want[i])
	}
}

func irqScenarios() []scenario {
	unassign := irqFrame(assignFlags, IRQMSIX, 0, 1)
	return []scenario{
		{"irqs-assign", func(t *testing.T, _ *program, c *client) string {
			fd := newEventFD(t)
			got := c.call(unassign.with(fd))
			c.raise(IRQMSIX, 0)
			wantEvents(t, fd, 1)
			return said(got)
		}},
		{"irqs-assign-3", func(t *testing.T, _ *program, c *client) string {
			fds := c.assign(t, IRQMSIX, 0, 3)
			c.raise(IRQMSIX, 2)
			c.raise(IRQMSIX, 0)
			c.raise(IRQMSIX, 2)
			wantAllEvents(t, fds, 1, 0, 2)
			return success
		}},
		{"irqs-trigger", func(t *testing.T, _ *program, c *client) string {
			fds := c.assign(t, IRQMSIX, 0, 3)
			got := c.call(irqFrame(noneTrigger, IRQMSIX, 1, 2))
			wantAllEvents(t, fds, 0, 1, 1)
			return said(got)
		}},
		{"irqs-trigger-bool", func(t *testing.T, _ *program, c *client) string {
			fds := c.assign(t, IRQMSIX, 0, 3)
			got := c.call(irqFrame(irqDataBool|irqActionTrigger, IRQMSIX, 0, 3, 1, 0, 1))
			wantAllEvents(t, fds, 1, 0, 1)
			return said(got)
		}},
		{"irqs-latched", func(t *testing.T, _ *program, c *client) string {
			for range 5 {
				c.raise(IRQMSIX, 0)
			}
			wantEvents(t, c.assign(t, IRQMSIX, 0, 1)[0], 1)
			return success
		}},
		{"irqs-latched-once", func(t *testing.T, _ *program, c *client) string {
			c.raise(IRQMSIX, 0)
			wantEvents(t, c.assign(t, IRQMSIX, 0, 1)[0], 1)
			wantEvents(t, c.assign(t, IRQMSIX, 0, 1)[0], 0)
			return success
		}},
		{"irqs-replaced", func(t *testing.T, _ *program, c *client) string {
			first, second := c.assign(t, IRQMSIX, 0, 1), c.assign(t, IRQMSIX, 0, 1)
			c.raise(IRQMSIX, 0)
			wantEvents(t, first[0], 0)
			wantEvents(t, second[0], 1)
			return success
		}},
		{"irqs-taken-away", func(t *testing.T, _ *program, c *client) string {
			first := c.assign(t, IRQMSIX, 0, 1)
			got := c.call(unassign)
			c.raise(IRQMSIX, 0)
			wantEvents(t, c.assign(t, IRQMSIX, 0, 1)[0], 1)
			wantEvents(t, first[0], 0)
			return said(got)
		}},
		{"irqs-disabled", func(t *testing.T, _ *program, c *client) string {
			fds := c.assign(t, IRQMSIX, 0, 3)
			got := c.call(irqFrame(noneTrigger, IRQMSIX, 0, 0))
			for v := range uint32(3) {
				c.raise(IRQMSIX, v)
			}
			wantAllEvents(t, fds, 0, 0, 0)
			return said(got)
		}},
		{"irqs-disable-msi", func(_ *testing.T, _ *program, c *client) string {
			return said(c.call(irqFrame(noneTrigger, IRQMSI, 0, 0)))
		}},
		replaysQEMU(),
		{"irqs-churn", func(t *testing.T, _ *program, c *client) string {
			fd := newEventFD(t)
			for range 300 {
				c.must(unassign)
				c.send(posted(poke(regRaise, uint32(IRQMSIX)<<16)))
				c.must(unassign.with(fd))
				wantEvents(t, fd, 1)
			}
			return success
		}},
		{"irqs-memfd", func(t *testing.T, _ *program, c *client) string {
			fd := newEventFD(t)
			got := c.call(irqFrame(assignFlags, IRQMSIX, 0, 2).with(fd, newMemFD(t, 4096)))
			c.raise(IRQMSIX, 0)
			wantEvents(t, fd, 0)
			return said(got)
		}},
		{"irqs-pipe", func(t *testing.T, _ *program, c *client) string {
			var pipe [2]int
			if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
				t.Fatal(err)
			}
			defer unix.Close(pipe[0])
			defer unix.Close(pipe[1])
			return said(c.call(unassign.with(pipe[1])))
		}},
		{"irqs-raise-unknown", func(_ *testing.T, _ *program, c *client) string {
			c.raise(IRQMSIX, 3)
			return said(c.call(poke(regRaise, 0xffffffff)))
		}},
	}
}

// replaysQEMU is how QEMU enables one more vector, with interrupts in between.
func replaysQEMU() scenario {
	return scenario{"irqs-qemu", func(t *testing.T, _ *program, c *client) string {
		c.assign(t, IRQMSIX, 0, 1)
		c.must(irqFrame(assignFlags, IRQMSIX, 0, 1))
		c.raise(IRQMSIX, 0)
		c.must(irqFrame(noneTrigger, IRQMSIX, 0, 0))
		c.raise(IRQMSIX, 1)
		wantAllEvents(t, c.assign(t, IRQMSIX, 0, 3), 1, 1, 0)
		return success
	}}
}

func maskScenarios() []scenario {
	mask, unmask := irqFrame(irqDataNone|irqActionMask, IRQMSIX, 0, 1), irqFrame(irqDataNone|irqActionUnmask, IRQMSIX, 0, 1)
	all := []scenario{
		{"irqs-masked", func(t *testing.T, _ *program, c *client) string {
			fd := c.assign(t, IRQMSIX, 0, 1)[0]
			c.must(mask)
			c.raise(IRQMSIX, 0)
			c.raise(IRQMSIX, 0)
			wantEvents(t, fd, 0)
			got := c.call(unmask)
			wantEvents(t, fd, 1)
			return said(got)
		}},
		{"irqs-masked-bool", func(t *testing.T, _ *program, c *client) string {
			fds := c.assign(t, IRQMSIX, 0, 3)
			c.must(irqFrame(irqDataBool|irqActionMask, IRQMSIX, 0, 3, 0, 1, 0))
			for v := range uint32(3) {
				c.raise(IRQMSIX, v)
			}
			wantAllEvents(t, fds, 1, 0, 1)
			got := c.call(irqFrame(irqDataBool|irqActionUnmask, IRQMSIX, 0, 3, 0, 1, 0))
			wantAllEvents(t, fds, 0, 1, 0) // since they were read
			return said(got)
		}},
		{"irqs-masked-replaced", func(t *testing.T, _ *program, c *client) string {
			first := c.assign(t, IRQMSIX, 0, 1)[0]
			c.must(mask)
			c.raise(IRQMSIX, 0)
			second := c.assign(t, IRQMSIX, 0, 1)[0]
			wantEvents(t, second, 0)
			got := c.call(unmask)
			wantEvents(t, second, 1)
			wantEvents(t, first, 0)
			return said(got)
		}},
		{"irqs-intx", func(t *testing.T, _ *program, c *client) string {
			fd := c.assign(t, IRQINTx, 0, 1)[0]
			c.raise(IRQINTx, 0)
			c.raise(IRQINTx, 0)
			wantEvents(t, fd, 1)
			got := c.call(irqFrame(irqDataNone|irqActionUnmask, IRQINTx, 0, 1))
			wantEvents(t, fd, 1) // since it was read
			c.must(irqFrame(irqDataNone|irqActionUnmask, IRQINTx, 0, 1))
			wantEvents(t, fd, 0)
			return said(got)
		}},
		{"irqs-disable-unmasks", func(t *testing.T, _ *program, c *client) string {
			fd := c.assign(t, IRQINTx, 0, 1)[0]
			c.raise(IRQINTx, 0)
			got := c.call(irqFrame(noneTrigger, IRQINTx, 0, 0))
			c.must(irqFrame(assignFlags, IRQINTx, 0, 1).with(fd))
			c.raise(IRQINTx, 0)
			wantEvents(t, fd, 2)
			return said(got)
		}},
	}
	for id, index := range map[string]IRQIndex{"irqs-err": IRQErr, "irqs-req": IRQReq} {
		all = append(all, scenario{id, func(t *testing.T, _ *program, c *client) string {
			fd := c.assign(t, index, 0, 1)[0]
			c.raise(index, 0)
			got := c.call(irqFrame(noneTrigger, index, 0, 0))
			c.raise(index, 0)
			wantEvents(t, fd, 1)
			return said(got)
		}})
	}
	return all
}
