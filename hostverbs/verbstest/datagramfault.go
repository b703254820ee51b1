// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// datagramFaultCases are about what is wrong with a datagram, and with a receive for one.
func datagramFaultCases() []Case {
	return []Case{
		{"a datagram that is longer than the receive leaves it for the next", shortReceive},
		{"a receive that a datagram cannot be written to fails at the receiver alone", badDatagramReceive},
		{"what is wrong with a datagram stops the send queue only", datagramErrors},
		{"a datagram to where no way leads is refused", noWay},
		{"datagrams wait in SQD and are flushed in ERR", datagramStates},
	}
}

func shortReceive(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := a.ud(), b.ud()
	near, far := a.buffer(4096), b.buffer(8192)
	mine := near.fill(1, 1, 4096)
	eb.recv(rwr(2, far.sge(0, 103)))
	for _, n := range []uint64{64, 4096} {
		ea.send(datagram(1, hostverbs.OpSend, eb, near.sge(0, n)))
		w.settle()
		ea.sends("too long", done(1, hostverbs.WCOpSend))
		eb.recvs("too long")
		eb.in("too long", hostverbs.StateRTS)
		eb.events("too long")
	}
	w.verify("too long")
	r := datagram(1, hostverbs.OpSend, eb, near.sge(0, 63))
	ea.send(r)
	w.settle()
	eb.recvs("just right", arrival(2, ea, 63, hostverbs.NetworkIPv4))
	far.header("just right", 0, way{hostverbs.NetworkIPv4, a.gid, b.gid, r.AH, onWire(63, r.Opcode)})
	far.expect(hostverbs.GRHBytes, mine[:63])
	for _, bytes := range []uint64{0, 39} { // not even the header fits
		eb.recv(rwr(3, far.sge(0, bytes)))
		ea.send(datagram(1, hostverbs.OpSend, eb))
		w.settle()
		eb.recvs("no room for the header")
		eb.to(hostverbs.StateReset)
		eb.udUp(hostverbs.StateRTS)
	}
	w.verify("no room for the header")
}

func badDatagramReceive(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near := a.buffer(4096)
	near.fill(1, 1, 4096)
	refused, lying := rwr(8), rwr(8)
	refused.Status, lying.NumSGE = hostverbs.WCLocProtErr, 255
	type badReceive struct {
		name  string
		wr    hostverbs.RecvWR
		bytes uint32
		want  hostverbs.WCStatus
	}
	bad := []badReceive{
		{"refused by the device", refused, 0, hostverbs.WCLocProtErr}, {"255 entries", lying, 0, hostverbs.WCLocQPOpErr},
	}
	for _, c := range b.badSGEs() {
		c.sge.Length = max(c.sge.Length, hostverbs.GRHBytes)
		bytes := min(c.sge.Length-hostverbs.GRHBytes, 4096)
		bad = append(bad, badReceive{c.name, rwr(8, c.sge), bytes, hostverbs.WCLocProtErr})
	}
	ea := a.ud()
	for _, c := range bad {
		eb := b.ud()
		eb.recv(c.wr, rwr(9))
		ea.send(datagram(1, hostverbs.OpSend, eb, near.sge(0, uint64(c.bytes))))
		w.settle()
		ea.sends(c.name, done(1, hostverbs.WCOpSend))
		ea.in(c.name, hostverbs.StateRTS)
		eb.recvs(c.name, failed(8, c.want), failed(9, hostverbs.WCWRFlushErr))
		eb.in(c.name, hostverbs.StateErr)
		w.verify(c.name)
		eb.destroy()
	}
}

// wrongRequest is a request that its own queue pair refuses.
type wrongRequest struct {
	name string
	req  hostverbs.SendWR
	want hostverbs.WCStatus
}

// stops posts requests that are wrong: each completes in error, what follows is flushed, the queue pair is in SQE and
// receives, and works again in RTS. good is one that is right.
func (e *end) stops(good hostverbs.SendWR, all []wrongRequest, receives func(what string)) {
	w := e.g.w
	w.t.Helper()
	for _, c := range all {
		c.req.WRID = 1
		after := good
		after.WRID, after.Flags = 2, 0
		e.send(c.req, after)
		w.settle()
		e.sends(c.name, failed(1, c.want), failed(2, hostverbs.WCWRFlushErr))
		e.in(c.name, hostverbs.StateSQE)
		e.recvs(c.name)
		e.events(c.name)
		receives(c.name)
		after.WRID = 3
		e.send(after)
		w.settle()
		e.sends("SQE after "+c.name, failed(3, hostverbs.WCWRFlushErr))
		e.modify(&hostverbs.QPAttr{QPState: hostverbs.StateRTS, CurQPState: hostverbs.StateSQE},
			hostverbs.QPStateMask|hostverbs.QPCurState)
		after.WRID, after.Flags = 4, hostverbs.SendSignaled
		e.send(after)
		w.settle()
		e.sends("RTS after "+c.name, done(4, sendCompletion(good.Opcode)))
	}
}

