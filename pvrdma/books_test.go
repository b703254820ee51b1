// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"github.com/google/go-cmp/cmp"
	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// books is everything that commands add to or take from.
type books struct {
	Contexts, PDs, MRs, CQs, QPs, SRQs uint32
	Attached                           int // entries in the contexts' lists of queues
	Polled                             int
	Pinned                             uint64
	PinnedPages                        int // as guestmem counts them
	Engine                             map[string]int
	GIDs                               map[int]hostverbs.GID
}

func (g *guest) books() books {
	d := g.dev
	b := books{PinnedPages: g.space.Stats().Pinned}
	g.rig.worker.Do(func() {
		b.Contexts, b.PDs, b.MRs, b.CQs, b.QPs = d.contexts.live, d.pds.live, d.mrs.live, d.cqs.live, d.qps.live
		b.SRQs = d.srqs.live
		b.Attached = len(d.kernel.qps) + len(d.kernel.cqs) + len(d.kernel.srqs)
		d.contexts.each(func(c *userContext) { b.Attached += len(c.qps) + len(c.cqs) + len(c.srqs) })
		b.Polled = len(d.polled)
		b.Pinned = d.pinned
	})
	if g.dev.Active() {
		b.Engine, b.GIDs = g.eng.count(), g.eng.boundGIDs()
	}
	return b
}

func (g *guest) sameBooks(before books) {
	g.t.Helper()
	if diff := cmp.Diff(before, g.books()); diff != "" {
		g.t.Errorf("the books have changed (-before +after):\n%s", diff)
	}
}
