// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// numberCases are about the numbers of queue pairs.
func numberCases() []Case {
	return []Case{
		{"QP numbers are 24 bits, unique, and not used again soon", qpNumbers},
		{"a queue pair has the number that was asked for, unless another one of the guest has it", askedNumbers},
		{"queue pairs of two guests with one number are told apart by address", sharedNumbers},
	}
}

func qpNumbers(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	seen := map[uint32]bool{}
	for i := range 200 {
		g := a
		if i%2 == 0 {
			g = b
		}
		e := g.newEnd(hostverbs.QPTypeRC, false)
		n := e.qp.QPN()
		if n < 2 || n >= 0xffffff || seen[n] {
			t.Fatalf("QP number %#x: reserved, or was there before", n)
		}
		seen[n] = true
		e.destroy()
	}
}

// numbered creates an RC queue pair with a number.
func (g *guest) numbered(n uint32) *end {
	g.w.t.Helper()
	return g.create(&hostverbs.QPInitAttr{Type: hostverbs.QPTypeRC, Cap: qpCap(), QPN: n})
}

func askedNumbers(t testing.TB, env Env) {
	w := newWorld(t, env)
	g := w.guest()
	free := g.newEnd(hostverbs.QPTypeRC, false).qp.QPN()
	for _, n := range []uint32{2, 3, 4095, 65535} {
		e := g.numbered(n)
		if got := e.qp.QPN(); got != n || got == free {
			t.Errorf("number %#x, want %#x", got, n)
		}
		init := initAttr(g.mustCQ())
		init.QPN = n
		_, err := g.ctx.CreateQP(g.pd, init, &device{})
		w.want("a second one of the number", err, unix.EADDRINUSE)
		e.destroy()
		g.numbered(n)
	}
	for _, n := range []uint32{1, 0x10000, 0xffffff, 0x1000002, 1 << 31} {
		init := initAttr(g.mustCQ())
		init.QPN = n
		_, err := g.ctx.CreateQP(g.pd, init, &device{})
		w.want("a number that is nobody's to ask for", err, unix.EINVAL)
	}
	if e := g.gsi(); e.qp.QPN() != 1 {
		t.Errorf("the GSI QP has number %d", e.qp.QPN())
	}
}

func sharedNumbers(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b, c := w.guest(), w.guest(), w.guest()
	const n = 7
	toB, toC, inB, inC := a.numbered(n), a.numbered(n+1), b.numbered(n), c.numbered(n)
	for _, p := range [][2]*end{{toB, inB}, {toC, inC}} {
		p[0].up(p[0].linkTo(p[1]), hostverbs.StateRTS)
		p[1].up(p[1].linkTo(p[0]), hostverbs.StateRTS)
	}
	from, intoB, intoC := a.buffer(page), b.buffer(page), c.buffer(page)
	mine := from.fill(1, 1, 2*64)
	inB.recv(rwr(1, intoB.sge(0, 64)))
	inC.recv(rwr(2, intoC.sge(0, 64)))
	toB.send(wr(3, hostverbs.OpSend, from.sge(0, 64)))
	toC.send(wr(4, hostverbs.OpSend, from.sge(64, 64)))
	w.settle()
	toB.sends("to the second guest", done(3, hostverbs.WCOpSend))
	toC.sends("to the third guest", done(4, hostverbs.WCOpSend))
	intoB.expect(0, mine[:64])
	intoC.expect(0, mine[64:])
	w.verify("one number, two guests")

	// The second guest's address is gone, and the third has the number still: nobody is reached.
	if err := b.ctx.UnbindGID(0, b.gid); err != nil {
		t.Fatal(err)
	}
	inC.recv(rwr(5, intoC.sge(0, 64)))
	toB.send(wr(6, hostverbs.OpSend, from.sge(0, 64)))
	w.settle()
	toB.sends("to an address that is gone", failed(6, hostverbs.WCRetryExcErr))
	w.verify("an address that is gone")
}