func datagramErrors(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := a.ud(), b.ud()
	near, far := a.buffer(8192), b.buffer(4096)
	short := near.sge(0, 8)
	wrong := func(op hostverbs.WROpcode, sges ...hostverbs.SGE) hostverbs.SendWR {
		return datagram(1, op, eb, sges...)
	}
	all := []wrongRequest{
		{"longer than a packet", wrong(hostverbs.OpSend, near.sge(0, 4097)), hostverbs.WCLocLenErr},
		{"longer than a packet in two entries", wrong(hostverbs.OpSend, near.sge(0, 4096), short), hostverbs.WCLocLenErr},
	}
	for op := hostverbs.OpInvalid; op <= hostverbs.OpRegMR; op++ {
		if op != hostverbs.OpSend && op != hostverbs.OpSendWithImm {
			all = append(all, wrongRequest{op.String(), wrong(op, short), hostverbs.WCLocQPOpErr})
		}
	}
	for _, c := range a.badSGEs() {
		c.sge.Length = min(c.sge.Length, 4096)
		if !c.writes {
			all = append(all, wrongRequest{c.name, wrong(hostverbs.OpSend, c.sge), hostverbs.WCLocProtErr})
		}
	}
	refused, lying := wrong(hostverbs.OpSend, short), wrong(hostverbs.OpSend, short)
	refused.Status, lying.NumSGE = hostverbs.WCLocProtErr, 255
	all = append(all, wrongRequest{"refused by the device", refused, hostverbs.WCLocProtErr},
		wrongRequest{"255 entries", lying, hostverbs.WCLocQPOpErr})
	eb.recv(rwr(8, far.sge(0, 4096)))
	ea.stops(datagram(1, hostverbs.OpSend, ea), all, func(what string) {
		eb.recvs(what)
		ea.recv(rwr(6, near.sge(0, 40)))
		r := datagram(5, hostverbs.OpSend, ea)
		eb.send(r)
		w.settle()
		eb.sends("to a QP in SQE", done(5, hostverbs.WCOpSend))
		ea.recvs("in SQE", arrival(6, eb, 0, hostverbs.NetworkIPv4))
		near.header("in SQE", 0, way{hostverbs.NetworkIPv4, b.gid, a.gid, r.AH, onWire(0, r.Opcode)})
		w.verify(what)
	})
}

func noWay(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := a.ud(), b.ud()
	w.want("bind", a.ctx.BindGID(1, hostverbs.GID{0: 0xfe, 1: 0x80, 15: 1}, hostverbs.GIDTypeRoCEv2), nil)
	w.want("bind", a.ctx.BindGID(2, hostverbs.GID{0: 0xfe, 1: 0x80, 15: 2}, hostverbs.GIDTypeRoCEv2), nil)
	w.want("unbind", a.ctx.UnbindGID(2, hostverbs.GID{0: 0xfe, 1: 0x80, 15: 2}), nil)
	var all []wrongRequest
	for name, spoil := range map[string]func(ah *hostverbs.AHAttr){
		"from a number that nothing is bound to": func(ah *hostverbs.AHAttr) { ah.SGIDIndex = 2 },
		"from a number beyond the table":         func(ah *hostverbs.AHAttr) { ah.SGIDIndex = gidTableLen },
		"from number 255":                        func(ah *hostverbs.AHAttr) { ah.SGIDIndex = 255 },
		"to nobody":                              func(ah *hostverbs.AHAttr) { ah.DGID = hostverbs.GID{} },
		"to a multicast group":                   func(ah *hostverbs.AHAttr) { ah.DGID = hostverbs.GID{0: 0xff, 1: 0x0e, 15: 1} },
		"to a multicast group of IPv4": func(ah *hostverbs.AHAttr) {
			ah.DGID = hostverbs.GID{10: 0xff, 11: 0xff, 12: 239, 15: 1}
		},
		"to a multicast group of the sender's family": func(ah *hostverbs.AHAttr) {
			ah.SGIDIndex, ah.DGID = 1, hostverbs.GID{0: 0xff, 1: 0x02, 15: 1}
		},
		"from IPv6 to IPv4":    func(ah *hostverbs.AHAttr) { ah.SGIDIndex = 1 },
		"from IPv4 to IPv6":    func(ah *hostverbs.AHAttr) { ah.DGID = hostverbs.GID{0: 0xfe, 1: 0x80, 15: 9} },
		"through no port":      func(ah *hostverbs.AHAttr) { ah.PortNum = 0 },
		"through another port": func(ah *hostverbs.AHAttr) { ah.PortNum = 2 },
		"without a GRH":        func(ah *hostverbs.AHAttr) { ah.GRH = false },
	} {
		r := datagram(1, hostverbs.OpSend, eb)
		spoil(&r.AH)
		all = append(all, wrongRequest{name, r, hostverbs.WCLocQPOpErr})
	}
	eb.recv(rwr(8, b.buffer(64).sge(0, 64)))
	ea.stops(datagram(1, hostverbs.OpSend, ea), all, func(what string) { eb.recvs(what) })
}

func datagramStates(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	ea, eb := a.ud(), b.ud()
	far := b.buffer(40)
	eb.recv(rwr(8, far.sge(0, 40)))
	ea.drain(true)
	ea.send(datagram(1, hostverbs.OpSend, eb))
	w.settle()
	ea.events("nothing is under way", hostverbs.EventSQDrained)
	ea.sends("in SQD")
	eb.recvs("in SQD")
	ea.to(hostverbs.StateRTS)
	w.settle()
	ea.sends("back in RTS", done(1, hostverbs.WCOpSend))
	eb.recvs("back in RTS", arrival(8, ea, 0, hostverbs.NetworkIPv4))
	ea.recv(rwr(9), rwr(10))
	ea.to(hostverbs.StateErr)
	ea.send(datagram(2, hostverbs.OpSend, eb))
	w.settle()
	ea.sends("ERR", failed(2, hostverbs.WCWRFlushErr))
	ea.recvs("ERR", flushed(9, 2)...)
	ea.to(hostverbs.StateReset)
	ea.udUp(hostverbs.StateRTS)
	ea.recv(rwr(11, a.buffer(40).sge(0, 40)))
	ea.send(datagram(3, hostverbs.OpSend, ea))
	w.settle()
	ea.sends("RESET", done(3, hostverbs.WCOpSend))
	ea.recvs("RESET", arrival(11, ea, 0, hostverbs.NetworkIPv4))
}
