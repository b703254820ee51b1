// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// registered returns a region for fast registration of the guest that has memory and the key byte 7.
func (g *guest) registered(pd hostverbs.PD) fastRegion {
	g.w.t.Helper()
	r := g.fast(pd)
	e := g.createIn(pd, &hostverbs.QPInitAttr{Type: hostverbs.QPTypeRC, Cap: qpCap()})
	e.up(e.linkTo(e), hostverbs.StateRTS)
	e.send(r.reg(10, fastStart, page, 7, everything))
	g.w.settle()
	e.sends("registered", done(10, hostverbs.WCOpRegMR))
	e.destroy()
	return r
}

func badInvalidate(t testing.TB, env Env) {
	if !hasFastReg(t, env) {
		return
	}
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near, ordinary := a.buffer(64), b.buffer(64)
	foreign, dma, dead := b.registered(b.otherPD()), b.dma(), b.registered(b.pd)
	if err := dead.mr.Dereg(); err != nil {
		t.Fatal(err)
	}
	r := b.registered(b.pd)
	for what, key := range map[string]uint32{
		"key 0": 0, "a key of nothing": 0xfffffff0, "an ordinary region": ordinary.mr.RKey(), "the region of all memory": dma.LKey(),
		"another domain's region": foreign.key(7), "a region that is gone": dead.key(7), "another key byte": r.key(8),
	} {
		_, eb := w.pair(a, b, nil)
		inv := r.inv(11, 7)
		inv.Imm = key
		eb.send(inv)
		w.settle()
		eb.sends(what, failed(11, hostverbs.WCMWBindErr))
	}
	data := near.fill(1, 1, 64)
	r.expect(0, data)
	ordinary.expect(0, data)
	w.tries(a, b, "the region", r.use(1, hostverbs.OpRDMAWrite, 7, 0, near.sge(0, 64)), hostverbs.WCSuccess)
	w.tries(a, b, "the ordinary region", rdma(1, hostverbs.OpRDMAWrite, ordinary, 0, near.sge(0, 64)), hostverbs.WCSuccess)
	w.verify("all that was not to be invalidated")
}

func remoteInvalidate(t testing.TB, env Env) {
	if !hasFastReg(t, env) {
		return
	}
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near, far := a.buffer(64), b.buffer(64)
	r := b.registered(b.pd)
	ea, eb := w.pair(a, b, nil)
	for _, n := range []uint64{0, 64} {
		eb.recv(rwr(9, far.sge(0, 64)))
		far.expect(0, near.fill(1, n, 64)[:n])
		send := wr(1, hostverbs.OpSendWithInv, near.sge(0, n))
		send.Imm = r.key(7)
		ea.send(send)
		w.settle()
		ea.sends("send", done(1, hostverbs.WCOpSend))
		eb.recvs("send", hostverbs.WC{
			WRID: 9, Opcode: hostverbs.WCOpRecv, ByteLen: uint32(n), SrcQP: ea.qp.QPN(),
			Flags: hostverbs.WCWithInvalidate, Imm: r.key(7),
		})
		w.tries(a, b, "the region", r.use(1, hostverbs.OpRDMAWrite, 7, 0, near.sge(0, 8)), hostverbs.WCRemAccessErr)
		w.verify("freed")
		eb.send(r.reg(2, fastStart, page, 7, everything))
		w.settle()
		eb.sends("registered again", done(2, hostverbs.WCOpRegMR))
	}
}

func badRemoteInvalidate(t testing.TB, env Env) {
	if !hasFastReg(t, env) {
		return
	}
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ordinary, foreign := b.buffer(64), b.registered(b.otherPD())
	mine := a.registered(a.pd)
	for what, key := range map[string]uint32{
		"key 0": 0, "a key of nothing": 0xfffffff0, "an ordinary region": ordinary.mr.RKey(), "another domain's region": foreign.key(7),
		"the sender's own": mine.key(7) ^ 1<<31, "the region of all memory": b.dma().LKey(),
	} {
		ea, eb := w.pair(a, b, nil)
		eb.recv(rwr(9), rwr(10))
		send := wr(1, hostverbs.OpSendWithInv)
		send.Imm = key
		ea.send(send, wr(2, hostverbs.OpSend))
		w.settle()
		ea.sends(what, failed(1, hostverbs.WCRemAccessErr), failed(2, hostverbs.WCWRFlushErr))
		eb.recvs(what, failed(9, hostverbs.WCLocAccessErr), failed(10, hostverbs.WCWRFlushErr))
		eb.in(what, hostverbs.StateErr)
	}
}

