// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"fmt"

	"github.com/pvrdmad/pvrdmad/hostverbs"
	"golang.org/x/sys/unix"
)

// fakeSRQ keeps the limit that it is told.
type fakeSRQ struct {
	c     *fakeContext
	pd    *fakePD
	attr  hostverbs.SRQAttr
	h     hostverbs.SRQHandler
	users int
}

func (c *fakeContext) CreateSRQ(pd hostverbs.PD, attr hostverbs.SRQAttr, h hostverbs.SRQHandler) (hostverbs.SRQ, error) {
	s := &fakeSRQ{c: c, pd: pd.(*fakePD), attr: attr, h: h}
	err := c.make("CreateSRQ", "srq", func() any {
		s.pd.users++
		return s
	})
	return s, err
}

func (s *fakeSRQ) Modify(attr *hostverbs.SRQAttr, mask hostverbs.SRQAttrMask) error {
	if err := s.c.e.enter("SRQ.Modify"); err != nil {
		return err
	}
	if mask != hostverbs.SRQLimit {
		return fmt.Errorf("mask %#x: %w", uint32(mask), unix.EOPNOTSUPP)
	}
	s.attr.Limit = attr.Limit
	return nil
}

func (s *fakeSRQ) Query() (hostverbs.SRQAttr, error) { return s.attr, s.c.e.enter("SRQ.Query") }

func (s *fakeSRQ) Destroy() error {
	if err := s.c.end("SRQ.Destroy", s, &s.users); err != nil {
		return err
	}
	s.c.e.mu.Lock()
	defer s.c.e.mu.Unlock()
	s.pd.users--
	return nil
}

// srqs returns the live shared receive queues, in no order.
func (c *fakeContext) srqs() (all []*fakeSRQ) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	for o := range c.live {
		if s, ok := o.(*fakeSRQ); ok {
			all = append(all, s)
		}
	}
	return all
}
