// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// srqCases are about shared receive queues.
func srqCases() []Case {
	return []Case{
		{"queue pairs take receives of a shared queue when a message needs one, and complete them as their own", sharedReceives},
		{"a message without a receive in the shared queue waits for one", sharedRNR},
		{"datagrams are received from a shared queue, too", sharedDatagrams},
		{"a queue pair in ERR leaves the receives of a shared queue to the others", sharedNotFlushed},
		{"a receive of a shared queue that a failed queue pair holds is flushed, and no other", sharedHeld},
		{"a queue pair says once that it takes no more receives of a shared queue", sharedLast},
		{"a receive of a shared queue names memory of the queue's own domain", sharedDomain},
		{"a receive of a shared queue that is wrong fails the queue pair that took it", sharedWrong},
		{"a shared queue whose memory fails costs the queue pair that looked, and no other", sharedFault},
		{"the limit event comes once, when fewer receives are posted than the limit", limitReached},
		{"a limit that is reached already is reported at once, and 0 disarms it", limitAtOnce},
		{"a change of a shared queue that cannot be is refused and changes nothing", limitRefused},
		{"nobody asks how many receives are posted while no limit is armed", limitCostsNothing},
		{"a queue pair with a shared queue has no receives of its own", noReceivesOfItsOwn},
	}
}

// pool is the device's side of a shared receive queue. It belongs to the owner's thread.
type pool struct {
	g    *guest
	srq  hostverbs.SRQ
	rq   []hostverbs.RecvWR
	dev  *device // counts callbacks that stray
	errs error   // what PullRecv returns

	events       []hostverbs.EventType
	pulls, asked int
	onEvent      func()
}

// newPool creates a shared receive queue in a protection domain.
func (g *guest) newPool(pd hostverbs.PD, attr hostverbs.SRQAttr) *pool {
	g.w.t.Helper()
	p := &pool{g: g, dev: &device{owner: g.site.owner, clock: g.w.env.Clock}}
	g.w.devices = append(g.w.devices, p.dev)
	var err error
	if p.srq, err = g.ctx.CreateSRQ(pd, attr, p); err != nil {
		g.w.t.Fatalf("create SRQ: %v", err)
	}
	return p
}

// poolAttr is the size of the tests' shared receive queues.
func poolAttr() hostverbs.SRQAttr {
	return hostverbs.SRQAttr{MaxWR: 256, MaxSGE: hostverbs.MaxSGE}
}

func (p *pool) PullRecv(wr *hostverbs.RecvWR) (bool, error) {
	p.dev.here()
	p.pulls++
	if p.errs != nil {
		return false, p.errs
	}
	if len(p.rq) == 0 {
		return false, nil
	}
	*wr = p.rq[0]
	p.rq = p.rq[1:]
	return true, nil
}

func (p *pool) Posted() uint32 {
	p.dev.here()
	p.asked++
	return uint32(len(p.rq))
}

func (p *pool) Event(e hostverbs.EventType) {
	p.dev.here()
	p.events = append(p.events, e)
	hook(p.onEvent)
}

// post posts receives.
func (p *pool) post(wrs ...hostverbs.RecvWR) {
	p.g.site.owner.Do(func() { p.rq = append(p.rq, wrs...) })
}

// left expects so many receives to be posted still.
func (p *pool) left(what string, want int) {
	p.g.w.t.Helper()
	if len(p.rq) != want {
		p.g.w.t.Errorf("%s: %d receives are left, want %d", what, len(p.rq), want)
	}
}

// saw expects exactly these events since the last look.
func (p *pool) saw(what string, want ...hostverbs.EventType) {
	p.g.w.t.Helper()
	same(p.g.w.t, what+": events of "+p.g.name+"'s SRQ", p.events, want)
	p.events = nil
}

// arm sets the limit.
func (p *pool) arm(limit uint32) {
	p.g.w.t.Helper()
	if err := p.srq.Modify(&hostverbs.SRQAttr{Limit: limit}, hostverbs.SRQLimit); err != nil {
		p.g.w.t.Fatalf("arm: %v", err)
	}
}

