// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// guestCQ is a completion queue as its driver uses it.
type guestCQ struct {
	*object
	g      *guest
	handle uint32
	n      uint32
	cons   uint32
}

func (g *guest) cqReq(ctx, n uint32) *abi.CmdCreateCQReq {
	pages := uint32(abi.CQPages(n))
	return &abi.CmdCreateCQReq{
		Hdr: hdr(abi.CmdCreateCQ), PDirDMA: g.object(int(pages)).pdir, CtxHandle: ctx, CQE: n, NChunks: pages,
	}
}

func (g *guest) createCQ(ctx, n uint32) *guestCQ {
	g.t.Helper()
	pages := uint32(abi.CQPages(n))
	c := &guestCQ{object: g.object(int(pages)), g: g, n: n}
	var r abi.CmdCreateCQResp
	g.must(&abi.CmdCreateCQReq{
		Hdr: hdr(abi.CmdCreateCQ), PDirDMA: c.pdir, CtxHandle: ctx, CQE: n, NChunks: pages,
	}, &r)
	if r.CQE != n {
		g.t.Fatalf("a completion queue of %d entries has %d", n, r.CQE)
	}
	c.handle = r.CQHandle
	return c
}

func (c *guestCQ) dev() *completionQueue { return c.g.dev.cqs.get(c.handle) }

// unread returns how many entries the driver has not taken.
func (c *guestCQ) unread() uint32 { return (c.load32(c.at(rxProdTail)) - c.cons) & (2*c.n - 1) }

// poll takes all entries.
func (c *guestCQ) poll() []abi.CQE {
	c.t.Helper()
	var all []abi.CQE
	for range c.unread() {
		all = append(all, c.take())
	}
	return all
}

// take takes one entry, of which there is one.
func (c *guestCQ) take() abi.CQE {
	c.t.Helper()
	var e abi.CQE
	slot := uint64(c.cons & (c.n - 1))
	c.ok(e.Decode(c.read(c.at(abi.PageSize+slot*abi.CQESize), abi.CQESize)))
	c.cons = (c.cons + 1) & (2*c.n - 1)
	c.store32(c.at(rxConsHead), c.cons)
	return e
}

// ring stores a value in the doorbell word of completion queues, on page 0 by a message.
func (c *guestCQ) ring(page, bits uint32) { c.g.ring(page, abi.UARCQOffset, c.handle|bits) }

// ring stores a doorbell. Page 0 and all pages of a guest without shared pages are messages.
func (g *guest) ring(page, off, v uint32) {
	if page == 0 || g.bells == nil {
		g.dev.Doorbell(page, off, v)
		return
	}
	g.bells.Store32(int(page*abi.UARPageSize+off), v)
}

// guestQP is a queue pair as its driver uses it.
type guestQP struct {
	*object
	g            *guest
	handle, qpn  uint32
	req          abi.CmdCreateQPReq
	engine       *fakeQP
	sprod, rprod uint32
}

// qpReq is a good request for a queue pair of 8 requests each way with 2 elements.
func (g *guest) qpReq(pd uint32, send, recv *guestCQ) *abi.CmdCreateQPReq {
	r := plainQPReq(pd, send, recv)
	g.fit(r)
	return r
}

// plainQPReq is qpReq without the pages.
func plainQPReq(pd uint32, send, recv *guestCQ) *abi.CmdCreateQPReq {
	return &abi.CmdCreateQPReq{
		Hdr: hdr(abi.CmdCreateQP), PDHandle: pd, SendCQHandle: send.handle, RecvCQHandle: recv.handle, MaxSendWR: 8,
		MaxRecvWR: 8, MaxSendSGE: 2, MaxRecvSGE: 2, AccessFlags: abi.AccessLocalWrite, QPType: abi.QPTypeRC,
	}
}

// fit gives a request the pages that its queues need.
func (g *guest) fit(r *abi.CmdCreateQPReq) *object {
	sstride, _ := abi.SendWQEStride(r.MaxSendSGE)
	rstride, _ := abi.RecvWQEStride(r.MaxRecvSGE)
	r.SendChunks = uint16(abi.WQEPages(r.MaxSendWR, sstride))
	r.TotalChunks = 1 + r.SendChunks + uint16(abi.WQEPages(r.MaxRecvWR, rstride))
	o := g.object(int(r.TotalChunks))
	r.PDirDMA = o.pdir
	return o
}

func (g *guest) createQP(pd uint32, send, recv *guestCQ, spoil ...func(*abi.CmdCreateQPReq)) *guestQP {
	g.t.Helper()
	req := plainQPReq(pd, send, recv)
	for _, f := range spoil {
		f(req)
	}
	q := &guestQP{object: g.fit(req), g: g, req: *req}
	var r abi.CmdCreateQPRespV2
	g.must(req, &r)
	q.handle, q.qpn = r.QPHandle, r.QPN
	if min(g.driver, g.dev.Version()) < abi.VersionQPHandle { // such a driver looks no further
		q.handle = r.QPN
	}
	for _, e := range g.eng.qps() {
		if e.num == q.qpn {
			q.engine = e
		}
	}
	return q
}

