// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// mr is a memory region. Its fields never change while it can be found.
type mr struct {
	ctx    *context
	pd     *pd
	mem    guestmem.Memory
	key    uint32
	access hostverbs.AccessFlags
	dma    bool
	// dead belongs to control calls.
	dead                  bool
	start, length, offset uint64
}

// RegMR registers memory. Remote write access needs local write access, as everywhere.
func (c *context) RegMR(p hostverbs.PD, attr hostverbs.MRAttr) (hostverbs.MR, error) {
	d, err := c.ownPD(p)
	if err != nil {
		return nil, c.errf("register memory: %w", err)
	}
	if err := checkMR(&attr); err != nil {
		return nil, c.errf("register memory %#x+%#x: %w", attr.Start, attr.Length, err)
	}
	key, grown, err := c.keys.reserve(c.limits.MaxMR)
	if err != nil {
		return nil, c.errf("register memory: %w", err)
	}
	m := &mr{
		ctx: c, pd: d, mem: attr.Memory, key: key, access: attr.Access, dma: attr.DMA,
		start: attr.Start, length: attr.Length, offset: attr.Offset,
	}
	d.users++
	c.mrs[m] = struct{}{}
	c.pl.owner.Do(func() {
		if grown != nil {
			c.keys.slots = grown
		}
		c.keys.set(m)
	})
	return m, nil
}

// checkMR looks at what a registration asks for.
func checkMR(a *hostverbs.MRAttr) error {
	if a.Memory == nil {
		return fmt.Errorf("no memory: %w", unix.EINVAL)
	}
	const writable = hostverbs.AccessRemoteWrite | hostverbs.AccessRemoteAtomic
	if a.Access&writable != 0 && a.Access&hostverbs.AccessLocalWrite == 0 {
		return fmt.Errorf("access %s needs LOCAL_WRITE: %w", a.Access, unix.EINVAL)
	}
	if a.DMA {
		if a.Start != 0 || a.Offset != 0 {
			return fmt.Errorf("a DMA region starts at 0: %w", unix.EINVAL)
		}
		return nil
	}
	if a.Length == 0 || a.Length > maxMRSize {
		return fmt.Errorf("length must be 1 to %#x: %w", uint64(maxMRSize), unix.EINVAL)
	}
	if a.Start > math.MaxUint64-a.Length || a.Offset > math.MaxUint64-a.Length {
		return fmt.Errorf("the region wraps around: %w", unix.EINVAL)
	}
	if p, ok := a.Memory.(*guestmem.Pages); ok && (a.Offset > p.Len() || a.Length > p.Len()-a.Offset) {
		return fmt.Errorf("the region is longer than its %#x bytes of memory: %w", p.Len(), unix.EINVAL)
	}
	return nil
}

// LKey returns the local key.
func (m *mr) LKey() uint32 { return m.key }

// RKey returns the remote key: the local one, or for a DMA region 0, which no region ever has.
func (m *mr) RKey() uint32 {
	if m.dma {
		return 0
	}
	return m.key
}

// Dereg removes the region. A message under way that still needs it fails.
func (m *mr) Dereg() error {
	if m.dead {
		return m.ctx.errf("deregister memory: it is not registered: %w", unix.EINVAL)
	}
	m.dead = true
	m.ctx.pl.owner.Do(func() { m.ctx.keys.unset(m) })
	m.ctx.keys.release(m.key)
	m.pd.users--
	delete(m.ctx.mrs, m)
	return nil
}

// local finds n bytes at addr for a local key: WCLocProtErr if they are not in a region of the protection domain that
// allows need.
func (t *keyTable) local(key uint32, d *pd, addr, n uint64, need hostverbs.AccessFlags) (span, hostverbs.WCStatus) {
	m := t.find(key)
	if m == nil || m.pd != d || m.access&need != need {
		return span{}, hostverbs.WCLocProtErr
	}
	if m.dma {
		if n > math.MaxUint64-addr {
			return span{}, hostverbs.WCLocProtErr
		}
		return span{m.mem, addr}, hostverbs.WCSuccess
	}
	off, ok := m.within(addr, n)
	if !ok {
		return span{}, hostverbs.WCLocProtErr
	}
	return span{m.mem, off}, hostverbs.WCSuccess
}

// remote finds n bytes at addr for a remote key, or reports that there is no right to them.
func (t *keyTable) remote(key uint32, d *pd, addr, n uint64, need hostverbs.AccessFlags) (span, bool) {
	m := t.find(key)
	if m == nil || m.dma || m.pd != d || m.access&need != need {
		return span{}, false
	}
	off, ok := m.within(addr, n)
	return span{m.mem, off}, ok
}

// within translates n bytes at addr to an offset in the region's memory. It subtracts only, so that nothing wraps.
func (m *mr) within(addr, n uint64) (uint64, bool) {
	if addr < m.start {
		return 0, false
	}
	in := addr - m.start
	if in > m.length || n > m.length-in {
		return 0, false
	}
	return m.offset + in, true
}
