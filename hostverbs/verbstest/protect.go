// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"fmt"
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// localCases are about what the requester's side refuses.
func localCases() []Case {
	return []Case{
		{"memory that a local key does not give is not reached", localKeys},
		{"a request that no engine can carry out is a QP operation error", badRequests},
		{"a message over 2 GiB is a length error", tooLong},
		{"a request that the device refused completes as the device says, in order", refusedByTheDevice},
	}
}

// stale is the key of a region that was deregistered.
func (g *guest) stale() uint32 {
	g.w.t.Helper()
	r := g.buffer(64)
	if err := r.mr.Dereg(); err != nil {
		g.w.t.Fatalf("deregister: %v", err)
	}
	return r.mr.LKey()
}

// otherPD allocates one more protection domain.
func (g *guest) otherPD() hostverbs.PD {
	g.w.t.Helper()
	pd, err := g.ctx.AllocPD()
	if err != nil {
		g.w.t.Fatalf("allocate a PD: %v", err)
	}
	return pd
}

// badSGE is an entry that must fail.
type badSGE struct {
	name string
	sge  hostverbs.SGE
	// writes: it fails only if the engine has to write there.
	writes bool
	// late: the engine may find out only when it gets there.
	late bool
}

// badSGEs returns entries that the guest has no right to.
func (g *guest) badSGEs() []badSGE {
	const n = 1000
	r := g.buffer(n)
	foreign := g.register(n, shape{pd: g.otherPD(), access: everything, start: 0x1000})
	readOnly := g.register(n, shape{start: 0x2000})
	top := g.register(page, shape{access: everything, start: 1<<64 - 2*page})
	dma := g.dma()
	at := func(r *region, off uint64, n uint32) hostverbs.SGE {
		return hostverbs.SGE{Addr: r.start + off, Length: n, LKey: r.mr.LKey()}
	}
	return []badSGE{
		{name: "key 0", sge: hostverbs.SGE{Addr: r.start, Length: 8}},
		{name: "key of nothing", sge: hostverbs.SGE{Addr: r.start, Length: 8, LKey: 0xfffffff0}},
		{name: "key of another generation", sge: hostverbs.SGE{Addr: r.start, Length: 8, LKey: r.mr.LKey() ^ 0x40}},
		{name: "key that was deregistered", sge: hostverbs.SGE{Addr: r.start, Length: 8, LKey: g.stale()}},
		{name: "another protection domain", sge: at(foreign, 0, 8)},
		{name: "no local write", sge: at(readOnly, 0, 8), writes: true},
		{name: "one byte before the region", sge: at(r, ^uint64(0), 8)},
		{name: "one byte behind the region", sge: at(r, n-7, 8)},
		{name: "longer than the region", sge: at(r, 0, n+1)},
		{name: "behind the region", sge: at(r, n, 1)},
		{name: "2 GiB", sge: at(r, 0, 1<<31-64)},
		{name: "address 0", sge: hostverbs.SGE{Length: 8, LKey: r.mr.LKey()}},
		{name: "around the end of the address space", sge: at(top, page-8, 1<<31-64)},
		{name: "highest address", sge: hostverbs.SGE{Addr: ^uint64(0), Length: 8, LKey: r.mr.LKey()}},
		{name: "a hole in the guest's memory", sge: hostverbs.SGE{Addr: ramBase + ramBytes, Length: 8, LKey: dma.LKey()}, late: true},
		{name: "across the end of the guest's memory", sge: hostverbs.SGE{Addr: ramBase + ramBytes - 4, Length: 8, LKey: dma.LKey()}, late: true},
		{name: "DMA around the end of the address space", sge: hostverbs.SGE{Addr: ^uint64(0) - 3, Length: 8, LKey: dma.LKey()}},
	}
}

func localKeys(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	bad := a.badSGEs()
	good, far := a.buffer(4096), b.buffer(1<<12)
	good.fill(1, 1, 4096)
	far.fill(2, 1, 4096)
	for _, m := range moves() {
		for _, c := range bad {
			if c.writes && m.op != hostverbs.OpRDMARead {
				continue
			}
			what := fmt.Sprintf("%s, %s", m.op, c.name)
			ea, eb := w.pair(a, b, nil)
			eb.recv(rwr(7, far.sge(0, 4096)))
			// The wrong entry comes last: what is good before it does not move either.
			list := []hostverbs.SGE{good.sge(0, 64), c.sge}
			if c.late {
				list = list[1:]
			}
			ea.send(rdma(1, m.op, far, 0, list...), wr(2, hostverbs.OpRDMAWrite))
			w.settle()
			ea.sends(what, failed(1, hostverbs.WCLocProtErr), failed(2, hostverbs.WCWRFlushErr))
			ea.in(what, hostverbs.StateErr)
			eb.recvs(what)
			eb.in(what, hostverbs.StateRTS)
			ea.destroy()
			eb.destroy()
			w.verify(what)
			if t.Failed() {
				return
			}
		}
	}
}

