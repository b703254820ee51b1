// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"fmt"
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// attrCases are about attributes that take effect.
func attrCases() []Case {
	return []Case{
		{"the path MTU cuts messages into packets", pathMTU},
		{"ends of different path MTUs exchange messages of one packet", differentMTUs},
		{"a timeout is as long as its code says", timeouts},
		{"what a requester is told in SQD holds from then on", requesterInSQD},
		{"what a responder is told in SQD holds from then on", responderInSQD},
		{"what a responder is told in RTS holds from then on", responderInRTS},
		{"an address that is changed in SQD is where messages go", addressInSQD},
	}
}

// mtus are all path MTUs.
func mtus() []hostverbs.MTU {
	return []hostverbs.MTU{hostverbs.MTU256, hostverbs.MTU512, hostverbs.MTU1024, hostverbs.MTU2048, hostverbs.MTU4096}
}

func pathMTU(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near, far := a.buffer(3*page+1), b.buffer(3*page+1)
	for _, mtu := range mtus() {
		ea, eb := w.pair(a, b, func(la, lb *link) { la.mtu, lb.mtu = mtu, mtu })
		psn := ea.query().SQPSN
		size := mtu.Bytes()
		for _, c := range []struct{ bytes, packets int }{{0, 1}, {1, 1}, {size, 1}, {size + 1, 2}, {3 * size, 3}, {3*size + 1, 4}} {
			for _, op := range []hostverbs.WROpcode{hostverbs.OpRDMAWrite, hostverbs.OpRDMARead, hostverbs.OpSend} {
				if op == hostverbs.OpSend {
					eb.recv(rwr(1, far.sge(0, uint64(c.bytes))))
				}
				ea.send(rdma(1, op, far, 0, near.sge(0, uint64(c.bytes))))
				w.settle()
				psn = (psn + uint32(c.packets)) & 0xffffff
				if got, there := ea.query().SQPSN, eb.query().RQPSN; got != psn || there != psn {
					t.Errorf("%s of %d bytes in packets of %s: sq_psn %#x, the peer's rq_psn %#x, want %#x", op, c.bytes, mtu, got, there, psn)
				}
			}
		}
		w.believe()
		ea.destroy()
		eb.destroy()
	}
}

func differentMTUs(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near, far := a.buffer(3*page), b.buffer(3*page)
	for _, c := range [][2]hostverbs.MTU{
		{hostverbs.MTU256, hostverbs.MTU4096}, {hostverbs.MTU4096, hostverbs.MTU256}, {hostverbs.MTU1024, hostverbs.MTU2048},
	} {
		small := uint64(min(c[0], c[1]).Bytes())
		for _, m := range moves() {
			for n, want := range map[uint64]hostverbs.WCStatus{
				0: hostverbs.WCSuccess, small: hostverbs.WCSuccess, small + 1: hostverbs.WCRemInvReqErr, 2 * small: hostverbs.WCRemInvReqErr,
				2 * page: hostverbs.WCRemInvReqErr,
			} {
				what := fmt.Sprintf("%s of %d bytes, path MTU %s to %s", m.op, n, c[0], c[1])
				ea, eb := w.pair(a, b, func(la, lb *link) { la.mtu, lb.mtu = c[0], c[1] })
				eb.recv(rwr(9, far.sge(0, 2*page)))
				ea.send(rdma(1, m.op, far, 0, near.sge(0, n)))
				w.settle()
				if got := len(ea.dev.sent); got != 1 || ea.dev.sent[0].Status != want {
					t.Errorf("%s: completions %+v, want %s", what, ea.dev.sent, want)
				}
				if want != hostverbs.WCSuccess {
					eb.events(what, hostverbs.EventQPReqErr)
					eb.recvs(what, failed(9, hostverbs.WCWRFlushErr))
				}
				w.verify(what)
				ea.destroy()
				eb.destroy()
			}
		}
	}
}

// lost is how long a message takes to end that nobody answers.
func (w *world) lost(what string, ea *end) int64 {
	w.t.Helper()
	since := w.env.Clock.Now()
	ea.send(wr(1, hostverbs.OpRDMAWrite))
	w.settle()
	ea.sends(what, failed(1, hostverbs.WCRetryExcErr))
	return ea.dev.sentAt - since
}

func timeouts(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	for _, code := range []uint8{1, 5, 10, 14, 18} {
		for _, retries := range []uint8{0, 1, 7} {
			what := fmt.Sprintf("timeout %d, %d retries", code, retries)
			ea, eb := w.pair(a, b, func(la, lb *link) {
				la.timeout, la.retry = code, retries
				lb.timeout, lb.retry = 20, 2 // these are for the other direction
			})
			eb.to(hostverbs.StateReset)
			w.within(what, w.lost(what, ea), 4096<<code*int64(retries+1))
			ea.destroy()
			eb.destroy()
		}
	}
}

// inSQD changes attributes of a queue pair that is connected, by way of SQD.
func (e *end) inSQD(a hostverbs.QPAttr, mask hostverbs.AttrMask) {
	e.g.w.t.Helper()
	e.drain(false)
	e.g.w.settle()
	e.modify(&a, mask)
	e.to(hostverbs.StateRTS)
}

