// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"fmt"
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// remoteCases are about what the responder's side refuses.
func remoteCases() []Case {
	return []Case{
		{"memory that a remote key does not give is not reached", remoteKeys},
		{"a local key is no remote key", localKeyIsNoRemoteKey},
		{"an operation that the queue pair does not allow is an invalid request", operationsNotAllowed},
		{"a message without bytes needs no remote key", noBytesNoKey},
		{"a region that is deregistered under a message ends it", deregisteredUnderAMessage},
	}
}

// badKey is a remote address that must be refused.
type badKey struct {
	name string
	addr uint64
	rkey uint32
	n    uint32
}

// badKeys returns remote addresses that op has no right to in the guest's memory.
func (g *guest) badKeys(op hostverbs.WROpcode) []badKey {
	const n = 1000
	r := g.buffer(n)
	foreign := g.register(n, shape{pd: g.otherPD(), access: everything, start: 0x1000})
	without := g.register(n, shape{access: everything &^ rightTo(op), start: 0x2000})
	top := g.register(page, shape{access: everything, start: 1<<64 - 2*page})
	return []badKey{
		{"key 0", r.start, 0, 8},
		{"key of nothing", r.start, 0xfffffff0, 8},
		{"key of another generation", r.start, r.mr.RKey() ^ 0x40, 8},
		{"key that was deregistered", r.start, g.stale(), 8},
		{"another protection domain", foreign.start, foreign.mr.RKey(), 8},
		{"no right to the operation", without.start, without.mr.RKey(), 8},
		{"one byte before the region", r.start - 1, r.mr.RKey(), 8},
		{"one byte behind the region", r.start + n - 7, r.mr.RKey(), 8},
		{"longer than the region", r.start, r.mr.RKey(), n + 1},
		{"behind the region", r.start + n, r.mr.RKey(), 1},
		{"address 0", 0, r.mr.RKey(), 8},
		{"around the end of the address space", top.start + page - 8, top.mr.RKey(), 2 * page},
		{"highest address", ^uint64(0), r.mr.RKey(), 8},
	}
}

// rightTo is the right that an operation needs to a region of the responder.
func rightTo(op hostverbs.WROpcode) hostverbs.AccessFlags {
	switch op {
	case hostverbs.OpRDMARead:
		return hostverbs.AccessRemoteRead
	case hostverbs.OpAtomicCmpAndSwp, hostverbs.OpAtomicFetchAndAdd:
		return hostverbs.AccessRemoteAtomic
	}
	return hostverbs.AccessRemoteWrite
}

func remoteKeys(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near := a.buffer(3 * page)
	near.fill(1, 1, 3*page)
	for _, m := range moves() {
		if m.send {
			continue
		}
		for _, c := range b.badKeys(m.op) {
			what := fmt.Sprintf("%s, %s", m.op, c.name)
			w.refused(a, b, what, m, c, near)
			w.verify(what)
			if t.Failed() {
				return
			}
		}
	}
}

// refused carries out an operation on a new connection and expects a remote access error.
func (w *world) refused(a, b *guest, what string, m move, c badKey, near *region) {
	w.t.Helper()
	ea, eb := w.pair(a, b, nil)
	req := wr(1, m.op, near.sge(0, uint64(c.n)))
	req.RemoteAddr, req.RKey = c.addr, c.rkey
	eb.recv(rwr(9))
	ea.send(req, wr(2, hostverbs.OpRDMAWrite))
	w.settle()
	ea.sends(what, failed(1, hostverbs.WCRemAccessErr), failed(2, hostverbs.WCWRFlushErr))
	ea.in(what, hostverbs.StateErr)
	eb.recvs(what, failed(9, hostverbs.WCWRFlushErr))
	eb.in(what, hostverbs.StateErr)
	eb.events(what, hostverbs.EventQPAccessErr)
	ea.events(what)
	ea.destroy()
	eb.destroy()
}

func localKeyIsNoRemoteKey(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near, dma := a.buffer(64), b.dma()
	for _, m := range moves() {
		if m.send {
			continue
		}
		w.refused(a, b, "local key of the DMA region", m, badKey{addr: ramBase, rkey: dma.LKey(), n: 8}, near)
		w.refused(a, b, "remote key of the DMA region", m, badKey{addr: ramBase, rkey: dma.RKey(), n: 8}, near)
	}
	w.verify("DMA region")
}

