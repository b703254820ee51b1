// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// layoutCases are about scatter/gather lists, order and completions.
func layoutCases() []Case {
	return []Case{
		{"scattered lists on both sides keep the order of the bytes", scatteredLists},
		{"entries without length name no memory", emptyEntries},
		{"entries behind the end of a message are not looked at", entriesBehindTheEnd},
		{"requests complete in the order in which they were posted", manyInOrder},
		{"both directions run at the same time", bothDirections},
		{"an unsignalled request completes silently", unsignalled},
		{"a queue that signals everything does", signalsEverything},
		{"a solicited message says so", solicited},
		{"a queue pair can be its own peer", ownPeer},
		{"a DMA region is named by guest addresses", dmaRegion},
	}
}

// piece is part of a region.
type piece struct{ off, n uint64 }

// stride is the room that each piece of a random layout has.
const stride = 4096

// pieces cuts n bytes into at most MaxSGE pieces, some of them empty, and spreads them over a region in no order.
func pieces(r *rand.Rand, n uint64) []piece {
	k := 1 + r.IntN(hostverbs.MaxSGE)
	list := make([]piece, k)
	for i, slot := range r.Perm(hostverbs.MaxSGE)[:k] {
		list[i].off = uint64(slot)*stride + r.Uint64N(64)
		left := n
		if i < k-1 {
			left = r.Uint64N(n + 1)
		}
		list[i].n = min(left, stride-64)
		n -= list[i].n
	}
	return list
}

// gather returns the bytes of the pieces of a region that holds b.
func gather(b []byte, list []piece) []byte {
	var out []byte
	for _, p := range list {
		out = append(out, b[p.off:p.off+p.n]...)
	}
	return out
}

// scatter says that the engine will have written b to the pieces of a region.
func (r *region) scatter(list []piece, b []byte) {
	for _, p := range list {
		n := min(p.n, uint64(len(b)))
		r.expect(p.off, b[:n])
		b = b[n:]
	}
}

// sges names the pieces.
func (r *region) sges(list []piece) []hostverbs.SGE {
	var out []hostverbs.SGE
	for _, p := range list {
		out = append(out, r.sge(p.off, p.n))
	}
	return out
}

func scatteredLists(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := w.pair(a, b, nil)
	const room = hostverbs.MaxSGE * stride
	near := a.register(room, shape{access: everything, start: 0x7f00_0000_0ff1, scatter: true})
	far := b.register(room, shape{access: everything, start: 0x10_0000_0001, scatter: true})
	r := rand.New(rand.NewPCG(42, 42))
	for i := range uint64(100) {
		m := moves()[i%5]
		what := fmt.Sprintf("round %d: %s", i, m.op)
		mine, theirs := near.fill(i, 1, room), far.fill(i, 2, room)
		list := pieces(r, r.Uint64N(40_000))
		data := gather(mine, list)
		req := rdma(i, m.op, far, 11, near.sges(list)...)
		switch {
		case m.op == hostverbs.OpRDMARead:
			near.scatter(list, theirs[11:])
		case m.send:
			to := pieces(r, uint64(len(data))+r.Uint64N(100))
			if got := uint64(len(gather(theirs, to))); got < uint64(len(data)) {
				continue // this layout has no room for the message
			}
			eb.recv(rwr(i, far.sges(to)...))
			far.scatter(to, data)
		default:
			if m.recv {
				eb.recv(rwr(i))
			}
			far.expect(11, data)
		}
		ea.send(req)
		w.settle()
		wc := done(i, m.wc)
		if m.op == hostverbs.OpRDMARead {
			wc.ByteLen = uint32(len(data))
		}
		ea.sends(what, wc)
		eb.dev.received = nil
		w.verify(what)
		if t.Failed() {
			return
		}
	}
}

func emptyEntries(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := w.pair(a, b, nil)
	near, far := a.buffer(100), b.buffer(100)
	data := near.fill(1, 1, 100)
	nothing := hostverbs.SGE{Addr: 0xdead_0000, LKey: 0xdeadbeef}
	eb.recv(rwr(2, nothing, far.sge(0, 10), nothing, far.sge(10, 90), nothing))
	far.expect(0, data)
	ea.send(wr(1, hostverbs.OpSend, nothing, near.sge(0, 40), nothing, nothing, near.sge(40, 60), nothing))
	w.settle()
	ea.sends("send", done(1, hostverbs.WCOpSend))
	eb.recvs("send", hostverbs.WC{WRID: 2, Opcode: hostverbs.WCOpRecv, ByteLen: 100, SrcQP: ea.qp.QPN()})
	w.verify("send")
}

