// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"fmt"
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// datagramCases are about UD queue pairs.
func datagramCases() []Case {
	return []Case{
		{"a datagram of any size arrives behind the header of its way", datagramSizes},
		{"the header in front of a datagram is that of the addresses' family", datagramFamilies},
		{"a datagram is spread over a receive as over one buffer", datagramScatter},
		{"a queue pair sends datagrams to itself", datagramToItself},
		{"a datagram says who sent it, and whoever knows the Q_Key may send", manySenders},
		{"a datagram completes whether or not anybody receives it", datagramLost},
		{"a Q_Key with its high bit set stands for the queue pair's own", ownQKey},
	}
}

// udQKey is the Q_Key of the tests' queue pairs, udSizes are the edges of datagrams.
const udQKey = 0x11223344

func udSizes() []int {
	return []int{0, 1, 2, 3, 4, 63, 64, 215, 216, 217, 256, 1023, 1024, 4055, 4056, 4095, 4096}
}

// ud creates a UD queue pair in RTS.
func (g *guest) ud() *end {
	g.w.t.Helper()
	e := g.newEnd(hostverbs.QPTypeUD, false)
	e.udUp(hostverbs.StateRTS)
	return e
}

// udUp moves a UD queue pair from RESET to a state on the way to RTS.
func (e *end) udUp(to hostverbs.QPState) {
	e.g.w.t.Helper()
	e.udUpWith(to, udQKey)
}

func (e *end) udUpWith(to hostverbs.QPState, qkey uint32) {
	e.g.w.t.Helper()
	for s := hostverbs.StateInit; s <= to; s++ {
		required, _, _ := hostverbs.Transition(e.typ, s-1, s)
		e.modify(&hostverbs.QPAttr{QPState: s, PortNum: 1, QKey: qkey, SQPSN: 0xfffffe}, hostverbs.QPStateMask|required)
	}
}

// datagram makes a signalled request for a queue pair.
func datagram(id uint64, op hostverbs.WROpcode, to *end, sges ...hostverbs.SGE) hostverbs.SendWR {
	r := wr(id, op, sges...)
	r.RemoteQPN, r.RemoteQKey = to.qp.QPN(), udQKey
	r.AH = hostverbs.AHAttr{DGID: to.g.gid, GRH: true, PortNum: 1, HopLimit: 7, TrafficClass: 0xb8, FlowLabel: 0xabcde}
	return r
}

// arrival is the completion of a receive whose datagram had n bytes.
func arrival(id uint64, from *end, n int, network hostverbs.Network) hostverbs.WC {
	return hostverbs.WC{
		WRID: id, Opcode: hostverbs.WCOpRecv, ByteLen: hostverbs.GRHBytes + uint32(n), SrcQP: from.qp.QPN(),
		Flags: hostverbs.WCGRH | hostverbs.WCWithNetworkHdrType, NetworkHdrType: network,
	}
}

func datagramSizes(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := a.ud(), b.ud()
	near, far := a.buffer(8192), b.buffer(8192)
	for i, n := range udSizes() {
		for _, op := range []hostverbs.WROpcode{hostverbs.OpSend, hostverbs.OpSendWithImm} {
			id := uint64(i)*2 + uint64(op)
			what := fmt.Sprintf("%s of %d bytes", op, n)
			mine := near.fill(1, id, n+64)
			far.fill(2, id, n+128)
			r := datagram(id, op, eb, near.sge(17, uint64(n)))
			r.Imm = uint32(id) * 0x01020304
			eb.recv(rwr(id+1000, far.sge(9, uint64(n)+hostverbs.GRHBytes)))
			ea.send(r)
			w.settle()
			ea.sends(what, done(id, hostverbs.WCOpSend))
			want := arrival(id+1000, ea, n, hostverbs.NetworkIPv4)
			if op == hostverbs.OpSendWithImm {
				want.Flags |= hostverbs.WCWithImm
				want.Imm = r.Imm
			}
			eb.recvs(what, want)
			far.header(what, 9, way{hostverbs.NetworkIPv4, a.gid, b.gid, r.AH, onWire(n, op)})
			far.expect(9+hostverbs.GRHBytes, mine[17:17+n])
			w.verify(what)
		}
	}
	if got := ea.query().SQPSN; got != (0xfffffe+2*uint32(len(udSizes())))&0xffffff {
		t.Errorf("sq_psn %#x after %d datagrams", got, 2*len(udSizes()))
	}
}

// onWire is what follows the network's header: BTH, DETH, the immediate, the bytes filled up to four, and the CRC.
func onWire(n int, op hostverbs.WROpcode) int {
	const bth, deth, imm, icrc = 12, 8, 4, 4
	n = (n+3)&^3 + bth + deth + icrc
	if op == hostverbs.OpSendWithImm {
		n += imm
	}
	return n
}

