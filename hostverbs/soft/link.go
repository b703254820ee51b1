// SPDX-License-Identifier: Apache-2.0

package soft

// SetLink takes the guest's port down, or up again. While it is down nobody finds the guest by its addresses, and its own queue
// pairs find nobody.
func (c *context) SetLink(up bool) {
	if c.closed {
		return
	}
	c.pl.owner.Do(func() {
		c.down = !up
		for _, g := range c.gids {
			switch {
			case !g.bound:
			case up:
				c.pl.gids[g.gid] = c
			default:
				delete(c.pl.gids, g.gid)
			}
		}
		c.pl.gidEpoch++ // what queue pairs know about their peers has to be looked up again
	})
}