func requesterInSQD(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()

	ea, eb := w.pair(a, b, nil)
	ea.inSQD(hostverbs.QPAttr{Timeout: 12, RetryCnt: 1}, hostverbs.QPTimeout|hostverbs.QPRetryCnt)
	eb.to(hostverbs.StateReset)
	w.within("timeout and retry_cnt", w.lost("timeout and retry_cnt", ea), 2*4096<<12)

	ea, _ = w.pair(a, b, nil)
	ea.inSQD(hostverbs.QPAttr{RNRRetry: 1}, hostverbs.QPRNRRetry)
	since := w.env.Clock.Now()
	ea.send(wr(1, hostverbs.OpSend))
	w.settle()
	ea.sends("rnr_retry", failed(1, hostverbs.WCRNRRetryExcErr))
	w.within("rnr_retry", ea.dev.sentAt-since, code12)

	near, far := a.buffer(8), b.buffer(8)
	ea, _ = w.pair(a, b, func(la, _ *link) { la.rdAtomic = 0 })
	ea.inSQD(hostverbs.QPAttr{MaxRdAtomic: 1}, hostverbs.QPMaxQPRdAtomic)
	ea.send(rdma(1, hostverbs.OpRDMARead, far, 0, near.sge(0, 8)))
	w.settle()
	ea.sends("max_rd_atomic 1", hostverbs.WC{WRID: 1, Opcode: hostverbs.WCOpRDMARead, ByteLen: 8})
	ea.inSQD(hostverbs.QPAttr{}, hostverbs.QPMaxQPRdAtomic)
	ea.send(rdma(2, hostverbs.OpRDMARead, far, 0, near.sge(0, 8)))
	w.settle()
	ea.sends("max_rd_atomic 0", failed(2, hostverbs.WCLocQPOpErr))
}

func responderInSQD(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near, far := a.buffer(8), b.buffer(8)

	ea, eb := w.pair(a, b, func(_, lb *link) { lb.destRdAtomic = 0 })
	eb.inSQD(hostverbs.QPAttr{MaxDestRdAtomic: 1}, hostverbs.QPMaxDestRdAtomic)
	ea.send(rdma(1, hostverbs.OpRDMARead, far, 0, near.sge(0, 8)))
	w.settle()
	ea.sends("max_dest_rd_atomic 1", hostverbs.WC{WRID: 1, Opcode: hostverbs.WCOpRDMARead, ByteLen: 8})
	eb.inSQD(hostverbs.QPAttr{}, hostverbs.QPMaxDestRdAtomic)
	ea.send(rdma(2, hostverbs.OpRDMARead, far, 0, near.sge(0, 8)))
	w.settle()
	ea.sends("max_dest_rd_atomic 0", failed(2, hostverbs.WCRemInvReqErr))

	ea, eb = w.pair(a, b, func(la, lb *link) { la.rnrRetry, lb.minRNR = 1, 1 })
	eb.inSQD(hostverbs.QPAttr{MinRNRTimer: 12}, hostverbs.QPMinRNRTimer)
	w.noReceive("min_rnr_timer", ea, code12)

	ea, eb = w.pair(a, b, nil)
	eb.inSQD(hostverbs.QPAttr{QPAccessFlags: hostverbs.AccessRemoteRead}, hostverbs.QPAccessFlagsMask)
	ea.send(rdma(1, hostverbs.OpRDMARead, far, 0, near.sge(0, 8)), rdma(2, hostverbs.OpRDMAWrite, far, 0, near.sge(0, 8)))
	w.settle()
	ea.sends("access flags", hostverbs.WC{WRID: 1, Opcode: hostverbs.WCOpRDMARead, ByteLen: 8}, failed(2, hostverbs.WCRemInvReqErr))
	w.believe()
}

// noReceive sends a message that finds no receive and is tried once more.
func (w *world) noReceive(what string, ea *end, wait int64) {
	w.t.Helper()
	since := w.env.Clock.Now()
	ea.send(wr(1, hostverbs.OpSend))
	w.settle()
	ea.sends(what, failed(1, hostverbs.WCRNRRetryExcErr))
	w.within(what, ea.dev.sentAt-since, wait)
}

func responderInRTS(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near, far := a.buffer(8), b.buffer(8)

	ea, eb := w.pair(a, b, func(la, lb *link) { la.rnrRetry, lb.minRNR = 1, 1 })
	eb.modify(&hostverbs.QPAttr{MinRNRTimer: 12}, hostverbs.QPMinRNRTimer)
	w.noReceive("min_rnr_timer", ea, code12)

	ea, eb = w.pair(a, b, func(_, lb *link) { lb.access = 0 })
	eb.modify(&hostverbs.QPAttr{QPAccessFlags: hostverbs.AccessRemoteRead}, hostverbs.QPAccessFlagsMask)
	ea.send(rdma(1, hostverbs.OpRDMARead, far, 0, near.sge(0, 8)), rdma(2, hostverbs.OpRDMAWrite, far, 0, near.sge(0, 8)))
	w.settle()
	ea.sends("access flags", hostverbs.WC{WRID: 1, Opcode: hostverbs.WCOpRDMARead, ByteLen: 8}, failed(2, hostverbs.WCRemInvReqErr))
	w.believe()
}

func addressInSQD(t testing.TB, env Env) {
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	other := b.gid
	other[14] = 77
	w.want("bind another address", b.ctx.BindGID(1, other, hostverbs.GIDTypeRoCEv2), nil)
	ea, _ := w.pair(a, b, nil)
	address := ea.query().AHAttr
	for i, gid := range []hostverbs.GID{other, b.gid} {
		address.DGID = gid
		ea.inSQD(hostverbs.QPAttr{AHAttr: address}, hostverbs.QPAV)
		ea.send(wr(uint64(i), hostverbs.OpRDMAWrite))
		w.settle()
		ea.sends("to an address of the peer", done(uint64(i), hostverbs.WCOpRDMAWrite))
	}
	address.DGID[14] = 78
	ea.inSQD(hostverbs.QPAttr{AHAttr: address}, hostverbs.QPAV)
	w.lost("to the address of nobody", ea)
}
