// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// gsiCases are about QP 1.
func gsiCases() []Case {
	return []Case{
		{"the management layer of a guest can bring up its GSI queue pair", gsiBringUp},
		{"a guest has one GSI queue pair", gsiOnlyOne},
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
	e.modify(&hostverbs.QPAttr{QPState: hostverbs.StateInit, QKey: 0x80010000},
		hostverbs.QPStateMask|hostverbs.QPPKeyIndex|hostverbs.QPQKey)
	e.to(hostverbs.StateRTR)
	e.modify(&hostverbs.QPAttr{QPState: hostverbs.StateRTS}, hostverbs.QPStateMask|hostverbs.QPSQPSN)
}

// mad is a management datagram to a guest that does not exist.
func mad(id uint64, sges ...hostverbs.SGE) hostverbs.SendWR {
	r := wr(id, hostverbs.OpSend, sges...)
	r.Flags, r.RemoteQPN, r.RemoteQKey = 0, 1, 0x80010000
	r.AH = hostverbs.AHAttr{GRH: true, PortNum: 1, DGID: hostverbs.GID{15: 250}}
	return r
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