func operationsNotAllowed(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near, far := a.buffer(64), b.buffer(64)
	cases := []struct {
		name  string
		op    hostverbs.WROpcode
		spoil func(lb *link)
	}{
		{"write", hostverbs.OpRDMAWrite, func(l *link) { l.access &^= hostverbs.AccessRemoteWrite }},
		{"write with immediate", hostverbs.OpRDMAWriteWithImm, func(l *link) { l.access &^= hostverbs.AccessRemoteWrite }},
		{"read", hostverbs.OpRDMARead, func(l *link) { l.access &^= hostverbs.AccessRemoteRead }},
		{"read without resources for it", hostverbs.OpRDMARead, func(l *link) { l.destRdAtomic = 0 }},
	}
	for _, c := range cases {
		for _, n := range []uint64{0, 8} {
			what := fmt.Sprintf("%s of %d bytes", c.name, n)
			ea, eb := w.pair(a, b, func(_, lb *link) { c.spoil(lb) })
			eb.recv(rwr(9))
			ea.send(rdma(1, c.op, far, 0, near.sge(0, n)))
			w.settle()
			ea.sends(what, failed(1, hostverbs.WCRemInvReqErr))
			ea.in(what, hostverbs.StateErr)
			eb.recvs(what, failed(9, hostverbs.WCWRFlushErr))
			eb.in(what, hostverbs.StateErr)
			eb.events(what, hostverbs.EventQPReqErr)
		}
	}
	ea, eb := w.pair(a, b, func(_, lb *link) { lb.access = 0 })
	eb.recv(rwr(9))
	ea.send(wr(1, hostverbs.OpSend))
	w.settle()
	ea.sends("send needs no right", done(1, hostverbs.WCOpSend))
	w.verify("not allowed")
}

func noBytesNoKey(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := w.pair(a, b, nil)
	eb.recv(rwr(9))
	for _, op := range []hostverbs.WROpcode{hostverbs.OpRDMAWrite, hostverbs.OpRDMAWriteWithImm, hostverbs.OpRDMARead} {
		req := wr(1, op)
		req.RemoteAddr, req.RKey = 0xdead_beef_dead_beef, 0xdeadbeef
		ea.send(req)
		w.settle()
		for i := range ea.dev.sent {
			ea.dev.sent[i].Opcode = 0
		}
		ea.sends(op.String(), done(1, 0))
	}
	eb.recvs("write with immediate", hostverbs.WC{
		WRID: 9, Opcode: hostverbs.WCOpRecvRDMAWithImm, Flags: hostverbs.WCWithImm, SrcQP: ea.qp.QPN(),
	})
}

// deregisteredUnderAMessage takes either side's region away while a long message is under way. An engine may have
// been faster; what must not happen is a success that did not copy, or a byte that moves afterwards.
func deregisteredUnderAMessage(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	const n = longMessage
	for _, m := range moves() {
		for _, side := range []string{"local", "remote"} {
			what := fmt.Sprintf("%s, %s region", m.op, side)
			a.used, b.used = 0, 0
			near, far := a.buffer(n), b.buffer(n)
			mine, theirs := near.fill(1, 1, n), far.fill(2, 1, n)
			ea, eb := w.pair(a, b, nil)
			eb.recv(rwr(9, far.sge(0, n)))
			ea.send(rdma(1, m.op, far, 0, near.sge(0, n)))
			w.visit()
			taken, status := near, hostverbs.WCLocProtErr
			if side == "remote" {
				taken, status = far, hostverbs.WCRemAccessErr
				if m.send {
					status = hostverbs.WCRemOpErr
				}
			}
			if err := taken.mr.Dereg(); err != nil {
				t.Fatalf("deregister: %v", err)
			}
			target := far
			data := mine
			if m.op == hostverbs.OpRDMARead {
				target, data = near, theirs
			}
			early := len(ea.dev.sent) > 0
			if early {
				target.expect(0, data)
			} else {
				w.believe() // a beginning may have arrived, of which nothing is promised
			}
			w.settle()
			w.verify(what)
			if !early {
				ea.sends(what, failed(1, status))
				ea.in(what, hostverbs.StateErr)
			}
			ea.destroy()
			eb.destroy()
		}
	}
}

// believe takes the memory of all guests as it is for what it should be.
func (w *world) believe() {
	for _, g := range w.guests {
		g.site.owner.Do(func() { copy(g.want, g.ram) })
	}
}