// rcQP returns a queue pair of a process in RTS, with one completion queue for both sides.
func (g *guest) rcQP(page uint64, cqe uint32) (*guestQP, *guestCQ) {
	g.t.Helper()
	ctx, pd := g.user(page)
	c := g.createCQ(ctx, cqe)
	q := g.createQP(pd, c, c)
	q.modify(hostverbs.StateRTS)
	return q, c
}

// kernelQP is rcQP for the guest kernel.
func (g *guest) kernelQP(cqe uint32) (*guestQP, *guestCQ) {
	g.t.Helper()
	pd := g.createPD(0)
	c := g.createCQ(0, cqe)
	q := g.createQP(pd, c, c)
	q.modify(hostverbs.StateRTS)
	return q, c
}

func (q *guestQP) dev() *queuePair { return q.g.dev.qps.get(q.handle) }

func (q *guestQP) modifyReq(to hostverbs.QPState) *abi.CmdModifyQPReq {
	return &abi.CmdModifyQPReq{
		Hdr: hdr(abi.CmdModifyQP), QPHandle: q.handle, AttrMask: abi.QPMaskState,
		Attrs: abi.QPAttr{QPState: abi.QPState(to)},
	}
}

// modify moves the queue pair; the engine of these tests knows no rules for that.
func (q *guestQP) modify(to hostverbs.QPState) {
	q.t.Helper()
	q.g.must(q.modifyReq(to), nil)
}

func (q *guestQP) destroyReq() *abi.CmdDestroyQPReq {
	return &abi.CmdDestroyQPReq{Hdr: hdr(abi.CmdDestroyQP), QPHandle: q.handle}
}

// sendWQE is the bytes of a send request in its slot.
func sendWQE(h abi.SendWQEHdr, union request, sges ...abi.SGE) []byte {
	b := make([]byte, abi.SendWQEHdrSize+len(sges)*abi.SGESize)
	h.Encode(b)
	if union != nil {
		union.Encode(b[abi.SendWQEWROffset:])
	}
	for i := range sges {
		sges[i].Encode(b[abi.SendWQEHdrSize+i*abi.SGESize:])
	}
	return b
}

// putSend writes a send request into the next slot without publishing it.
func (q *guestQP) putSend(wqe []byte) {
	q.t.Helper()
	stride, _ := abi.SendWQEStride(q.req.MaxSendSGE)
	off := abi.PageSize + uint64(q.sprod&(q.req.MaxSendWR-1))*uint64(stride)
	q.write(q.at(off), wqe)
	q.sprod = (q.sprod + 1) & (2*q.req.MaxSendWR - 1)
}

// postSends publishes plain sends with the given ids.
func (q *guestQP) postSends(ids ...uint64) {
	q.t.Helper()
	for _, id := range ids {
		q.putSend(sendWQE(abi.SendWQEHdr{WRID: id, Opcode: abi.WRSend, SendFlags: abi.SendSignaled}, nil))
	}
	q.publishSends()
}

func (q *guestQP) publishSends() { q.store32(q.at(txProdTail), q.sprod) }

// postRecv publishes a receive request.
func (q *guestQP) postRecv(id uint64, sges ...abi.SGE) {
	q.t.Helper()
	q.postRecvHdr(abi.RecvWQEHdr{WRID: id, NumSGE: uint32(len(sges))}, sges...)
}

func (q *guestQP) postRecvHdr(h abi.RecvWQEHdr, sges ...abi.SGE) {
	q.t.Helper()
	b := make([]byte, abi.RecvWQEHdrSize+len(sges)*abi.SGESize)
	h.Encode(b)
	for i := range sges {
		sges[i].Encode(b[abi.RecvWQEHdrSize+i*abi.SGESize:])
	}
	stride, _ := abi.RecvWQEStride(q.req.MaxRecvSGE)
	off := abi.PageSize*(1+uint64(q.req.SendChunks)) + uint64(q.rprod&(q.req.MaxRecvWR-1))*uint64(stride)
	q.write(q.at(off), b)
	q.rprod = (q.rprod + 1) & (2*q.req.MaxRecvWR - 1)
	q.store32(q.at(rxProdTail), q.rprod)
}

// ring stores the queue pair's doorbell in a page.
func (q *guestQP) ring(page, bits uint32) { q.g.ring(page, abi.UARQPOffset, q.handle|bits) }

// complete makes the engine complete a send.
func (q *guestQP) complete(wc hostverbs.WC) error {
	defer q.g.rig.worker.show()
	return q.engine.h.CompleteSend(&wc)
}

// ids returns the ids of requests.
func ids(wrs []hostverbs.SendWR) []uint64 {
	var x []uint64
	for i := range wrs {
		x = append(x, wrs[i].WRID)
	}
	return x
}
