// SPDX-License-Identifier: Apache-2.0

package soft

import "github.com/pvrdmad/pvrdmad/hostverbs"

// pieceCost is what a piece that is contiguous on both sides counts at least, in bytes: to find and check it takes as long
// as to copy so many. A message may be in one-byte pieces on both sides.
const pieceCost = 1 << 10

// budget is what may still be done in a visit.
type budget struct {
	wrs   int    // work requests
	bytes uint64 // payload
}

// crowdedBytes is what a visit moves instead of hostverbs.VisitBytes while more than one guest sends: the others wait for
// less, and a long message takes a few per cent more time. crowdedFor is how long a guest counts as one that sends, in ns.
const (
	crowdedBytes = hostverbs.VisitBytes / 4
	crowdedFor   = 100_000_000
)

// visit is the budget of a visit that begins now.
func (pl *poller) visit() budget {
	b := budget{wrs: hostverbs.VisitWRs, bytes: hostverbs.VisitBytes}
	if pl.now < pl.crowdedUntil {
		b.bytes = crowdedBytes
	}
	return b
}

// sends notes that a guest sends.
func (pl *poller) sends(c *context) {
	if pl.sender == c {
		return
	}
	if pl.sender != nil {
		pl.crowdedUntil = pl.now + crowdedFor
	}
	pl.sender = c
}

// left says whether anything may still be done.
func (b *budget) left() bool { return b.wrs > 0 && b.bytes > 0 }

// moved accounts for a piece of n bytes.
func (b *budget) moved(n uint64) { b.bytes -= min(b.bytes, max(n, pieceCost)) }

// goOn gives the guest's queue pairs that wait one turn each, until the budget is used up. It says whether that brought
// anything on.
func (c *context) goOn(now int64, b *budget) (worked bool) {
	for n := c.waiting.n; n > 0 && c.waiting.n > 0 && b.left(); n-- {
		q := c.waiting.head
		c.pl.active.remove(q)
		b.wrs--
		if q.visit(now, b) {
			worked = true
		}
	}
	return worked
}
