// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/hostverbs/gsi"
)

// context is the engine as one guest sees it. Control calls come one at a time, so that what belongs to them needs no
// lock.
type context struct {
	eng    *Engine
	pl     *poller
	guest  string
	limits hostverbs.Limits

	keys keyTable
	// gids is read by the owner's thread and written there.
	gids []gidEntry
	// down says that the port is down. Owner's thread.
	down bool
	// reachable are the guest's queue pairs by the number that peers address, but for the GSI's; gsi is that one. They belong to
	// the owner's thread, too.
	reachable map[uint32]*qp
	gsi       *qp
	// mads says how many management datagrams the guest may send, over all its contexts. It belongs to the owner's thread.
	mads *gsi.Pace
	// waiting are the guest's queue pairs that wait for a turn, turn the guest's place among the guests that have such.
	// They belong to the owner's thread.
	waiting list[*qp]
	turn    links[*context]
	// away is how many messages of its queue pairs are with other owners, of those that are not forsaken; strays says that
	// others may still be at work on what is, and forsaken are those that have been lent something. withdrawn counts regions
	// that were taken away: it is written by the owner's thread and read by all. visits are what the guest has sent to each
	// poller.
	away      int
	strays    bool
	forsaken  []*parcel
	withdrawn atomic.Uint64
	visits    [maxPollers]visitor

	// What follows belongs to control calls.
	qps    map[uint32]*qp // by number
	mrs    map[*mr]struct{}
	npd    int
	ncq    int
	nsrq   int
	closed bool
	// together: Together waits for other owners.
	together bool
}

// OpenContext opens the engine for a guest.
func (pl *poller) OpenContext(cfg hostverbs.ContextConfig) (hostverbs.Context, error) {
	if cfg.GIDTableLen < 1 || cfg.GIDTableLen > maxGIDs {
		return nil, fmt.Errorf("guest %q: GID table of %d entries (1 to %d allowed): %w",
			cfg.Guest, cfg.GIDTableLen, maxGIDs, unix.EINVAL)
	}
	pl.eng.mu.Lock()
	defer pl.eng.mu.Unlock()
	if pl.closed {
		return nil, fmt.Errorf("guest %q: the poller is closed: %w", cfg.Guest, unix.ENODEV)
	}
	pl.contexts++
	return &context{
		eng: pl.eng, pl: pl, guest: cfg.Guest,
		limits: hostverbs.Limits{
			MaxQP:  bound(cfg.Limits.MaxQP, maxQP),
			MaxCQ:  bound(cfg.Limits.MaxCQ, maxCQ),
			MaxMR:  bound(cfg.Limits.MaxMR, maxMR),
			MaxPD:  bound(cfg.Limits.MaxPD, maxPD),
			MaxSRQ: bound(cfg.Limits.MaxSRQ, maxSRQ),
		},
		mads:      pl.paces.Of(cfg.Guest),
		gids:      make([]gidEntry, cfg.GIDTableLen),
		reachable: make(map[uint32]*qp),
		qps:       make(map[uint32]*qp),
		mrs:       make(map[*mr]struct{}),
	}, nil
}

// bound returns the smaller of a guest's limit (0: none) and the engine's.
func bound(guest, engine int) int {
	if guest <= 0 || guest > engine {
		return engine
	}
	return guest
}

// errf makes an error that names the guest.
func (c *context) errf(format string, args ...any) error {
	return fmt.Errorf("guest %q: "+format, append([]any{c.guest}, args...)...)
}

// Together runs control calls of which the last waits for other owners for all of them.
func (c *context) Together(fn func()) {
	c.together = true
	defer func() { c.together = false }() // if fn panics
	fn()
	c.together = false
	c.control(func() {})
}

// control runs fn for a control call on the owner's thread. It returns when other owners are not at work any more on what fn
// has made void, unless Together sees to that.
func (c *context) control(fn func()) {
	if c.together {
		c.pl.owner.Do(fn)
		return
	}
	var wait bool
	var gone []*parcel
	c.pl.owner.Do(func() {
		fn()
		wait, c.strays = c.strays, false
		gone, c.forsaken = c.forsaken, nil
	})
	if !wait {
		return
	}
	c.eng.tell(c.pl, func(*poller) {})
	if len(gone) > 0 {
		c.pl.owner.Do(func() {
			for _, x := range gone {
				x.recover()
			}
		})
	}
}

// withdraw makes void what messages that are away know of the guest's memory: a region of it is gone. Owner's thread, within
// control.
func (c *context) withdraw() {
	c.withdrawn.Add(1)
	c.strays = c.strays || c.away > 0
}

