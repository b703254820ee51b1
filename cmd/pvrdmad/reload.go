// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"slices"

	"github.com/pvrdmad/pvrdmad/internal/config"
)

// reloader reads the configuration again when it is asked to.
type reloader struct {
	load func() (*config.Config, error)
	asks <-chan os.Signal
}

// run calls load and then d.reload for each ask until ctx ends. What cannot be read changes nothing.
func (r *reloader) run(ctx context.Context, d *daemon) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.asks:
		}
		c, err := r.load()
		if err != nil {
			d.log.Error("the configuration cannot be read, all stays as it is", "error", err)
			continue
		}
		d.reload(c)
	}
}

// reload takes the ports of guests up or down as the configuration says now. Everything else of it is for the next start.
func (d *daemon) reload(c *config.Config) {
	changed := 0
	var later []string
	for _, g := range d.guests {
		now, ok := c.Guest(g.name)
		if !ok {
			later = append(later, g.name)
			continue
		}
		if now.Link != g.cfg.Link {
			g.cfg.Link = now.Link
			g.function.SetLink(now.Link == config.LinkUp)
			d.log.Info("link changed", "guest", g.name, "link", string(now.Link))
			changed++
		}
		if !now.Equal(&g.cfg) {
			later = append(later, g.name)
		}
	}
	for i := range c.Guests {
		name := string(c.Guests[i].Name)
		if !slices.ContainsFunc(d.guests, func(g *guest) bool { return g.name == name }) {
			later = append(later, name)
		}
	}
	var rest []any
	if keys := d.cfg.Changed(c); len(keys) != 0 {
		rest = append(rest, "keys", keys)
	}
	if len(later) != 0 {
		slices.Sort(later)
		rest = append(rest, "guests", later)
	}
	if len(rest) != 0 {
		d.log.Warn("only links follow the configuration at once, restart the daemon for the rest", rest...)
	}
	d.log.Info("configuration read again", "links_changed", changed)
}
