// SPDX-License-Identifier: Apache-2.0

package soft

import "github.com/pvrdmad/pvrdmad/hostverbs"

// recvQueue is the responder half of a queue pair: the one receive that was pulled for a message. All others are
// still with the device.
type recvQueue struct {
	// have: wr was pulled and is not completed. A message that ends early leaves it for the next one.
	have bool
	wr   hostverbs.RecvWR
}

// reply is what a responder answers to the first packet of a message.
type reply uint8

const (
	replyACK reply = iota
	// replyNone: the packet is dropped.
	replyNone
	// replyRNR: there is no receive, try again.
	replyRNR
	// replyNAK: the message failed; the status is the requester's.
	replyNAK
)

// admit decides whether a message from q may come in. What it refuses for a reason of the message moves the queue pair
// to ERR, as the InfiniBand architecture's class C errors do.
func (q *qp) admit(from *qp, wr *hostverbs.SendWR) (reply, hostverbs.WCStatus) {
	if q.attr.QPState == hostverbs.StateRTR && !q.established {
		q.established = true
		q.h.Event(hostverbs.EventCommEst)
		if q.attr.QPState == hostverbs.StateErr { // the callback failed it
			return replyNone, hostverbs.WCSuccess
		}
	}
	if !q.allows(wr.Opcode) {
		return q.nak(hostverbs.EventQPReqErr, hostverbs.WCRemInvReqErr)
	}
	if !isSend(wr.Opcode) && from.sq.total > 0 {
		var ok bool
		from.sq.far, ok = q.ctx.keys.remote(wr.RKey, q.pd, wr.RemoteAddr, from.sq.total, remoteAccess(wr.Opcode))
		if !ok {
			return q.nak(hostverbs.EventQPAccessErr, hostverbs.WCRemAccessErr)
		}
		from.sq.farWhole = true
	}
	if !consumesReceive(wr.Opcode) {
		return replyACK, hostverbs.WCSuccess
	}
	return q.admitReceive(from, wr)
}

// allows says whether the queue pair's attributes permit an operation at all. The rights to a region are another
// matter: here the answer is an invalid request, there a remote access error.
func (q *qp) allows(o hostverbs.WROpcode) bool {
	switch o {
	case hostverbs.OpRDMAWrite, hostverbs.OpRDMAWriteWithImm:
		return q.attr.QPAccessFlags&hostverbs.AccessRemoteWrite != 0
	case hostverbs.OpRDMARead:
		return q.attr.QPAccessFlags&hostverbs.AccessRemoteRead != 0 && q.attr.MaxDestRdAtomic > 0
	}
	return true
}

// remoteAccess is the right that an operation needs to a region.
func remoteAccess(o hostverbs.WROpcode) hostverbs.AccessFlags {
	if o == hostverbs.OpRDMARead {
		return hostverbs.AccessRemoteRead
	}
	return hostverbs.AccessRemoteWrite
}

// nak refuses a message that no receive was used for: the queue pair's owner learns it from an event.
func (q *qp) nak(e hostverbs.EventType, status hostverbs.WCStatus) (reply, hostverbs.WCStatus) {
	q.fail()
	q.h.Event(e)
	return replyNAK, status
}

// admitReceive pulls a receive for the message, and looks whether it is good and large enough.
func (q *qp) admitReceive(from *qp, wr *hostverbs.SendWR) (reply, hostverbs.WCStatus) {
	if !q.rq.have {
		ok, err := q.h.PullRecv(&q.rq.wr)
		if err != nil {
			q.drop()
			return replyNAK, hostverbs.WCRemOpErr
		}
		if !ok {
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
	if int(r.NumSGE) > len(r.SGE) || uint32(r.NumSGE) > q.attr.Cap.MaxRecvSGE {
		return q.failReceive(hostverbs.WCLocQPOpErr, hostverbs.WCRemOpErr)
	}
	if !isSend(wr.Opcode) {
		return replyACK, hostverbs.WCSuccess // a WRITE's bytes go elsewhere
	}
	sges := r.SGE[:r.NumSGE]
	if hostverbs.Length(sges) < from.sq.total {
		return q.failReceive(hostverbs.WCLocLenErr, hostverbs.WCRemInvReqErr)
	}
	at, whole, status := q.checkSGEs(sges, from.sq.total, hostverbs.AccessLocalWrite)
	if status != hostverbs.WCSuccess {
		return q.failReceive(status, hostverbs.WCRemOpErr)
	}
	from.sq.far, from.sq.farWhole = at, whole
	return replyACK, hostverbs.WCSuccess
}

// failReceive completes the pulled receive with an error and refuses the message.
func (q *qp) failReceive(own, requester hostverbs.WCStatus) (reply, hostverbs.WCStatus) {
	q.fail()
	q.completeRecv(own)
	return replyNAK, requester
}

// received completes the pulled receive with the message that has arrived. It is false if the device failed.
func (q *qp) received(from *qp, wr *hostverbs.SendWR) bool {
	q.wc = hostverbs.WC{
		WRID:      q.rq.wr.WRID,
		Opcode:    hostverbs.WCOpRecv,
		ByteLen:   uint32(from.sq.total),
		SrcQP:     from.num,
		PKeyIndex: q.attr.PKeyIndex,
		SL:        from.attr.AHAttr.SL,
		Solicited: wr.Flags&hostverbs.SendSolicited != 0,
	}
	if wr.Opcode == hostverbs.OpRDMAWriteWithImm {
		q.wc.Opcode = hostverbs.WCOpRecvRDMAWithImm
	}
	if wr.Opcode != hostverbs.OpSend {
		q.wc.Flags = hostverbs.WCWithImm
		q.wc.Imm = wr.Imm
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