// destroy destroys the queue pair and its completion queues.
func (e *end) destroy() {
	e.g.w.t.Helper()
	for _, fn := range []func() error{e.qp.Destroy, e.scq.Destroy, e.rcq.Destroy} {
		if err := fn(); err != nil {
			e.g.w.t.Fatalf("destroy: %v", err)
		}
	}
	for i, o := range e.g.w.ends {
		if o == e {
			e.g.w.ends = append(e.g.w.ends[:i], e.g.w.ends[i+1:]...)
			return
		}
	}
}

func badRequests(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near, far := a.buffer(64), b.buffer(64)
	tooMany := rdma(1, hostverbs.OpRDMAWrite, far, 0, near.sge(0, 1), near.sge(1, 1), near.sge(2, 1))
	lying := rdma(1, hostverbs.OpRDMAWrite, far, 0, near.sge(0, 8))
	lying.NumSGE = 255
	cases := map[string]hostverbs.SendWR{
		"unknown to the device":    rdma(1, hostverbs.OpInvalid, far, 0, near.sge(0, 8)),
		"no such operation":        rdma(1, hostverbs.OpRegMR+1, far, 0, near.sge(0, 8)),
		"number 255":               rdma(1, 255, far, 0, near.sge(0, 8)),
		"more entries than asked":  tooMany,
		"more entries than fit in": lying,
	}
	att := env.Provider.QueryDevice()
	if !att.AtomicCmpSwap {
		cases["compare and swap"] = rdma(1, hostverbs.OpAtomicCmpAndSwp, far, 0, near.sge(0, 8))
	}
	if !att.AtomicFetchAdd {
		cases["fetch and add"] = rdma(1, hostverbs.OpAtomicFetchAndAdd, far, 0, near.sge(0, 8))
	}
	if !att.RemoteInvalidate {
		cases["send with invalidate"] = rdma(1, hostverbs.OpSendWithInv, far, 0, near.sge(0, 8))
	}
	if !att.LocalInvalidate {
		cases["local invalidate"] = wr(1, hostverbs.OpLocalInv)
	}
	if !att.FastRegistration {
		cases["register"] = wr(1, hostverbs.OpRegMR)
	}
	for what, req := range cases {
		ea, eb := a.newSized(2), b.newEnd(hostverbs.QPTypeRC, false)
		ea.up(ea.linkTo(eb), hostverbs.StateRTS)
		eb.up(eb.linkTo(ea), hostverbs.StateRTS)
		eb.recv(rwr(3, far.sge(0, 64)))
		ea.send(req)
		w.settle()
		ea.sends(what, failed(1, hostverbs.WCLocQPOpErr))
		ea.in(what, hostverbs.StateErr)
		eb.recvs(what)
		eb.in(what, hostverbs.StateRTS)
	}
	ea, _ := w.pair(a, b, func(la, _ *link) { la.rdAtomic = 0 })
	ea.send(rdma(1, hostverbs.OpRDMARead, far, 0, near.sge(0, 8)))
	w.settle()
	ea.sends("read without resources for it", failed(1, hostverbs.WCLocQPOpErr))
	w.verify("bad requests")
}

// newSized creates an RC queue pair whose requests have at most n entries.
func (g *guest) newSized(n uint32) *end {
	g.w.t.Helper()
	c := qpCap()
	c.MaxSendSGE, c.MaxRecvSGE = n, n
	return g.create(&hostverbs.QPInitAttr{Type: hostverbs.QPTypeRC, Cap: c})
}

func tooLong(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near, far := a.buffer(64), b.buffer(64)
	huge := hostverbs.SGE{Addr: near.start, Length: 1<<32 - 1, LKey: near.mr.LKey()}
	half := hostverbs.SGE{Addr: near.start, Length: 1 << 30, LKey: near.mr.LKey()}
	all := make([]hostverbs.SGE, hostverbs.MaxSGE)
	for i := range all {
		all[i] = huge
	}
	for what, list := range map[string][]hostverbs.SGE{
		"one byte too many":   {half, half, near.sge(0, 1)},
		"a sum of 64 bits":    all,
		"one entry too long":  {huge},
		"a sum that wraps 32": {huge, near.sge(0, 2)},
	} {
		for _, m := range moves() {
			ea, eb := w.pair(a, b, nil)
			eb.recv(rwr(3, far.sge(0, 64)))
			ea.send(rdma(1, m.op, far, 0, list...))
			w.settle()
			ea.sends(fmt.Sprintf("%s, %s", m.op, what), failed(1, hostverbs.WCLocLenErr))
			eb.recvs(what)
		}
	}
	w.verify("too long")
}

func refusedByTheDevice(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := w.pair(a, b, nil)
	eb.recv(rwr(1), rwr(2))
	bad := wr(2, hostverbs.OpSend)
	bad.Status = hostverbs.WCLocQPOpErr
	ea.send(wr(1, hostverbs.OpSend), bad, wr(3, hostverbs.OpSend))
	w.settle()
	ea.sends("the second of three", done(1, hostverbs.WCOpSend), failed(2, hostverbs.WCLocQPOpErr), failed(3, hostverbs.WCWRFlushErr))
	eb.recvs("the second of three", hostverbs.WC{WRID: 1, Opcode: hostverbs.WCOpRecv, SrcQP: ea.qp.QPN()})
}