// limit is what a query says.
func (p *pool) limit() uint32 {
	p.g.w.t.Helper()
	a, err := p.srq.Query()
	if err != nil {
		p.g.w.t.Fatalf("query SRQ: %v", err)
	}
	return a.Limit
}

// sharing connects an end of a, in RTS, with one of b that receives from the pool.
func (w *world) sharing(a, b *guest, p *pool) (*end, *end) {
	w.t.Helper()
	ea := a.newEnd(hostverbs.QPTypeRC, false)
	eb := b.create(&hostverbs.QPInitAttr{Type: hostverbs.QPTypeRC, Cap: qpCap(), SRQ: p.srq})
	la, lb := ea.linkTo(eb), eb.linkTo(ea)
	ea.up(la, hostverbs.StateRTS)
	eb.up(lb, hostverbs.StateRTS)
	return ea, eb
}

func sharedReceives(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	p := b.newPool(b.pd, poolAttr())
	near, far := a.buffer(3*64), b.buffer(10*64)
	ea, eb := w.sharing(a, b, p)
	ec, ed := w.sharing(a, b, p)
	for i := range uint64(10) {
		p.post(rwr(100+i, far.sge(i*64, 64)))
	}
	bytes := near.fill(1, 1, 3*64)
	recv := func(id uint64, from *end, n uint32) hostverbs.WC {
		return hostverbs.WC{WRID: id, Opcode: hostverbs.WCOpRecv, ByteLen: n, SrcQP: from.qp.QPN()}
	}

	ea.send(wr(1, hostverbs.OpSend, near.sge(0, 64)), rdma(2, hostverbs.OpRDMAWrite, far, 9*64, near.sge(0, 64)))
	w.settle()
	ec.send(wr(3, hostverbs.OpSend, near.sge(64, 64)))
	w.settle()
	ea.send(rdma(4, hostverbs.OpRDMAWriteWithImm, far, 8*64, near.sge(128, 64)))
	w.settle()

	far.expect(0, bytes[:64])
	far.expect(9*64, bytes[:64])
	far.expect(64, bytes[64:128])
	far.expect(8*64, bytes[128:])
	ea.sends("two queue pairs", done(1, hostverbs.WCOpSend), done(2, hostverbs.WCOpRDMAWrite), done(4, hostverbs.WCOpRDMAWrite))
	ec.sends("two queue pairs", done(3, hostverbs.WCOpSend))
	imm := recv(102, ea, 64)
	imm.Opcode, imm.Flags = hostverbs.WCOpRecvRDMAWithImm, hostverbs.WCWithImm
	eb.recvs("two queue pairs", recv(100, ea, 64), imm)
	ed.recvs("two queue pairs", recv(101, ec, 64))
	p.left("two queue pairs", 7)
	w.verify("two queue pairs")

	eb.to(hostverbs.StateReset)
	ed.destroy()
	w.settle()
	p.left("one was reset, the other destroyed", 7)
	p.saw("no limit was armed")
}

func sharedRNR(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	p := b.newPool(b.pd, poolAttr())
	ea, eb := w.sharing(a, b, p)
	since := w.env.Clock.Now()
	ea.send(wr(1, hostverbs.OpSend))
	w.elapse(code12 + code12/2)
	ea.sends("no receive")
	p.post(rwr(7))
	w.settle()
	ea.sends("a receive", done(1, hostverbs.WCOpSend))
	eb.recvs("a receive", hostverbs.WC{WRID: 7, Opcode: hostverbs.WCOpRecv, SrcQP: ea.qp.QPN()})
	w.within("the second try", ea.dev.sentAt-since, 2*code12)

	ea.send(wr(2, hostverbs.OpSend))
	w.settle()
	ea.sends("none any more", failed(2, hostverbs.WCRNRRetryExcErr))
	eb.in("none any more", hostverbs.StateRTS)
}