func datagramFamilies(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := a.ud(), b.ud()
	near, far := a.buffer(64), b.buffer(64+hostverbs.GRHBytes)
	for i, c := range []struct {
		network hostverbs.Network
		typ     hostverbs.GIDType
		gid     func(n byte) hostverbs.GID
	}{
		{hostverbs.NetworkIPv6, hostverbs.GIDTypeRoCEv2, func(n byte) hostverbs.GID { return hostverbs.GID{0: 0xfe, 1: 0x80, 9: 7, 15: n} }},
		{hostverbs.NetworkIPv6, hostverbs.GIDTypeRoCEv2, func(n byte) hostverbs.GID { return hostverbs.GID{0: 0x20, 1: 1, 10: 0xff, 11: 0xff, 15: n} }},
		{hostverbs.NetworkIPv4, hostverbs.GIDTypeRoCEv2, func(n byte) hostverbs.GID { return hostverbs.GID{10: 0xff, 11: 0xff, 12: 172, 15: n} }},
		{hostverbs.NetworkRoCEv1, hostverbs.GIDTypeRoCEv1, func(n byte) hostverbs.GID { return hostverbs.GID{0: 0xfe, 1: 0x80, 9: 8, 15: n} }},
		{hostverbs.NetworkRoCEv1, hostverbs.GIDTypeRoCEv1, func(n byte) hostverbs.GID { return hostverbs.GID{10: 0xff, 11: 0xff, 12: 192, 15: n} }},
	} {
		sgid, dgid := c.gid(1), c.gid(2)
		w.want("bind", a.ctx.BindGID(2, sgid, c.typ), nil)
		w.want("bind", b.ctx.BindGID(3, dgid, c.typ), nil)
		what := fmt.Sprintf("from %s to %s, %s", sgid, dgid, c.typ)
		mine := near.fill(1, uint64(i), 64)
		r := datagram(1, hostverbs.OpSend, eb, near.sge(0, 61))
		r.AH.DGID, r.AH.SGIDIndex = dgid, 2
		eb.recv(rwr(2, far.sge(0, 61+hostverbs.GRHBytes)))
		ea.send(r)
		w.settle()
		ea.sends(what, done(1, hostverbs.WCOpSend))
		eb.recvs(what, arrival(2, ea, 61, c.network))
		far.header(what, 0, way{c.network, sgid, dgid, r.AH, onWire(61, r.Opcode)})
		far.expect(hostverbs.GRHBytes, mine[:61])
		w.verify(what)
	}
}

func datagramScatter(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := a.ud(), b.ud()
	near := a.buffer(4096)
	far := b.register(5*page, shape{access: everything, start: 0x10_0000_0abc, scatter: true})
	mine := near.fill(1, 1, 4096)
	// The header ends in the fourth entry; one without length names no memory, and one behind the end is not looked at.
	ends := []uint64{7, 7, 30, 41, 42, 3000, 4136, 5000}
	var in []hostverbs.SGE
	for i, at := 0, uint64(0); i < len(ends); i++ {
		in = append(in, far.sge(at, ends[i]-at))
		at = ends[i]
	}
	in[1].LKey = 0xdeadbeef
	out := []hostverbs.SGE{near.sge(0, 1), {LKey: 0xdeadbeef}, near.sge(1, 2), near.sge(3, 1000), near.sge(1003, 3093)}
	eb.recv(rwr(8, in...))
	r := datagram(1, hostverbs.OpSend, eb, out...)
	ea.send(r)
	w.settle()
	ea.sends("five entries", done(1, hostverbs.WCOpSend))
	eb.recvs("eight entries", arrival(8, ea, 4096, hostverbs.NetworkIPv4))
	far.header("eight entries", 0, way{hostverbs.NetworkIPv4, a.gid, b.gid, r.AH, onWire(4096, r.Opcode)})
	far.expect(hostverbs.GRHBytes, mine)
	w.verify("five entries to eight")
}

func datagramToItself(t testing.TB, env Env) {
	w := newWorld(t, env)
	a := w.guest()
	e, other := a.ud(), a.ud()
	buf := a.buffer(4096)
	for i, to := range []*end{e, other} {
		mine := buf.fill(1, uint64(i), 100)
		r := datagram(1, hostverbs.OpSend, to, buf.sge(0, 100))
		r.Flags |= hostverbs.SendSolicited
		to.recv(rwr(2, buf.sge(1000, 140)))
		e.send(r)
		w.settle()
		e.sends("within a guest", done(1, hostverbs.WCOpSend))
		want := arrival(2, e, 100, hostverbs.NetworkIPv4)
		want.Solicited = true
		to.recvs("within a guest", want)
		buf.header("within a guest", 1000, way{hostverbs.NetworkIPv4, a.gid, a.gid, r.AH, onWire(100, r.Opcode)})
		buf.expect(1040, mine)
		w.verify("within a guest")
	}
}

