// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// gidEntry is an entry of a guest's GID table.
type gidEntry struct {
	gid   hostverbs.GID
	typ   hostverbs.GIDType
	bound bool
}

// BindGID makes gid the guest's address number index, in place of what is there.
func (c *context) BindGID(index int, gid hostverbs.GID, typ hostverbs.GIDType) error {
	if c.closed {
		return c.errf("bind GID %s: the context is closed: %w", gid, unix.ENODEV)
	}
	if err := c.checkGID(index, gid, typ); err != nil {
		return c.errf("bind GID %s as number %d: %w", gid, index, err)
	}
	if err := c.eng.holdGID(gid, c); err != nil {
		return c.errf("bind GID %s as number %d: %w", gid, index, err)
	}
	old := c.gids[index]
	c.changeGID(index, gidEntry{gid, typ, true})
	c.dropGID(old)
	return nil
}

// UnbindGID removes the address number index if it is gid.
func (c *context) UnbindGID(index int, gid hostverbs.GID) error {
	if index < 0 || index >= len(c.gids) {
		return c.errf("unbind GID %s: number %d of a table of %d: %w", gid, index, len(c.gids), unix.EINVAL)
	}
	old := c.gids[index]
	if !old.bound || old.gid != gid {
		return c.errf("unbind GID %s: it is not number %d: %w", gid, index, unix.ENOENT)
	}
	c.changeGID(index, gidEntry{})
	c.dropGID(old)
	return nil
}

// checkGID looks at what a bind asks for.
func (c *context) checkGID(index int, gid hostverbs.GID, typ hostverbs.GIDType) error {
	switch {
	case index < 0 || index >= len(c.gids):
		return fmt.Errorf("the table has %d entries: %w", len(c.gids), unix.EINVAL)
	case typ != hostverbs.GIDTypeRoCEv1 && typ != hostverbs.GIDTypeRoCEv2:
		return fmt.Errorf("%s: %w", typ, unix.EINVAL)
	case !gid.Unicast():
		return fmt.Errorf("not the address of one port: %w", unix.EINVAL)
	}
	return nil
}

// holdGID reserves a GID for a guest. It belongs to the guest that bound it first.
func (e *Engine) holdGID(gid hostverbs.GID, c *context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if holder := e.holders[gid]; holder != nil && holder != c {
		return fmt.Errorf("guest %q has it: %w", holder.guest, unix.EADDRINUSE)
	}
	e.holders[gid] = c
	return nil
}

// dropGID gives the GID of an entry back, unless the guest has it under another number too.
func (c *context) dropGID(old gidEntry) {
	if !old.bound || c.has(old.gid) {
		return
	}
	c.eng.mu.Lock()
	defer c.eng.mu.Unlock()
	delete(c.eng.holders, old.gid)
}

// has says whether the guest has bound gid.
func (c *context) has(gid hostverbs.GID) bool {
	for i := range c.gids {
		if c.gids[i].bound && c.gids[i].gid == gid {
			return true
		}
	}
	return false
}

// forgetPeers has the guest's queue pairs look their peers up again, since an address is gone by which those would find them:
// see unlearn. Until then they look before they send, but keep who is gone in memory.
func (c *context) forgetPeers() {
	for batch := range slices.Chunk(slices.Collect(maps.Values(c.qps)), controlBatch) {
		c.pl.owner.Do(func() {
			for _, q := range batch {
				q.sq.to = nil
			}
		})
	}
}

// announce changes something of the guest's addresses, and tells all pollers.
func (c *context) announce(change func(), tell func(pl *poller)) {
	c.eng.directory.Lock()
	defer c.eng.directory.Unlock()
	c.pl.owner.Do(func() {
		change()
		tell(c.pl)
	})
	c.eng.tell(c.pl, tell)
}

// changeGID writes an entry, and tells all pollers.
func (c *context) changeGID(index int, g gidEntry) {
	old := c.gids[index]
	c.announce(func() { c.gids[index] = g }, func(pl *poller) { pl.learn(c, old, g) })
	if old.bound && !c.has(old.gid) {
		c.forgetPeers()
	}
}

// learn keeps the poller's directory in step with a guest's table, in which one entry has taken the place of another. Owner's
// thread.
func (pl *poller) learn(c *context, old, g gidEntry) {
	if old.bound && !c.has(old.gid) {
		delete(pl.gids, old.gid)
	}
	if g.bound && !c.down {
		pl.gids[g.gid] = c
	}
	pl.gidEpoch++ // what queue pairs know about their peers has to be looked up again
}

// unsetGIDs is changeGID for all entries, to nothing.
func (c *context) unsetGIDs() {
	old := slices.Clone(c.gids)
	c.announce(func() { clear(c.gids) }, func(pl *poller) { pl.unlearn(old) })
}

// unlearn forgets a guest's addresses. Owner's thread.
func (pl *poller) unlearn(gids []gidEntry) {
	for _, g := range gids {
		if g.bound {
			delete(pl.gids, g.gid)
		}
	}
	pl.gidEpoch++
}