func sharedDatagrams(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	other := b.otherPD()
	p := b.newPool(other, poolAttr())
	far := b.register(4096, shape{pd: other, access: everything, start: 0x1000})
	near := a.buffer(64)
	ea := a.ud()
	eb := b.create(&hostverbs.QPInitAttr{Type: hostverbs.QPTypeUD, Cap: qpCap(), SRQ: p.srq})
	eb.udUp(hostverbs.StateRTS)
	p.post(rwr(7, far.sge(0, 60), far.sge(60, 1000)))
	p.arm(1)
	bytes := near.fill(1, 1, 64)
	ea.send(datagram(1, hostverbs.OpSend, eb, near.sge(0, 64)), datagram(2, hostverbs.OpSend, eb))
	w.settle()
	ea.sends("two datagrams", done(1, hostverbs.WCOpSend), done(2, hostverbs.WCOpSend))
	eb.recvs("one receive", arrival(7, ea, 64, hostverbs.NetworkIPv4))
	p.saw("one receive", hostverbs.EventSRQLimitReached)
	far.header("one receive", 0, way{hostverbs.NetworkIPv4, a.gid, b.gid, datagram(0, hostverbs.OpSend, eb).AH, onWire(64, hostverbs.OpSend)})
	far.expect(hostverbs.GRHBytes, bytes)
	w.verify("one receive")
	p.left("one receive", 0)
}

func sharedNotFlushed(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	p := b.newPool(b.pd, poolAttr())
	_, eb := w.sharing(a, b, p)
	ec, ed := w.sharing(a, b, p)
	for i := range uint64(5) {
		p.post(rwr(i))
	}
	eb.to(hostverbs.StateErr)
	w.settle()
	eb.send(wr(50, hostverbs.OpSend))
	eb.do(eb.qp.RecvPosted)
	w.settle()
	eb.sends("ERR", failed(50, hostverbs.WCWRFlushErr))
	eb.recvs("ERR")
	p.left("ERR", 5)
	if p.pulls != 0 {
		t.Errorf("a queue pair in ERR has looked into the shared queue %d times", p.pulls)
	}
	ec.send(wr(1, hostverbs.OpSend))
	w.settle()
	ed.recvs("the other", hostverbs.WC{WRID: 0, Opcode: hostverbs.WCOpRecv, SrcQP: ec.qp.QPN()})
	p.left("the other", 4)
}

func sharedHeld(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	p := b.newPool(b.pd, poolAttr())
	ea, eb := w.sharing(a, b, p)
	const n = 1 << 20
	near, far := a.buffer(n), b.buffer(n)
	p.post(rwr(7, far.sge(0, n)), rwr(8), rwr(9))
	ea.send(wr(1, hostverbs.OpSend, near.sge(0, n)))
	w.visit() // a part of the message has moved
	p.left("under way", 2)
	eb.recvs("under way")
	eb.to(hostverbs.StateErr)
	w.settle()
	eb.recvs("failed under way", failed(7, hostverbs.WCWRFlushErr))
	ea.sends("failed under way", failed(1, hostverbs.WCRetryExcErr))
	p.left("failed under way", 2)
	w.believe()
}

func sharedDomain(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	other := b.otherPD()
	p := b.newPool(other, poolAttr())
	near := a.buffer(64)
	theirs := b.register(64, shape{pd: other, access: everything, start: 0x1000})
	own := b.buffer(64)
	ea, eb := w.sharing(a, b, p)
	bytes := near.fill(1, 1, 64)
	// The message moves in pieces too, whose keys are looked up one by one.
	p.post(rwr(1, theirs.sge(0, 20), theirs.sge(20, 44)), rwr(2, own.sge(0, 64)))
	theirs.expect(0, bytes)
	ea.send(wr(1, hostverbs.OpSend, near.sge(0, 64)))
	w.settle()
	ea.sends("a key of the queue's domain", done(1, hostverbs.WCOpSend))
	eb.recvs("a key of the queue's domain", hostverbs.WC{WRID: 1, Opcode: hostverbs.WCOpRecv, ByteLen: 64, SrcQP: ea.qp.QPN()})
	ea.send(wr(2, hostverbs.OpSend, near.sge(0, 64)))
	w.settle()
	ea.sends("a key of the queue pair's domain", failed(2, hostverbs.WCRemOpErr))
	eb.recvs("a key of the queue pair's domain", failed(2, hostverbs.WCLocProtErr))
	w.verify("two domains")
}

