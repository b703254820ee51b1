// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// srq is a shared receive queue. The receives are the device's; here are the domain that their keys belong to, and the limit.
type srq struct {
	// Set when it is created.
	ctx           *context
	pd            *pd
	h             hostverbs.SRQHandler
	maxWR, maxSGE uint32

	// users and dead belong to control calls.
	users int
	dead  bool

	// limit is the number of receives below which the event is due, 0 if none is. Owner's thread.
	limit uint32
}

// CreateSRQ creates a shared receive queue.
func (c *context) CreateSRQ(p hostverbs.PD, attr hostverbs.SRQAttr, h hostverbs.SRQHandler) (hostverbs.SRQ, error) {
	d, err := c.ownPD(p)
	if err != nil {
		return nil, c.errf("create SRQ: %w", err)
	}
	switch {
	case attr.MaxWR < 1 || attr.MaxWR > maxSRQWR:
		return nil, c.errf("create SRQ of %d requests (1 to %d allowed): %w", attr.MaxWR, maxSRQWR, unix.EINVAL)
	case attr.MaxSGE > hostverbs.MaxSGE:
		return nil, c.errf("create SRQ with requests of %d SGEs (at most %d): %w", attr.MaxSGE, hostverbs.MaxSGE, unix.EINVAL)
	case h == nil:
		return nil, c.errf("create SRQ: no handler: %w", unix.EINVAL)
	case c.nsrq >= c.limits.MaxSRQ:
		return nil, c.errf("create SRQ: %d shared receive queues, the limit: %w", c.nsrq, unix.ENOMEM)
	}
	c.nsrq++
	d.users++
	return &srq{ctx: c, pd: d, h: h, maxWR: attr.MaxWR, maxSGE: attr.MaxSGE}, nil
}

// ownSRQ returns the engine's object behind s if it is this guest's and alive, nil for none.
func (c *context) ownSRQ(s hostverbs.SRQ) (*srq, error) {
	if s == nil {
		return nil, nil
	}
	x, ok := s.(*srq)
	if !ok || x.ctx != c || x.dead {
		return nil, fmt.Errorf("not a shared receive queue of this context: %w", unix.EINVAL)
	}
	return x, nil
}

// gone is the error of a queue that does not exist.
func (s *srq) gone(what string) error {
	if s.dead || s.ctx.closed {
		return s.ctx.errf("%s SRQ: it does not exist: %w", what, unix.EINVAL)
	}
	return nil
}

// Modify arms the limit event, or disarms it.
func (s *srq) Modify(attr *hostverbs.SRQAttr, mask hostverbs.SRQAttrMask) error {
	if err := s.gone("modify"); err != nil {
		return err
	}
	switch {
	case mask&^(hostverbs.SRQMaxWR|hostverbs.SRQLimit) != 0 || mask == 0:
		return s.ctx.errf("modify SRQ with mask %#x: %w", uint32(mask), unix.EINVAL)
	case mask&hostverbs.SRQMaxWR != 0:
		return s.ctx.errf("modify SRQ: it cannot be resized: %w", unix.EOPNOTSUPP)
	case attr.Limit > s.maxWR:
		return s.ctx.errf("modify SRQ of %d requests: a limit of %d: %w", s.maxWR, attr.Limit, unix.EINVAL)
	}
	s.ctx.pl.owner.Do(func() {
		s.limit = attr.Limit
		s.checkLimit()
	})
	return nil
}

// Query returns the attributes as they are now.
func (s *srq) Query() (a hostverbs.SRQAttr, err error) {
	if err := s.gone("query"); err != nil {
		return a, err
	}
	a.MaxWR, a.MaxSGE = s.maxWR, s.maxSGE
	s.ctx.pl.owner.Do(func() { a.Limit = s.limit })
	return a, nil
}

// Destroy frees the shared receive queue. No queue pair is left that could take a receive.
func (s *srq) Destroy() error {
	if err := s.gone("destroy"); err != nil {
		return err
	}
	if s.users > 0 {
		return s.ctx.errf("destroy SRQ: %d queue pairs use it: %w", s.users, unix.EBUSY)
	}
	s.dead = true
	s.pd.users--
	s.ctx.nsrq--
	return nil
}

// pullRecv takes the oldest receive of the queue that the queue pair receives from. Owner's thread.
func (q *qp) pullRecv() (bool, error) {
	if q.srq == nil {
		return q.h.PullRecv(&q.rq.wr)
	}
	ok, err := q.srq.h.PullRecv(&q.rq.wr)
	if ok {
		q.srq.checkLimit()
	}
	return ok, err
}

// checkLimit reports the event if it is due, and disarms it. Owner's thread.
func (s *srq) checkLimit() {
	if s.limit == 0 || s.h.Posted() >= s.limit {
		return
	}
	s.limit = 0
	s.h.Event(hostverbs.EventSRQLimitReached)
}
