// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// guestSRQ is a shared receive queue as its driver uses it.
type guestSRQ struct {
	*object
	g      *guest
	handle uint32
	n      uint32
	prod   uint32
	engine *fakeSRQ
}

// srqSGE is how many elements a receive of these queues has at most.
const srqSGE = 2

// srqReq is a good request for a shared receive queue of n requests.
func (g *guest) srqReq(pd, n, sge uint32) *abi.CmdCreateSRQReq {
	stride, _ := abi.RecvWQEStride(sge)
	pages := uint32(abi.SRQPages(n, stride))
	return &abi.CmdCreateSRQReq{
		Hdr: hdr(abi.CmdCreateSRQ), PDirDMA: g.object(int(pages)).pdir, PDHandle: pd, NChunks: pages,
		Attrs: abi.SRQAttr{MaxWR: n, MaxSGE: sge},
	}
}

func (g *guest) createSRQ(pd, n uint32) *guestSRQ {
	g.t.Helper()
	stride, _ := abi.RecvWQEStride(srqSGE)
	pages := uint32(abi.SRQPages(n, stride))
	s := &guestSRQ{object: g.object(int(pages)), g: g, n: n}
	var r abi.CmdCreateSRQResp
	g.must(&abi.CmdCreateSRQReq{
		Hdr: hdr(abi.CmdCreateSRQ), PDirDMA: s.pdir, PDHandle: pd, NChunks: pages, Attrs: abi.SRQAttr{MaxWR: n, MaxSGE: srqSGE},
	}, &r)
	s.handle = r.SRQN
	for _, e := range g.eng.srqs() {
		if e.h == hostverbs.SRQHandler(s.dev()) {
			s.engine = e
		}
	}
	return s
}

func (s *guestSRQ) dev() *sharedReceiveQueue { return s.g.dev.srqs.get(s.handle) }

func (s *guestSRQ) destroyReq() *abi.CmdDestroySRQReq {
	return &abi.CmdDestroySRQReq{Hdr: hdr(abi.CmdDestroySRQ), SRQHandle: s.handle}
}

// post publishes a receive.
func (s *guestSRQ) post(id uint64, sges ...abi.SGE) {
	s.t.Helper()
	s.postHdr(abi.RecvWQEHdr{WRID: id, NumSGE: uint32(len(sges))}, sges...)
}

func (s *guestSRQ) postHdr(h abi.RecvWQEHdr, sges ...abi.SGE) {
	s.t.Helper()
	b := make([]byte, abi.RecvWQEHdrSize+len(sges)*abi.SGESize)
	h.Encode(b)
	for i := range sges {
		sges[i].Encode(b[abi.RecvWQEHdrSize+i*abi.SGESize:])
	}
	stride, _ := abi.RecvWQEStride(srqSGE)
	s.write(s.at(abi.PageSize+uint64(s.prod&(s.n-1))*uint64(stride)), b)
	s.prod = (s.prod + 1) & (2*s.n - 1)
	s.store32(s.at(rxProdTail), s.prod)
}

// ring stores the queue's doorbell in a page.
func (s *guestSRQ) ring(page uint32) { s.g.ring(page, abi.UARSRQOffset, s.handle|abi.UARSRQRecv) }

// pull takes a receive as the engine does.
func (s *guestSRQ) pull() (hostverbs.RecvWR, bool, error) {
	var wr hostverbs.RecvWR
	ok, err := s.engine.h.PullRecv(&wr)
	return wr, ok, err
}

// withSRQ has a queue pair receive from a shared queue.
func withSRQ(s *guestSRQ) func(*abi.CmdCreateQPReq) {
	return func(r *abi.CmdCreateQPReq) {
		r.IsSRQ, r.SRQHandle, r.MaxRecvWR, r.MaxRecvSGE = 1, s.handle, 0, 0
	}
}

// sharing returns a shared receive queue of a process with two queue pairs in RTS that use it, and their completion queue.
func (g *guest) sharing(page uint64) (s *guestSRQ, one, two *guestQP, c *guestCQ) {
	g.t.Helper()
	ctx, pd := g.user(page)
	c = g.createCQ(ctx, 16)
	s = g.createSRQ(pd, 8)
	one, two = g.createQP(pd, c, c, withSRQ(s)), g.createQP(pd, c, c, withSRQ(s))
	one.modify(hostverbs.StateRTS)
	two.modify(hostverbs.StateRTS)
	return s, one, two, c
}
