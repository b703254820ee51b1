// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// gsiCases are about QP 1.
func gsiCases() []Case {
	return []Case{
		{"the management layer of a guest can bring up its GSI queue pair", gsiBringUp},
		{"a guest has one GSI queue pair", gsiOnlyOne},
		{"a management datagram goes to the guest that has the address, and to nobody else", madByAddress},
		{"a management datagram may be in any pieces on both sides", madPieces},
		{"what is no management datagram reaches nobody", noMAD},
		{"a guest that floods another one's GSI queue pair leaves it receives for others, and loses nothing", madFlood},
		{"a program's datagrams flood another guest's GSI queue pair no more than its kernel's", programFlood},
		{"a wrong request stops the GSI queue pair's send queue only", gsiErrors},
	}
}

// gsi creates the guest's GSI queue pair and moves it to RTS as Linux does.
func (g *guest) gsi() *end {
	g.w.t.Helper()
	e := g.create(&hostverbs.QPInitAttr{
		Type: hostverbs.QPTypeGSI, SQSigAll: true,
		Cap: hostverbs.QPCap{MaxSendWR: 128, MaxRecvWR: 512, MaxSendSGE: 2, MaxRecvSGE: 1},
	})
	e.gsiUp()
	return e
}

// gsiUp moves a GSI queue pair from RESET to RTS.
func (e *end) gsiUp() {
	e.g.w.t.Helper()
	e.modify(&hostverbs.QPAttr{QPState: hostverbs.StateInit, QKey: gsiQKey},
		hostverbs.QPStateMask|hostverbs.QPPKeyIndex|hostverbs.QPQKey)
	e.to(hostverbs.StateRTR)
	e.modify(&hostverbs.QPAttr{QPState: hostverbs.StateRTS}, hostverbs.QPStateMask|hostverbs.QPSQPSN)
}

// mad is a management datagram to a guest that does not exist.
func mad(id uint64, sges ...hostverbs.SGE) hostverbs.SendWR {
	r := wr(id, hostverbs.OpSend, sges...)
	r.Flags, r.RemoteQPN, r.RemoteQKey = 0, 1, gsiQKey
	r.AH = hostverbs.AHAttr{GRH: true, PortNum: 1, DGID: hostverbs.GID{10: 0xff, 11: 0xff, 12: 10, 15: 250}, HopLimit: 1}
	return r
}

const (
	gsiQKey  = 0x80010000
	madBytes = 256
)

// fillMAD writes a connection request into the region's first bytes, and returns it.
func (r *region) fillMAD(seed uint64) []byte {
	b := pattern(seed, 1, madBytes)
	copy(b, []byte{1, 7, 2, 3}) // base version, class CM, its version, method Send
	r.put(0, b)
	return b
}

func gsiBringUp(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	buf := a.buffer(4096)
	buf.fill(1, 1, 4096)
	e := a.gsi()
	b.gsi()
	if e.qp.QPN() != 1 {
		t.Errorf("the GSI QP has number %d", e.qp.QPN())
	}
	e.in("brought up", hostverbs.StateRTS)
	for i := range uint64(512) {
		e.recv(rwr(i, buf.sge(0, 296)))
	}
	w.settle()
	e.recvs("512 receives")
	e.send(mad(1, buf.sge(0, 24), buf.sge(24, 232)), mad(2, buf.sge(0, 256)))
	w.settle()
	e.sends("two datagrams", done(1, hostverbs.WCOpSend), done(2, hostverbs.WCOpSend))
	if left := len(e.dev.rq); left != 512 {
		t.Errorf("%d of 512 receives are left with the device", left)
	}
	e.to(hostverbs.StateErr)
	w.settle()
	e.recvs("ERR", flushed(0, 512)...)
	w.verify("management datagrams")
}

func gsiOnlyOne(t testing.TB, env Env) {
	w := newWorld(t, env)
	g := w.guest()
	e := g.gsi()
	init := initAttr(g.mustCQ())
	init.Type = hostverbs.QPTypeGSI
	_, err := g.ctx.CreateQP(g.pd, init, &device{})
	w.want("a second one", err, unix.EBUSY)
	e.destroy()
	again, err := g.ctx.CreateQP(g.pd, init, &device{})
	w.want("after the first is gone", err, nil)
	w.want("destroy", again.Destroy(), nil)
}