func entriesBehindTheEnd(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := w.pair(a, b, nil)
	near, far := a.buffer(100), b.buffer(100)
	for what, list := range map[string][]hostverbs.SGE{
		"an entry behind the end":    {far.sge(0, 100), {Addr: 1, Length: 1, LKey: 0xdeadbeef}},
		"the rest of an entry":       {far.sge(0, 50), far.sge(50, 1<<31)},
		"the rest of the only entry": {far.sge(0, 101)},
	} {
		eb.recv(rwr(2, list...))
		far.expect(0, near.fill(1, uint64(len(what)), 100))
		ea.send(wr(1, hostverbs.OpSend, near.sge(0, 100)))
		w.settle()
		ea.sends(what, done(1, hostverbs.WCOpSend))
		w.verify(what)
	}
}

func manyInOrder(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := w.pair(a, b, nil)
	const n, size = 200, 3000
	near, far := a.buffer(n*size), b.buffer(n*size)
	mine := near.fill(1, 1, n*size)
	theirs := far.fill(2, 1, n*size)
	var sent, received []hostverbs.WC
	var wrs []hostverbs.SendWR
	for i := range uint64(n) {
		m, off := moves()[i%5], i*size
		r := rdma(i, m.op, far, off, near.sge(off, size))
		wc := done(i, m.wc)
		if m.op == hostverbs.OpRDMARead {
			near.expect(off, theirs[off:off+size])
			wc.ByteLen = size
		} else {
			far.expect(off, mine[off:off+size])
		}
		if m.recv {
			eb.recv(rwr(i, far.sge(off, size)))
			got := hostverbs.WC{WRID: i, Opcode: hostverbs.WCOpRecv, ByteLen: size, SrcQP: ea.qp.QPN()}
			if !m.send {
				got.Opcode = hostverbs.WCOpRecvRDMAWithImm
			}
			if m.imm {
				r.Imm = uint32(i) << 24
				got.Imm, got.Flags = r.Imm, hostverbs.WCWithImm
			}
			received = append(received, got)
		}
		sent, wrs = append(sent, wc), append(wrs, r)
	}
	ea.send(wrs...)
	w.settle()
	ea.sends("all", sent...)
	eb.recvs("all", received...)
	w.verify("all")
}

func bothDirections(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := w.pair(a, b, nil)
	const size = 700_000
	ra, rb := a.buffer(2*size), b.buffer(2*size)
	mine, theirs := ra.fill(1, 1, 2*size), rb.fill(2, 1, 2*size)
	rb.expect(size, mine[:size])
	ra.expect(size, theirs[:size])
	ea.send(rdma(1, hostverbs.OpRDMAWrite, rb, size, ra.sge(0, size)))
	eb.send(rdma(2, hostverbs.OpRDMAWrite, ra, size, rb.sge(0, size)))
	w.settle()
	ea.sends("a to b", done(1, hostverbs.WCOpRDMAWrite))
	eb.sends("b to a", done(2, hostverbs.WCOpRDMAWrite))
	w.verify("both")
}

func unsignalled(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := w.pair(a, b, nil)
	near, far := a.buffer(64), b.buffer(64)
	eb.recv(rwr(9, far.sge(0, 64)))
	far.expect(0, near.fill(1, 1, 64))
	quiet := wr(1, hostverbs.OpSend, near.sge(0, 64))
	quiet.Flags = 0
	ea.send(quiet)
	w.settle()
	ea.sends("unsignalled")
	eb.recvs("unsignalled", hostverbs.WC{WRID: 9, Opcode: hostverbs.WCOpRecv, ByteLen: 64, SrcQP: ea.qp.QPN()})
	w.verify("unsignalled")

	bad := rdma(2, hostverbs.OpRDMAWrite, far, 1, near.sge(0, 64))
	bad.Flags = 0
	ea.send(bad)
	w.settle()
	ea.sends("unsignalled and wrong", failed(2, hostverbs.WCRemAccessErr))
}