func fastRegOrder(t testing.TB, env Env) {
	if !hasFastReg(t, env) {
		return
	}
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	far, r := a.buffer(64), b.fast(b.pd)
	far.fill(3, 1, 64)
	_, eb := w.pair(a, b, nil)
	read := func(id uint64, low uint8) hostverbs.SendWR {
		return rdma(id, hostverbs.OpRDMARead, far, 0, hostverbs.SGE{Addr: fastStart, Length: 8, LKey: r.key(low)})
	}
	quiet := r.inv(4, 1)
	quiet.Flags = hostverbs.SendFence
	reg := r.reg(1, fastStart, page, 1, everything)
	r.expect(0, far.g.want[far.at(0):][:8])
	eb.send(reg, read(2, 1), r.inv(3, 1), quiet, r.reg(5, fastStart, page, 2, everything), read(6, 2), r.inv(7, 2), read(8, 2))
	w.settle()
	eb.sends("all", done(1, hostverbs.WCOpRegMR), hostverbs.WC{WRID: 2, Opcode: hostverbs.WCOpRDMARead, ByteLen: 8},
		done(3, hostverbs.WCOpLocalInv), done(5, hostverbs.WCOpRegMR),
		hostverbs.WC{WRID: 6, Opcode: hostverbs.WCOpRDMARead, ByteLen: 8}, done(7, hostverbs.WCOpLocalInv),
		failed(8, hostverbs.WCLocProtErr))
	w.verify("in order")

	// Behind a message that waits they wait too, and in SQD they are not begun.
	ea, _ := w.waiting(b, a, 1, 0)
	ea.send(r.reg(2, fastStart, page, 3, everything))
	w.elapse(code12)
	ea.sends("behind a message that waits")
	ea.to(hostverbs.StateErr)
	w.settle()
	ea.sends("in ERR", flushed(1, 2)...)
	drained, _ := w.pair(b, a, nil)
	drained.drain(false)
	drained.send(r.reg(2, fastStart, page, 3, everything))
	w.settle()
	drained.sends("in SQD")
	drained.to(hostverbs.StateRTS)
	w.settle()
	drained.sends("back in RTS", done(2, hostverbs.WCOpRegMR))
}

func fastRegObject(t testing.TB, env Env) {
	if !hasFastReg(t, env) {
		return
	}
	w := newWorld(t, env)
	most := int(env.Provider.QueryDevice().MaxFastRegPageLen)
	g := w.guestWith(hostverbs.Limits{MaxMR: 2})
	src := &source{g: g}
	for what, c := range map[string]struct {
		pages int
		src   hostverbs.PageSource
	}{"no pages": {0, src}, "less": {-1, src}, "more than the engine has": {most + 1, src}, "no source": {1, nil}} {
		if _, err := g.ctx.AllocMR(g.pd, c.pages, c.src); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%s: got %v, want EINVAL", what, err)
		}
	}
	pd := g.otherPD()
	m, err := g.ctx.AllocMR(pd, most, src)
	w.want("allocate", err, nil)
	w.want("PD of a region", pd.Dealloc(), unix.EBUSY)
	_, err = g.ctx.AllocMR(g.pd, 1, src)
	w.want("the second of two", err, nil)
	_, err = g.ctx.AllocMR(g.pd, 1, src)
	w.want("the third of two", err, unix.ENOMEM)
	w.want("deregister", m.Dereg(), nil)
	w.want("deregister again", m.Dereg(), unix.EINVAL)
	w.want("PD without a region", pd.Dealloc(), nil)
	_, err = g.ctx.AllocMR(pd, 1, src)
	w.want("PD that is gone", err, unix.EINVAL)

	// Deregistered while it has memory, it names none.
	a, b := w.guest(), w.guest()
	r, near := b.registered(b.pd), a.buffer(64)
	w.want("deregister a region with memory", r.mr.Dereg(), nil)
	w.tries(a, b, "deregistered", r.use(1, hostverbs.OpRDMAWrite, 7, 0, near.sge(0, 8)), hostverbs.WCRemAccessErr)
	w.verify("deregistered")
	// A guest that leaves takes its regions along.
	b.registered(b.pd)
	b.leave()
}