func madByAddress(t testing.TB, env Env) {
	w := newWorld(t, env)
	guests := []*guest{w.guest(), w.guest(), w.guest()}
	ends, bufs := make([]*end, 3), make([]*region, 3)
	for i, g := range guests {
		ends[i], bufs[i] = g.gsi(), g.buffer(4096)
		ends[i].recv(rwr(1, bufs[i].sge(1024, 296)))
	}
	for from, a := range ends {
		for to, b := range ends {
			what := fmt.Sprintf("from guest %d to guest %d", from+1, to+1)
			sent := bufs[from].fillMAD(uint64(3*from + to))
			r := mad(7, bufs[from].sge(0, 24), bufs[from].sge(24, 232))
			r.AH.DGID = guests[to].gid
			a.send(r)
			w.settle()
			a.sends(what, done(7, hostverbs.WCOpSend))
			for i, e := range ends {
				if i != to {
					e.recvs(what)
				}
			}
			b.recvs(what, arrival(1, a, madBytes, hostverbs.NetworkIPv4))
			bufs[to].header(what, 1024, way{hostverbs.NetworkIPv4, guests[from].gid, guests[to].gid, r.AH, onWire(madBytes, r.Opcode)})
			bufs[to].expect(1024+hostverbs.GRHBytes, sent)
			w.verify(what)
			b.recv(rwr(1, bufs[to].sge(1024, 296)))
		}
	}
	wrong := mad(8, bufs[0].sge(0, madBytes))
	wrong.AH.DGID, wrong.RemoteQKey = guests[1].gid, 0x11223344
	ends[0].send(mad(7, bufs[0].sge(0, madBytes)), wrong)
	w.settle()
	ends[0].sends("to nobody, and with another Q_Key", done(7, hostverbs.WCOpSend), done(8, hostverbs.WCOpSend))
	for _, e := range ends {
		e.recvs("to nobody, and with another Q_Key")
	}
	w.verify("to nobody, and with another Q_Key")
}

// madPieces has more pieces than Linux makes of a management datagram, and fewer.
func madPieces(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	wide := func(g *guest) *end {
		e := g.create(&hostverbs.QPInitAttr{Type: hostverbs.QPTypeGSI, SQSigAll: true, Cap: qpCap()})
		e.gsiUp()
		return e
	}
	ea, eb := wide(a), wide(b)
	near, far := a.buffer(4096), b.buffer(4096)
	for i, n := range []uint64{1, 2, 3, 5, hostverbs.MaxSGE} {
		what := fmt.Sprintf("sent in %d pieces, received in %d", n, hostverbs.MaxSGE+1-n)
		sent := near.fillMAD(uint64(i))
		eb.recv(rwr(1, far.cut(1024, madBytes+hostverbs.GRHBytes, hostverbs.MaxSGE+1-n)...))
		r := mad(7, near.cut(0, madBytes, n)...)
		r.AH.DGID = b.gid
		ea.send(r)
		w.settle()
		ea.sends(what, done(7, hostverbs.WCOpSend))
		eb.recvs(what, arrival(1, ea, madBytes, hostverbs.NetworkIPv4))
		far.header(what, 1024, way{hostverbs.NetworkIPv4, a.gid, b.gid, r.AH, onWire(madBytes, r.Opcode)})
		far.expect(1024+hostverbs.GRHBytes, sent)
		w.verify(what)
	}
}

// cut names n bytes at off in pieces.
func (r *region) cut(off, n, pieces uint64) (out []hostverbs.SGE) {
	for i := range pieces {
		from, to := n*i/pieces, n*(i+1)/pieces
		out = append(out, r.sge(off+from, to-from))
	}
	return out
}

func noMAD(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := a.gsi(), b.gsi()
	near, far := a.buffer(4096), b.buffer(4096)
	eb.recv(rwr(1, far.sge(0, 296)))
	for name, spoil := range map[string]func(b []byte) (n uint64){
		"nothing":                         func([]byte) uint64 { return 0 },
		"a header alone":                  func([]byte) uint64 { return 24 },
		"a byte less":                     func([]byte) uint64 { return madBytes - 1 },
		"a version that there is not":     func(b []byte) uint64 { b[0] = 2; return madBytes },
		"subnet management":               func(b []byte) uint64 { b[1] = 0x01; return madBytes },
		"subnet management by a route":    func(b []byte) uint64 { b[1] = 0x81; return madBytes },
		"connection management that asks": func(b []byte) uint64 { b[3], b[16], b[17] = 1, 0, 0x10; return madBytes },
	} {
		m := near.fillMAD(1)
		n := spoil(m)
		near.put(0, m)
		r := mad(7, near.sge(0, n))
		r.AH.DGID = b.gid
		ea.send(r)
		w.settle()
		ea.sends(name, done(7, hostverbs.WCOpSend))
		eb.recvs(name)
		w.verify(name)
	}
}

