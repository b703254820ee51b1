// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// mr is a memory region. Its fields never change while it can be found, but for those that a fast registration gives it:
// they belong to the owner's thread.
type mr struct {
	ctx *context
	pd  *pd
	// id is the key that the region was given, key the one that it has: they differ in the low byte, or key is 0 while a
	// region for fast registration is free.
	id, key uint32
	mem     guestmem.Memory
	access  hostverbs.AccessFlags
	dma     bool
	// fast is what a region for fast registration has besides, nil for all others.
	fast *fastMR
	// dead belongs to control calls.
	dead                  bool
	start, length, offset uint64
}

// RegMR registers memory.
func (c *context) RegMR(p hostverbs.PD, attr hostverbs.MRAttr) (hostverbs.MR, error) {
	d, err := c.ownPD(p)
	if err != nil {
		return nil, c.errf("register memory: %w", err)
	}
	if err := checkMR(&attr); err != nil {
		return nil, c.errf("register memory %#x+%#x: %w", attr.Start, attr.Length, err)
	}
	m := &mr{
		ctx: c, pd: d, mem: attr.Memory, access: attr.Access, dma: attr.DMA,
		start: attr.Start, length: attr.Length, offset: attr.Offset,
	}
	if err := c.addMR(m); err != nil {
		return nil, c.errf("register memory: %w", err)
	}
	return m, nil
}

// addMR gives a region its key, and makes it findable.
func (c *context) addMR(m *mr) error {
	key, grown, err := c.keys.reserve(c.limits.MaxMR, m.fast != nil)
	if err != nil {
		return err
	}
	m.id = key
	if m.fast == nil {
		m.key = key
	} else {
		m.fast.last = key
	}
	m.pd.users++
	c.mrs[m] = struct{}{}
	c.pl.owner.Do(func() {
		if grown != nil {
			c.keys.slots = grown
		}
		c.keys.set(m)
	})
	return nil
}

// coherent says whether rights go together: who may write from afar needs local write access, as everywhere.
func coherent(a hostverbs.AccessFlags) bool {
	const writable = hostverbs.AccessRemoteWrite | hostverbs.AccessRemoteAtomic
	return a&writable == 0 || a&hostverbs.AccessLocalWrite != 0
}

// checkMR looks at what a registration asks for.
func checkMR(a *hostverbs.MRAttr) error {
	if a.Memory == nil {
		return fmt.Errorf("no memory: %w", unix.EINVAL)
	}
	if !coherent(a.Access) {
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
func (m *mr) LKey() uint32 { return m.id }

// RKey returns the remote key: the local one, or for a DMA region 0, which no region ever has.
func (m *mr) RKey() uint32 {
	if m.dma {
		return 0
	}
	return m.id
}

// Dereg removes the region. A message under way that still needs it fails.
func (m *mr) Dereg() error {
	if m.dead {
		return m.ctx.errf("deregister memory: it is not registered: %w", unix.EINVAL)
	}
	m.dead = true
	m.ctx.control(func() {
		m.ctx.keys.unset(m)
		if m.fast == nil || m.fast.away > 0 {
			m.ctx.withdraw()
		}
		if m.fast != nil {
			m.fast.dropped = false // who ends the region lets go of its pages, too
			m.fast.goOn()
		}
	})
	m.ctx.keys.release(m.id)
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
