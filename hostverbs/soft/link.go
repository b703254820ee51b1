// SPDX-License-Identifier: Apache-2.0

package soft

// SetLink takes the guest's port down, or up again. While it is down nobody finds the guest by its addresses, and its own queue
// pairs find nobody.
func (c *context) SetLink(up bool) {
	if c.closed {
		return
	}
	c.announce(func() { c.down = !up }, func(pl *poller) { pl.setLink(c) })
	if !up {
		c.forgetPeers()
	}
}

// setLink keeps the poller's directory in step with the state of a guest's port. Owner's thread.
func (pl *poller) setLink(c *context) {
	for _, g := range c.gids {
		switch {
		case !g.bound:
		case c.down:
			delete(pl.gids, g.gid)
		default:
			pl.gids[g.gid] = c
		}
	}
	pl.gidEpoch++ // what queue pairs know about their peers has to be looked up again
}