func signalsEverything(t testing.TB, env Env) {
	w := newWorld(t, env)
	a := w.guest()
	e := a.newEnd(hostverbs.QPTypeRC, true)
	p := a.newEnd(hostverbs.QPTypeRC, true)
	e.up(e.linkTo(p), hostverbs.StateRTS)
	p.up(p.linkTo(e), hostverbs.StateRTS)
	quiet := wr(1, hostverbs.OpRDMAWrite)
	quiet.Flags = 0
	e.send(quiet)
	w.settle()
	e.sends("unsignalled", done(1, hostverbs.WCOpRDMAWrite))
}

func solicited(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := w.pair(a, b, nil)
	eb.recv(rwr(1), rwr(2))
	loud := wr(1, hostverbs.OpSendWithImm)
	loud.Flags |= hostverbs.SendSolicited
	loud.Imm = 0xf0debc9a
	ea.send(loud, wr(2, hostverbs.OpSend))
	w.settle()
	eb.recvs("two messages",
		hostverbs.WC{
			WRID: 1, Opcode: hostverbs.WCOpRecv, Flags: hostverbs.WCWithImm, Imm: 0xf0debc9a,
			SrcQP: ea.qp.QPN(), Solicited: true,
		},
		hostverbs.WC{WRID: 2, Opcode: hostverbs.WCOpRecv, SrcQP: ea.qp.QPN()})
}

func ownPeer(t testing.TB, env Env) {
	w := newWorld(t, env)
	a := w.guest()
	e := a.newEnd(hostverbs.QPTypeRC, false)
	e.up(e.linkTo(e), hostverbs.StateRTS)
	near, far := a.buffer(5000), a.buffer(5000)
	far.expect(0, near.fill(1, 1, 5000))
	e.recv(rwr(1, far.sge(0, 5000)))
	e.send(wr(2, hostverbs.OpSend, near.sge(0, 5000)))
	w.settle()
	e.sends("to itself", done(2, hostverbs.WCOpSend))
	e.recvs("to itself", hostverbs.WC{WRID: 1, Opcode: hostverbs.WCOpRecv, ByteLen: 5000, SrcQP: e.qp.QPN()})
	w.verify("to itself")

	e.recv(rwr(3, far.sge(0, 1)), rwr(4))
	e.send(wr(5, hostverbs.OpSend, near.sge(0, 2)), wr(6, hostverbs.OpSend))
	w.settle()
	e.sends("too long", failed(5, hostverbs.WCRemInvReqErr), failed(6, hostverbs.WCWRFlushErr))
	e.recvs("too long", failed(3, hostverbs.WCLocLenErr), failed(4, hostverbs.WCWRFlushErr))
}

func dmaRegion(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := w.pair(a, b, nil)
	near, far := a.buffer(3*page), b.buffer(3*page)
	da, db := a.dma(), b.dma()
	n := uint64(2*page + 77)
	far.expect(0, near.fill(1, 1, int(n)))
	// Both lists name the pages themselves: the regions above only reserve them.
	eb.recv(rwr(1, far.bus(db, n)...))
	ea.send(wr(2, hostverbs.OpSend, near.bus(da, n)...))
	w.settle()
	ea.sends("by bus address", done(2, hostverbs.WCOpSend))
	eb.recvs("by bus address", hostverbs.WC{WRID: 1, Opcode: hostverbs.WCOpRecv, ByteLen: uint32(n), SrcQP: ea.qp.QPN()})
	w.verify("by bus address")

	near.expect(0, far.fill(3, 1, int(n)))
	ea.send(rdma(3, hostverbs.OpRDMARead, far, 0, near.bus(da, n)...))
	w.settle()
	ea.sends("read by bus address", hostverbs.WC{WRID: 3, Opcode: hostverbs.WCOpRDMARead, ByteLen: uint32(n)})
	w.verify("read by bus address")
}

// dma registers all of the guest's memory.
func (g *guest) dma() hostverbs.MR {
	g.w.t.Helper()
	m, err := g.ctx.RegMR(g.pd, hostverbs.MRAttr{Memory: g.space, Access: hostverbs.AccessLocalWrite, DMA: true})
	if err != nil {
		g.w.t.Fatalf("register all memory: %v", err)
	}
	return m
}

// bus names the first n bytes of a region by guest addresses and a DMA region's key.
func (r *region) bus(m hostverbs.MR, n uint64) []hostverbs.SGE {
	var out []hostverbs.SGE
	for off := uint64(0); off < n; {
		k := min(page-(r.first+off)%page, n-off)
		out = append(out, hostverbs.SGE{Addr: ramBase + r.at(off), Length: uint32(k), LKey: m.LKey()})
		off += k
	}
	return out
}
