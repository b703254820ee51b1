// SPDX-License-Identifier: Apache-2.0

package soft

import "github.com/pvrdmad/pvrdmad/hostverbs"

// recvQueue is the responder half of a queue pair: the one receive that was pulled for a message. All others are
// still with the device.
type recvQueue struct {
	wr hostverbs.RecvWR
	// have: wr was pulled and is not completed. A message that ends early leaves it for the next one.
	have bool
	// i and off are the place in wr's SGEs where the next byte of the message goes.
	i   uint8
	off uint32
}

// admitReceive pulls a receive for the message, and looks whether it is good and large enough.
func (q *qp) admitReceive(m *message, far *target) (reply, hostverbs.WCStatus) {
	if !q.rq.have {
		ok, err := q.pullRecv()
		if err != nil {
			q.drop()
			return replyNAK, hostverbs.WCRemOpErr
		}
		if !ok {
			if !q.reliable() {
				return q.lost(DropNoReceive)
			}
			return replyRNR, hostverbs.WCSuccess
		}
		q.rq.have = true
		if q.attr.QPState == hostverbs.StateErr { // the callback failed it
			return replyNone, hostverbs.WCSuccess
		}
	}
	r := &q.rq.wr
	if r.Status != hostverbs.WCSuccess {
		return q.failReceive(r.Status, hostverbs.WCRemOpErr)
	}
	if int(r.NumSGE) > len(r.SGE) || uint32(r.NumSGE) > q.maxRecvSGE {
		return q.failReceive(hostverbs.WCLocQPOpErr, hostverbs.WCRemOpErr)
	}
	if !isSend(m.op) {
		return replyACK, hostverbs.WCSuccess // a WRITE's bytes go elsewhere
	}
	room := m.total
	if q.datagrams() {
		room += hostverbs.GRHBytes
	}
	if hostverbs.Length(r.SGE[:r.NumSGE]) < room {
		if !q.reliable() {
			return q.lost(DropTooLong)
		}
		return q.failReceive(hostverbs.WCLocLenErr, hostverbs.WCRemInvReqErr)
	}
	q.rq.i, q.rq.off = 0, 0
	if status := q.checkReceive(room, far); status != hostverbs.WCSuccess {
		return q.failReceive(status, hostverbs.WCRemOpErr)
	}
	return replyACK, hostverbs.WCSuccess
}

// checkReceive checks where the first n bytes go in the pulled receive. What lies behind them is not looked at, as an adapter
// does not, and an entry without length names no memory, whatever its key. If the first entry holds all bytes, it says where
// they go.
func (q *qp) checkReceive(n uint64, far *target) hostverbs.WCStatus {
	for i := range q.rq.wr.SGE[:q.rq.wr.NumSGE] {
		s := &q.rq.wr.SGE[i]
		if n == 0 {
			break
		}
		if s.Length == 0 {
			continue
		}
		part := min(n, uint64(s.Length))
		at, status := q.ctx.keys.local(s.LKey, q.recvPD, s.Addr, part, hostverbs.AccessLocalWrite)
		if status != hostverbs.WCSuccess {
			return status
		}
		if i == 0 && n == part {
			far.at, far.whole = at, true
			break
		}
		n -= part
	}
	return hostverbs.WCSuccess
}

// failReceive completes the pulled receive with an error and refuses the message.
func (q *qp) failReceive(own, requester hostverbs.WCStatus) (reply, hostverbs.WCStatus) {
	q.fail()
	q.completeRecv(own)
	return replyNAK, requester
}

// received completes the pulled receive with the message that has arrived. It is false if the device failed.
func (q *qp) received(m *message) bool {
	wc := &q.wc
	*wc = hostverbs.WC{} // and then field by field: a literal would be built elsewhere and copied, in 10 ns more
	wc.WRID, wc.Opcode, wc.ByteLen = q.rq.wr.WRID, hostverbs.WCOpRecv, uint32(m.total)
	wc.SrcQP, wc.PKeyIndex, wc.SL, wc.Solicited = m.srcQPN, q.attr.PKeyIndex, m.sl, m.solicited
	if m.op == hostverbs.OpRDMAWriteWithImm {
		wc.Opcode = hostverbs.WCOpRecvRDMAWithImm
	}
	switch m.op {
	case hostverbs.OpSend:
	case hostverbs.OpSendWithInv:
		wc.Flags, wc.Imm = hostverbs.WCWithInvalidate, m.imm
	default:
		wc.Flags, wc.Imm = hostverbs.WCWithImm, m.imm
	}
	if q.datagrams() {
		wc.ByteLen += hostverbs.GRHBytes
		wc.Flags |= hostverbs.WCGRH | hostverbs.WCWithNetworkHdrType
		wc.NetworkHdrType = m.path.network
	}
	return q.deliverRecv()
}

// completeRecv completes the pulled receive with an error.
func (q *qp) completeRecv(status hostverbs.WCStatus) bool {
	q.wc = hostverbs.WC{WRID: q.rq.wr.WRID, Status: status, Opcode: hostverbs.WCOpRecv}
	return q.deliverRecv()
}

// deliverRecv hands wc to the device.
func (q *qp) deliverRecv() bool {
	q.rq.have = false
	if q.dead {
		return false
	}
	q.pl.count.completion(q.wc.Status)
	if q.h.CompleteRecv(&q.wc) != nil {
		q.drop()
		return false
	}
	return true
}

// RecvPosted makes a queue pair in ERR flush what was posted.
func (q *qp) RecvPosted() {
	if q.attr.QPState == hostverbs.StateErr {
		q.want(todoFlush)
	}
}