func sharedWrong(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	refused, lying, short := rwr(8), rwr(8), rwr(8)
	refused.Status = hostverbs.WCLocProtErr
	lying.NumSGE = 3
	near := a.buffer(8)
	for _, c := range []struct {
		name      string
		wr        hostverbs.RecvWR
		own, peer hostverbs.WCStatus
	}{
		{"the device refused it", refused, hostverbs.WCLocProtErr, hostverbs.WCRemOpErr},
		{"more entries than the queue has", lying, hostverbs.WCLocQPOpErr, hostverbs.WCRemOpErr},
		{"too short", short, hostverbs.WCLocLenErr, hostverbs.WCRemInvReqErr},
	} {
		p := b.newPool(b.pd, hostverbs.SRQAttr{MaxWR: 16, MaxSGE: 2})
		ea, eb := w.sharing(a, b, p)
		ec, ed := w.sharing(a, b, p)
		p.post(c.wr, rwr(9))
		ea.send(wr(1, hostverbs.OpSend, near.sge(0, 8)))
		w.settle()
		ea.sends(c.name, failed(1, c.peer))
		eb.recvs(c.name, failed(8, c.own))
		eb.in(c.name, hostverbs.StateErr)
		ec.send(wr(1, hostverbs.OpSend))
		w.settle()
		ec.sends(c.name+", the other", done(1, hostverbs.WCOpSend))
		ed.in(c.name+", the other", hostverbs.StateRTS)
		p.left(c.name, 0)
	}
}

func sharedFault(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	p := b.newPool(b.pd, poolAttr())
	ea, _ := w.sharing(a, b, p)
	ec, ed := w.sharing(a, b, p)
	p.post(rwr(1), rwr(2))
	p.g.site.owner.Do(func() { p.errs = errors.New("the memory is gone") })
	ea.send(wr(1, hostverbs.OpSend))
	w.settle()
	ea.sends("it fails", failed(1, hostverbs.WCRemOpErr))
	p.g.site.owner.Do(func() { p.errs = nil })
	ec.send(wr(1, hostverbs.OpSend))
	w.settle()
	ec.sends("the other", done(1, hostverbs.WCOpSend))
	ed.recvs("the other", hostverbs.WC{WRID: 1, Opcode: hostverbs.WCOpRecv, SrcQP: ec.qp.QPN()})
}

func limitReached(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	p := b.newPool(b.pd, poolAttr())
	ea, _ := w.sharing(a, b, p)
	ec, _ := w.sharing(a, b, p)
	for i := range uint64(10) {
		p.post(rwr(i))
	}
	take := func(e *end) {
		e.send(wr(1, hostverbs.OpSend))
		w.settle()
	}
	for round := range 2 {
		what := fmt.Sprintf("round %d", round)
		p.arm(uint32(len(p.rq)) - 2)
		if p.limit() == 0 {
			t.Errorf("%s: the limit that was armed is 0", what)
		}
		take(ea)
		take(ec)
		p.saw(what + ", as many as the limit")
		take(ea)
		p.saw(what+", one less", hostverbs.EventSRQLimitReached)
		if n := p.limit(); n != 0 {
			t.Errorf("%s: the limit is %d after its event", what, n)
		}
		take(ec)
		p.saw(what + ", two less")
	}
	// The device arms it anew from the event itself.
	p.post(rwr(1), rwr(2), rwr(3))
	n := uint32(len(p.rq))
	p.onEvent = func() {
		p.onEvent = nil
		if err := p.srq.Modify(&hostverbs.SRQAttr{Limit: n - 2}, hostverbs.SRQLimit); err != nil {
			t.Errorf("arm in the event: %v", err)
		}
	}
	p.arm(n)
	take(ea)
	p.saw("one less", hostverbs.EventSRQLimitReached)
	take(ea)
	p.saw("armed in the event")
	take(ea)
	p.saw("armed in the event, reached", hostverbs.EventSRQLimitReached)
}