// controlBatch is how many queue pairs a control call changes between two visits to others.
const controlBatch = 64

// Close destroys what the guest still has. Peers of its queue pairs see loss.
func (c *context) Close() error {
	if c.closed {
		return c.errf("close context: it is closed: %w", unix.EINVAL)
	}
	c.closed = true
	addresses := slices.Clone(c.gids)
	c.unsetGIDs()
	// From here on nothing arrives, and nothing that is sent. The keys go last: nobody is told of an error.
	for batch := range slices.Chunk(slices.Collect(maps.Values(c.qps)), controlBatch) {
		c.pl.owner.Do(func() {
			for _, q := range batch {
				q.detach()
			}
		})
	}
	c.pl.owner.Do(func() {
		c.keys.slots = nil
		if c.pl.sender == c {
			c.pl.sender = nil
		}
	})
	c.eng.tell(c.pl, func(pl *poller) { pl.forget(c) })
	for _, q := range c.qps {
		q.gone = true
		c.eng.giveQPN(q.num)
	}
	for m := range c.mrs {
		m.dead = true
	}
	c.qps, c.mrs = nil, nil
	c.eng.mu.Lock()
	defer c.eng.mu.Unlock()
	for _, g := range addresses {
		delete(c.eng.holders, g.gid)
	}
	c.pl.contexts--
	return nil
}

// pd is a protection domain. Its fields belong to control calls; the data path compares pointers.
type pd struct {
	ctx   *context
	users int
	dead  bool
}

// AllocPD allocates a protection domain.
func (c *context) AllocPD() (hostverbs.PD, error) {
	if c.closed {
		return nil, c.errf("allocate PD: the context is closed: %w", unix.ENODEV)
	}
	if c.npd >= c.limits.MaxPD {
		return nil, c.errf("allocate PD: %d protection domains, the limit: %w", c.npd, unix.ENOMEM)
	}
	c.npd++
	return &pd{ctx: c}, nil
}

// Dealloc frees the protection domain.
func (d *pd) Dealloc() error {
	if d.dead || d.ctx.closed {
		return d.ctx.errf("deallocate PD: it is not allocated: %w", unix.EINVAL)
	}
	if d.users > 0 {
		return d.ctx.errf("deallocate PD: %d objects use it: %w", d.users, unix.EBUSY)
	}
	d.dead = true
	d.ctx.npd--
	return nil
}

// ownPD returns the engine's object behind p if it is this guest's and alive.
func (c *context) ownPD(p hostverbs.PD) (*pd, error) {
	if c.closed {
		return nil, fmt.Errorf("the context is closed: %w", unix.ENODEV)
	}
	d, ok := p.(*pd)
	if !ok || d.ctx != c || d.dead {
		return nil, fmt.Errorf("not a protection domain of this context: %w", unix.EINVAL)
	}
	return d, nil
}

// cq stands for a completion queue: completions go to the device, so it only has to exist. Its fields belong to
// control calls.
type cq struct {
	ctx   *context
	users int
	dead  bool
}

// CreateCQ creates a completion queue.
func (c *context) CreateCQ(cqe int) (hostverbs.CQ, error) {
	if c.closed {
		return nil, c.errf("create CQ: the context is closed: %w", unix.ENODEV)
	}
	if cqe < 1 || cqe > maxCQE {
		return nil, c.errf("create CQ of %d entries (1 to %d allowed): %w", cqe, maxCQE, unix.EINVAL)
	}
	if c.ncq >= c.limits.MaxCQ {
		return nil, c.errf("create CQ: %d completion queues, the limit: %w", c.ncq, unix.ENOMEM)
	}
	c.ncq++
	return &cq{ctx: c}, nil
}

// Destroy frees the completion queue.
func (q *cq) Destroy() error {
	if q.dead || q.ctx.closed {
		return q.ctx.errf("destroy CQ: it does not exist: %w", unix.EINVAL)
	}
	if q.users > 0 {
		return q.ctx.errf("destroy CQ: %d queues use it: %w", q.users, unix.EBUSY)
	}
	q.dead = true
	q.ctx.ncq--
	return nil
}

// ownCQ returns the engine's object behind q if it is this guest's and alive.
func (c *context) ownCQ(q hostverbs.CQ) (*cq, error) {
	s, ok := q.(*cq)
	if !ok || s.ctx != c || s.dead {
		return nil, fmt.Errorf("not a completion queue of this context: %w", unix.EINVAL)
	}
	return s, nil
}