func manySenders(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b, c := w.guest(), w.guest(), w.guest()
	to := b.ud()
	far := b.buffer(4096)
	for i, from := range []*end{a.ud(), a.ud(), c.ud(), b.ud()} {
		near := from.g.buffer(64)
		mine := near.fill(uint64(i), 1, 64)
		to.recv(rwr(uint64(i), far.sge(0, 104)))
		r := datagram(1, hostverbs.OpSend, to, near.sge(0, 64))
		from.send(r)
		w.settle()
		from.sends("one of many", done(1, hostverbs.WCOpSend))
		to.recvs("one of many", arrival(uint64(i), from, 64, hostverbs.NetworkIPv4))
		far.header("one of many", 0, way{hostverbs.NetworkIPv4, from.g.gid, b.gid, r.AH, onWire(64, r.Opcode)})
		far.expect(hostverbs.GRHBytes, mine)
		w.verify("one of many")
	}
}

func datagramLost(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b, c := w.guest(), w.guest(), w.guest()
	near, far := a.buffer(64), b.buffer(128)
	third := c.ud()
	third.recv(rwr(7, c.buffer(128).sge(0, 104)))
	ea, rc := a.ud(), b.newEnd(hostverbs.QPTypeRC, false)
	rc.up(rc.linkTo(rc), hostverbs.StateRTS)
	rc.recv(rwr(5, far.sge(0, 104)))
	for name, spoil := range map[string]func(r *hostverbs.SendWR, eb *end){
		"address of nobody":        func(r *hostverbs.SendWR, _ *end) { r.AH.DGID[14] = 99 },
		"address of another guest": func(r *hostverbs.SendWR, _ *end) { r.AH.DGID = c.gid },
		"QP number of nobody":      func(r *hostverbs.SendWR, _ *end) { r.RemoteQPN = 0xabcdef },
		"QP number 0":              func(r *hostverbs.SendWR, _ *end) { r.RemoteQPN = 0 },
		"QP number 1, and no such": func(r *hostverbs.SendWR, _ *end) { r.RemoteQPN = 1 },
		"QP number of multicast":   func(r *hostverbs.SendWR, _ *end) { r.RemoteQPN = 0xffffff },
		"QP number beyond 24 bits": func(r *hostverbs.SendWR, _ *end) { r.RemoteQPN |= 1 << 24 },
		"QP of another type":       func(r *hostverbs.SendWR, _ *end) { r.RemoteQPN = rc.qp.QPN() },
		"another Q_Key":            func(r *hostverbs.SendWR, _ *end) { r.RemoteQKey++ },
		"a QP in RESET":            func(_ *hostverbs.SendWR, eb *end) { eb.to(hostverbs.StateReset) },
		"a QP in INIT": func(_ *hostverbs.SendWR, eb *end) {
			eb.to(hostverbs.StateReset)
			eb.udUp(hostverbs.StateInit)
		},
		"a QP in ERR": func(_ *hostverbs.SendWR, eb *end) {
			eb.to(hostverbs.StateErr)
			w.settle()
			eb.recvs("ERR", flushed(8, 1)...)
		},
		"a QP that is gone": func(_ *hostverbs.SendWR, eb *end) { eb.destroy() },
		"no receive": func(_ *hostverbs.SendWR, eb *end) {
			eb.do(func() { eb.dev.rq = nil })
		},
	} {
		eb := b.ud()
		eb.recv(rwr(8, far.sge(0, 104)))
		r := datagram(1, hostverbs.OpSend, eb, near.sge(0, 64))
		spoil(&r, eb)
		quiet := r
		quiet.Flags = 0
		ea.send(r, quiet)
		w.settle()
		ea.sends(name, done(1, hostverbs.WCOpSend))
		eb.recvs(name)
		rc.recvs(name)
		third.recvs(name)
		eb.events(name)
		ea.in(name, hostverbs.StateRTS)
		w.verify(name)
	}
}

func ownQKey(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := a.ud(), b.ud()
	far := b.buffer(64)
	set := func(e *end, key uint32) { e.modify(&hostverbs.QPAttr{QKey: key}, hostverbs.QPQKey) }
	for _, c := range []struct {
		name            string
		sender, in, has uint32
		arrives         bool
	}{
		{"the request's", 1, 2, 2, true},
		{"the queue pair's own is not the request's", 1, 2, 1, false},
		{"high bit", 5, 0x80000000, 5, true},
		{"high bit, whatever is below", 5, 0x80010007, 5, true},
		{"high bit is no key", 5, 0x80010007, 0x80010007, false},
		{"a controlled key of one's own", 0x80010000, 0xffffffff, 0x80010000, true},
	} {
		set(ea, c.sender)
		set(eb, c.has)
		eb.recv(rwr(2, far.sge(0, 40)))
		r := datagram(1, hostverbs.OpSend, eb)
		r.RemoteQKey = c.in
		ea.send(r)
		w.settle()
		ea.sends(c.name, done(1, hostverbs.WCOpSend))
		if c.arrives {
			eb.recvs(c.name, arrival(2, ea, 0, hostverbs.NetworkIPv4))
			continue
		}
		eb.recvs(c.name)
		eb.do(func() { eb.dev.rq = nil })
	}
}
