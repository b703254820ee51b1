// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"errors"
	"sync"

	"github.com/pvrdmad/pvrdmad/internal/testguest/driver"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
)

// SRQ is a shared receive queue.
type SRQ struct {
	PD     *PD
	Handle uint32

	mem *object
	rq  workQueue
}

// CreateSRQ makes a shared receive queue. The provider allocates twice the memory that it needs.
func (p *PD) CreateSRQ(maxWR, maxSGE, limit uint32) (*SRQ, error) {
	c := p.Ctx
	maxWR = roundUp(maxWR)
	stride := int(roundUp(uint32(c.f.rqSize + c.f.sgeSize*int(maxSGE))))
	area := (int(maxWR)*stride + ram.PageSize - 1) / ram.PageSize * ram.PageSize
	mem, err := c.newObject(ram.PageSize + 2*area)
	if err != nil {
		return nil, err
	}
	s := &SRQ{PD: p, mem: mem, rq: workQueue{
		mu: &sync.Mutex{}, n: maxWR, maxSGE: maxSGE, stride: stride, mem: mem.bufs[0].Bytes()[ram.PageSize:],
		ring: driver.NewRing(c.l, mem.bufs[0].Bytes()[:ram.PageSize], "rx"),
	}}
	s.Handle, err = c.Dev.CreateSRQ(driver.SRQParams{
		PDir: mem.dir.Addr(), PD: p.Handle, Chunks: uint32(mem.pages()), MaxWR: maxWR, MaxSGE: maxSGE, Limit: limit,
	})
	if err != nil {
		return nil, errors.Join(err, mem.free())
	}
	return s, nil
}

// PostRecv gives a receive to the queue.
func (s *SRQ) PostRecv(wrs ...RecvWR) error {
	s.rq.mu.Lock()
	defer s.rq.mu.Unlock()
	posted := 0
	var err error
	for _, wr := range wrs {
		if err = s.PD.Ctx.writeRecv(&s.rq, wr); err != nil {
			break
		}
		posted++
	}
	if posted > 0 {
		err = errors.Join(err, s.RingRecv())
	}
	return err
}

// RingRecv rings the queue's doorbell.
func (s *SRQ) RingRecv() error {
	return s.PD.Ctx.Ring(s.PD.Ctx.f.bell.srq, s.Handle|s.PD.Ctx.f.bell.srqRecv)
}

// Ring is the queue's indices, for tests that look at them or spoil them.
func (s *SRQ) Ring() driver.Ring { return s.rq.ring }

// Arm asks for an event when fewer receives than limit are posted; 0 asks for none.
func (s *SRQ) Arm(limit uint32) error { return s.PD.Ctx.Dev.ModifySRQ(s.Handle, limit) }

// Limit is what the device says the limit is.
func (s *SRQ) Limit() (uint32, error) {
	v, err := s.PD.Ctx.Dev.QuerySRQ(s.Handle)
	if err != nil {
		return 0, err
	}
	return v.Get32("srq_limit"), nil
}

// Destroy ends the queue.
func (s *SRQ) Destroy() error {
	return errors.Join(s.PD.Ctx.Dev.DestroySRQ(s.Handle), s.mem.free())
}
