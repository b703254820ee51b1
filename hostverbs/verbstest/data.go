// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"fmt"
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// dataCases are about what arrives.
func dataCases() []Case {
	return []Case{
		{"every operation moves every size exactly", everySize},
		{"every operation moves every size within one guest", everySizeInside},
	}
}

// move is one operation and what its two ends see of it.
type move struct {
	op   hostverbs.WROpcode
	wc   hostverbs.WCOpcode
	recv bool // the peer consumes a receive
	send bool // the bytes go to the receive's buffers
	imm  bool
}

// moves are the operations that move bytes.
func moves() []move {
	return []move{
		{op: hostverbs.OpSend, wc: hostverbs.WCOpSend, recv: true, send: true},
		{op: hostverbs.OpSendWithImm, wc: hostverbs.WCOpSend, recv: true, send: true, imm: true},
		{op: hostverbs.OpRDMAWrite, wc: hostverbs.WCOpRDMAWrite},
		{op: hostverbs.OpRDMAWriteWithImm, wc: hostverbs.WCOpRDMAWrite, recv: true, imm: true},
		{op: hostverbs.OpRDMARead, wc: hostverbs.WCOpRDMARead},
	}
}

// sizes are lengths around which engines have their edges: nothing, one byte, path MTUs, pages, slices.
func sizes() []int {
	return []int{
		0, 1, 2, 7, 8, 63, 64, 255, 256, 257, 1023, 1024, 1025, 2048, 4095, 4096, 4097, 8191,
		64<<10 - 1, 64 << 10, 64<<10 + 1, 256<<10 - 1, 256 << 10, 256<<10 + 1, 1<<20 - 1, 1 << 20, 1<<20 + 1,
	}
}

func everySize(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := w.pair(a, b, nil)
	w.exercise(ea, eb)
}

func everySizeInside(t testing.TB, env Env) {
	w := newWorld(t, env)
	a := w.guest()
	ea, eb := w.pair(a, a, nil)
	w.exercise(ea, eb)
}

// exercise runs every operation with every size from ea to eb.
func (w *world) exercise(ea, eb *end) {
	const room = 1<<20 + page
	near := ea.g.register(room, shape{access: everything, start: 0x7f00_0000_0ff1})
	far := eb.g.register(room, shape{access: everything, start: 0x10_0000_0abc, scatter: true})
	iteration := uint64(0)
	for _, m := range moves() {
		if m.op == hostverbs.OpRDMARead && ea.typ != hostverbs.QPTypeRC {
			continue
		}
		for _, n := range sizes() {
			iteration++
			what := fmt.Sprintf("%s of %d bytes", m.op, n)
			mine := near.fill(1, iteration, n+64)
			theirs := far.fill(2, iteration, n+64)
			w.once(ea, eb, m, what, near.sge(17, uint64(n)), far, 29, n, iteration)
			if m.op == hostverbs.OpRDMARead {
				near.expect(17, theirs[29:29+n])
			} else {
				far.expect(29, mine[17:17+n])
			}
			w.verify(what)
			if w.t.Failed() {
				return
			}
		}
	}
}

// once carries out one operation and looks at all its completions.
func (w *world) once(ea, eb *end, m move, what string, near hostverbs.SGE, far *region, off uint64, n int, id uint64) {
	w.t.Helper()
	r := rdma(id, m.op, far, off, near)
	r.Imm = uint32(id) * 0x01020304
	if m.recv {
		eb.recv(rwr(id+1000, far.sge(off, uint64(n)+3)))
	}
	ea.send(r)
	w.settle()
	sent := done(id, m.wc)
	if m.op == hostverbs.OpRDMARead {
		sent.ByteLen = uint32(n)
	}
	ea.sends(what, sent)
	if !m.recv {
		eb.recvs(what)
		return
	}
	want := hostverbs.WC{WRID: id + 1000, Opcode: hostverbs.WCOpRecv, ByteLen: uint32(n), SrcQP: ea.qp.QPN()}
	if !m.send {
		want.Opcode = hostverbs.WCOpRecvRDMAWithImm
	}
	if m.imm {
		want.Flags, want.Imm = hostverbs.WCWithImm, r.Imm
	}
	eb.recvs(what, want)
}