func fastRegAllocation(t testing.TB, env Env) {
	if !hasFastReg(t, env) {
		return
	}
	w := newWorld(t, env)
	g := w.guest()
	r := g.fast(g.pd)
	e := g.still(hostverbs.QPTypeRC, rwr(0))
	e.up(e.linkTo(e), hostverbs.StateRTS)
	wrs := []hostverbs.SendWR{r.reg(1, fastStart, 3*page, 7, everything), r.inv(2, 7)}
	var n float64
	e.do(func() { n = testing.AllocsPerRun(100, func() { e.qp.PostSend(wrs) }) })
	if n != 0 {
		t.Errorf("a registration and an invalidation allocate %v times", n)
	}
	e.in("after all", hostverbs.StateRTS)
	if r.src.pulls < 100 || r.src.pulls != r.src.drops {
		t.Errorf("%d registrations, %d invalidations", r.src.pulls, r.src.drops)
	}
}

func remoteInvalidateWithoutRights(t testing.TB, env Env) {
	if !hasFastReg(t, env) {
		return
	}
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	r := b.fast(b.pd)
	ea, eb := w.pair(a, b, nil)
	eb.send(r.reg(1, fastStart, page, 7, hostverbs.AccessLocalWrite))
	eb.recv(rwr(9))
	w.settle()
	send := wr(2, hostverbs.OpSendWithInv)
	send.Imm = r.key(7)
	ea.send(send)
	w.settle()
	ea.sends("freed", done(2, hostverbs.WCOpSend))
	eb.sends("freed", done(1, hostverbs.WCOpRegMR))
	eb.send(r.reg(3, fastStart, page, 8, everything))
	w.settle()
	eb.sends("registered again", done(3, hostverbs.WCOpRegMR))
}

// fastRegWaits frees a region, and registers it again, before the responder has looked at a message that is of its memory.
func fastRegWaits(t testing.TB, env Env) {
	if !hasFastReg(t, env) {
		return
	}
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	r, far := a.registered(a.pd), b.buffer(page)
	ea, _ := w.pair(a, b, nil)
	other, _ := w.pair(a, b, nil)
	ea.send(rdma(1, hostverbs.OpRDMAWrite, far, 0, hostverbs.SGE{Addr: fastStart, Length: 64, LKey: r.key(7)}))
	ea.do(func() { ea.dev.pump() })
	again := r.reg(3, fastStart, page, 8, everything)
	again.Reg.List = 2
	other.send(r.inv(2, 7), again, r.inv(4, 8))
	other.do(func() { other.dev.pump() })
	a.site.progress(env.Clock.Now())
	if a.site != b.site && r.src.drops != 0 {
		t.Error("the pages are let go of while another owner may be at work on them")
	}
	w.settle()
	other.sends("freed, registered and freed", done(2, hostverbs.WCOpLocalInv), done(3, hostverbs.WCOpRegMR), done(4, hostverbs.WCOpLocalInv))
	if len(ea.dev.sent) != 1 {
		t.Errorf("the message has %d completions, want 1", len(ea.dev.sent))
	}
	if r.src.pulls != 2 || r.src.drops != 2 {
		t.Errorf("%d registrations and %d invalidations reached the device, want 2 and 2", r.src.pulls, r.src.drops)
	}
}