func limitAtOnce(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	attr := poolAttr()
	attr.Limit = 5
	p := b.newPool(b.pd, attr)
	ea, _ := w.sharing(a, b, p)
	if n := p.limit(); n != 0 {
		t.Errorf("a queue begins with the limit %d", n)
	}
	p.saw("made with a limit")
	p.arm(1)
	p.saw("empty", hostverbs.EventSRQLimitReached)
	p.post(rwr(1), rwr(2))
	p.arm(2)
	p.saw("as many as the limit")
	p.arm(3)
	p.saw("one less", hostverbs.EventSRQLimitReached)
	p.arm(2)
	p.arm(0)
	ea.send(wr(1, hostverbs.OpSend), wr(2, hostverbs.OpSend))
	w.settle()
	p.left("disarmed", 0)
	p.saw("disarmed")
}

func limitRefused(t testing.TB, env Env) {
	w := newWorld(t, env)
	g := w.guest()
	p := g.newPool(g.pd, hostverbs.SRQAttr{MaxWR: 16, MaxSGE: 3})
	p.post(rwr(1), rwr(2), rwr(3))
	p.arm(2)
	for _, c := range []struct {
		name string
		attr hostverbs.SRQAttr
		mask hostverbs.SRQAttrMask
		want error
	}{
		{"a limit above the queue's length", hostverbs.SRQAttr{Limit: 17}, hostverbs.SRQLimit, unix.EINVAL},
		{"a limit of 2^32-1", hostverbs.SRQAttr{Limit: 1<<32 - 1}, hostverbs.SRQLimit, unix.EINVAL},
		{"another length", hostverbs.SRQAttr{MaxWR: 32}, hostverbs.SRQMaxWR, unix.EOPNOTSUPP},
		{"both", hostverbs.SRQAttr{MaxWR: 32, Limit: 1}, hostverbs.SRQMaxWR | hostverbs.SRQLimit, unix.EOPNOTSUPP},
		{"nothing", hostverbs.SRQAttr{Limit: 1}, 0, unix.EINVAL},
		{"what no queue has", hostverbs.SRQAttr{Limit: 1}, hostverbs.SRQLimit | 4, unix.EINVAL},
	} {
		w.want(c.name, p.srq.Modify(&c.attr, c.mask), c.want)
		if a, err := p.srq.Query(); err != nil || a != (hostverbs.SRQAttr{MaxWR: 16, MaxSGE: 3, Limit: 2}) {
			t.Errorf("%s: afterwards the queue is %+v, %v", c.name, a, err)
		}
	}
	p.arm(0)
	p.post(make([]hostverbs.RecvWR, 13)...)
	p.arm(16) // the largest
	p.saw("refused")
}

func limitCostsNothing(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	p := b.newPool(b.pd, poolAttr())
	ea, _ := w.sharing(a, b, p)
	p.post(rwr(1), rwr(2), rwr(3))
	p.arm(3)
	p.arm(0)
	asked := p.asked
	ea.send(wr(1, hostverbs.OpSend), wr(2, hostverbs.OpSend))
	w.settle()
	if p.asked != asked {
		t.Errorf("the engine has asked %d times", p.asked-asked)
	}
}

func noReceivesOfItsOwn(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	p := b.newPool(b.pd, poolAttr())
	init := &hostverbs.QPInitAttr{Type: hostverbs.QPTypeRC, Cap: qpCap(), SRQ: p.srq}
	init.Cap.MaxRecvWR, init.Cap.MaxRecvSGE = 1<<32-1, 1<<32-1 // what nobody looks at
	eb := b.create(init)
	if c := eb.query().Cap; c.MaxRecvWR != 0 || c.MaxRecvSGE != 0 || c.MaxSendWR != qpCap().MaxSendWR {
		t.Errorf("the queue pair's limits are %+v", c)
	}
	ea := a.newEnd(hostverbs.QPTypeRC, false)
	ea.up(ea.linkTo(eb), hostverbs.StateRTS)
	eb.up(eb.linkTo(ea), hostverbs.StateRTS)
	eb.recv(rwr(1))
	p.post(rwr(2))
	ea.send(wr(1, hostverbs.OpSend))
	w.settle()
	eb.recvs("a send", hostverbs.WC{WRID: 2, Opcode: hostverbs.WCOpRecv, SrcQP: ea.qp.QPN()})
	eb.to(hostverbs.StateErr)
	w.settle()
	eb.recvs("ERR")
	if eb.dev.pulls != 0 {
		t.Errorf("the engine has looked for receives of the queue pair's own %d times", eb.dev.pulls)
	}
}