func madFlood(t testing.TB, env Env) { flood(t, env, (*guest).gsi) }

// programFlood has a program send that knows the Q_Key of management datagrams.
func programFlood(t testing.TB, env Env) {
	flood(t, env, func(g *guest) *end {
		e := g.newEnd(hostverbs.QPTypeUD, true)
		e.udUpWith(hostverbs.StateRTS, gsiQKey)
		return e
	})
}

func flood(t testing.TB, env Env, sender func(*guest) *end) {
	w := newWorld(t, env)
	a, b, c := w.guest(), w.guest(), w.guest()
	ea, eb, ec := sender(a), b.gsi(), c.gsi()
	flood, lone, far := a.buffer(4096), c.buffer(4096), b.buffer(4096)
	flood.fillMAD(1)
	lone.fillMAD(1)
	const receives, sends = 512, 2000
	for i := range uint64(receives) {
		eb.recv(rwr(i, far.sge(0, 296)))
	}
	request := func(id uint64, from *region) hostverbs.SendWR {
		r := mad(id, from.sge(0, madBytes))
		r.AH.DGID = b.gid
		return r
	}
	for i := range uint64(sends) {
		ea.send(request(i, flood))
	}
	w.elapse(1_000_000)
	eb.dev.received = nil
	ec.send(request(1, lone))
	w.spin()
	ec.sends("one among many", done(1, hostverbs.WCOpSend))
	if n := len(eb.dev.received); n != 1 {
		t.Errorf("%d datagrams arrived, want the one of the guest that sends one", n)
	}
	// From now on the receiver posts again what it has used.
	eb.dev.onRecv = func() { eb.dev.rq = append(eb.dev.rq, rwr(0, far.sge(0, 296))) }
	w.settle()
	var want []hostverbs.WC
	for i := range uint64(sends) {
		want = append(want, done(i, hostverbs.WCOpSend))
	}
	ea.sends("all", want...)
	if left := len(eb.dev.rq); left < receives/2 {
		t.Errorf("%d of %d receives are left: the flood took too many at once", left, receives)
	}
	if n := len(eb.dev.received); n < sends-receives/2 {
		t.Errorf("%d datagrams arrived later, of %d", n, sends)
	}
	w.believe()
}

func gsiErrors(t testing.TB, env Env) {
	w := newWorld(t, env)
	g := w.guest()
	buf := g.buffer(8192)
	e := g.gsi()
	e.recv(rwr(9, buf.sge(0, 296)))
	three := mad(1, buf.sge(0, 1), buf.sge(0, 1), buf.sge(0, 1))
	write := mad(1, buf.sge(0, 256))
	write.Opcode = hostverbs.OpRDMAWrite
	refused := mad(1, buf.sge(0, 256))
	refused.Status = hostverbs.WCLocProtErr
	for _, c := range []struct {
		name string
		req  hostverbs.SendWR
		want hostverbs.WCStatus
	}{
		{"key of nothing", mad(1, hostverbs.SGE{Addr: 1, Length: 1, LKey: 0xdeadbeef}), hostverbs.WCLocProtErr},
		{"longer than a packet", mad(1, buf.sge(0, 4097)), hostverbs.WCLocLenErr},
		{"more entries than asked for", three, hostverbs.WCLocQPOpErr},
		{"a WRITE", write, hostverbs.WCLocQPOpErr},
		{"refused by the device", refused, hostverbs.WCLocProtErr},
	} {
		e.send(c.req, mad(2, buf.sge(0, 256)))
		w.settle()
		e.sends(c.name, failed(1, c.want), failed(2, hostverbs.WCWRFlushErr))
		e.in(c.name, hostverbs.StateSQE)
		e.recvs(c.name)
		e.to(hostverbs.StateRTS)
		e.send(mad(3, buf.sge(0, 256)))
		w.settle()
		e.sends("after "+c.name, done(3, hostverbs.WCOpSend))
	}
}
