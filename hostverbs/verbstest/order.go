// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// orderCases are about requests that build on each other, and about the longest.
func orderCases() []Case {
	return []Case{
		{"a fenced request sees what those before it have brought", fence},
		{"a message may have 2 GiB", longest},
	}
}

func fence(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	const n = 2*hostverbs.VisitBytes + 1
	near, far, back := a.buffer(n), b.buffer(n), b.buffer(n)
	near.fill(1, 1, n)
	data := far.fill(2, 1, n)
	ea, eb := w.pair(a, b, nil)
	near.expect(0, data)
	back.expect(0, data)
	eb.recv(rwr(9, back.sge(0, n)))
	send := wr(2, hostverbs.OpSend, near.sge(0, n))
	send.Flags |= hostverbs.SendFence
	ea.send(rdma(1, hostverbs.OpRDMARead, far, 0, near.sge(0, n)), send)
	w.settle()
	ea.sends("READ and fenced SEND", hostverbs.WC{WRID: 1, Opcode: hostverbs.WCOpRDMARead, ByteLen: n}, done(2, hostverbs.WCOpSend))
	eb.recvs("READ and fenced SEND", hostverbs.WC{WRID: 9, Opcode: hostverbs.WCOpRecv, ByteLen: n, SrcQP: ea.qp.QPN()})
	w.verify("READ and fenced SEND")
	if !hasAtomics(t, env) {
		return
	}
	words, result := b.words(64), a.words(64)
	words.put(0, word(41))
	words.expect(0, word(42))
	words.expect(8, word(41))
	result.expect(0, word(41))
	write := rdma(4, hostverbs.OpRDMAWrite, words, 8, result.sge(0, wordBytes))
	write.Flags |= hostverbs.SendFence
	ea.send(wordOp(3, hostverbs.OpAtomicFetchAndAdd, words, 0, 1, 0, result.sge(0, wordBytes)), write)
	w.settle()
	ea.sends("FETCH_ADD and fenced WRITE", returned(3, hostverbs.OpAtomicFetchAndAdd), done(4, hostverbs.WCOpRDMAWrite))
	w.verify("FETCH_ADD and fenced WRITE")
}

// huge registers 1 GiB that is one page of the guest's memory over and over.
func (g *guest) huge() *region {
	g.w.t.Helper()
	const n = 1 << 30
	r := &region{g: g, start: 0x10_0000_0000, n: n, pages: g.takePages(1, false)}
	list := make([]uint64, n/page)
	for i := range list {
		list[i] = r.pages[0]
	}
	var err error
	if r.mem, err = g.space.Pin(list, guestmem.ProtRead|guestmem.ProtWrite); err != nil {
		g.w.t.Fatalf("pin: %v", err)
	}
	if r.mr, err = g.ctx.RegMR(g.pd, hostverbs.MRAttr{Memory: r.mem, Start: r.start, Length: n, Access: everything}); err != nil {
		g.w.t.Fatalf("register 1 GiB: %v", err)
	}
	return r
}

func longest(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near, far := a.huge(), b.huge()
	far.expect(0, near.fill(1, 1, page))
	ea, eb := w.pair(a, b, nil)
	const half = 1 << 30
	eb.recv(rwr(9, far.sge(0, half), far.sge(0, half)))
	ea.send(wr(1, hostverbs.OpSend, near.sge(0, half), near.sge(0, half)))
	w.settle()
	ea.sends("SEND of 2^31 bytes", done(1, hostverbs.WCOpSend))
	eb.recvs("SEND of 2^31 bytes", hostverbs.WC{WRID: 9, Opcode: hostverbs.WCOpRecv, ByteLen: 1 << 31, SrcQP: ea.qp.QPN()})
	w.verify("SEND of 2^31 bytes")
	// One byte more is no message.
	ea.send(wr(2, hostverbs.OpSend, near.sge(0, half), near.sge(0, half), near.sge(0, 1)))
	w.settle()
	ea.sends("SEND of 2^31+1 bytes", failed(2, hostverbs.WCLocLenErr))
}
