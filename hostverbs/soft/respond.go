// SPDX-License-Identifier: Apache-2.0

package soft

import "github.com/pvrdmad/pvrdmad/hostverbs"

// expects says whether the message is the one whose turn it is. The rest of a message means nothing to a queue pair that did
// not see its beginning, or has seen the beginning of another one since: the address that it comes from may have been
// another guest's meanwhile.
// After a loss an unreliable one begins with any number.
func (q *qp) expects(m *message) bool {
	if m.admittedBy == 0 {
		return m.psn == q.attr.RQPSN || !q.reliable()
	}
	return m.psn == q.attr.RQPSN && m.admittedBy == q.admission() && (q.rq.have || !consumesReceive(m.op))
}

// admission names the last message that the queue pair has let in, of all messages at all queue pairs of the engine.
func (q *qp) admission() uint64 { return q.incarnation | uint64(q.admitted) }

// serve carries a message on as far as the visit allows, and writes the answer into it.
func (q *qp) serve(m *message, b *budget) {
	if q.datagrams() {
		q.deliver(m, b)
		return
	}
	var far target
	if m.admittedBy == 0 {
		m.reply, m.status = q.admit(m, &far)
		if m.reply != replyACK {
			m.rnrTimer = q.attr.MinRNRTimer
			return
		}
		q.admitted++
		m.admittedBy = q.admission()
		q.attr.RQPSN = m.psn
	}
	m.reply = replyACK
	if status := q.carry(m, &far, b); status != hostverbs.WCSuccess {
		m.reply, m.status = replyNAK, status
		return
	}
	if m.moved < m.total {
		return
	}
	q.attr.RQPSN = hostverbs.MaskPSN(q.attr.RQPSN + m.packets)
	q.pl.count.message(m.op, m.total)
	if m.op == hostverbs.OpSendWithInv && !q.free(m.imm) {
		m.reply, m.status = q.failReceive(hostverbs.WCLocAccessErr, hostverbs.WCRemAccessErr)
		return
	}
	if consumesReceive(m.op) && !q.received(m) {
		m.reply, m.status = replyNAK, hostverbs.WCRemOpErr
	}
}

// carry does what the message asks for, or as much of it as the visit allows.
func (q *qp) carry(m *message, far *target, b *budget) hostverbs.WCStatus {
	if isAtomic(m.op) {
		return q.change(m, far.at, b)
	}
	return q.move(m, far, b)
}

// admit decides whether a message may come in, and finds its place. What it refuses for a reason of the message moves the
// queue pair to ERR, as the InfiniBand architecture's class C errors do.
func (q *qp) admit(m *message, far *target) (reply, hostverbs.WCStatus) {
	if q.attr.QPState == hostverbs.StateRTR && !q.established {
		q.established = true
		q.h.Event(hostverbs.EventCommEst)
		if q.attr.QPState == hostverbs.StateErr { // the callback failed it
			return replyNone, hostverbs.WCSuccess
		}
	}
	if !q.allows(m.op) || !q.wellFormed(m) {
		return q.nak(hostverbs.EventQPReqErr, hostverbs.WCRemInvReqErr)
	}
	if !isSend(m.op) && m.total > 0 {
		far.at, far.whole = q.ctx.keys.remote(m.rkey, q.pd, m.remoteAddr, m.total, remoteAccess(m.op))
		if !far.whole {
			return q.nak(hostverbs.EventQPAccessErr, hostverbs.WCRemAccessErr)
		}
	}
	if !consumesReceive(m.op) {
		return replyACK, hostverbs.WCSuccess
	}
	return q.admitReceive(m, far)
}

// allows says whether the queue pair's attributes permit an operation at all. The rights to a region are another
// matter: here the answer is an invalid request, there a remote access error.
func (q *qp) allows(o hostverbs.WROpcode) bool {
	switch o {
	case hostverbs.OpRDMAWrite, hostverbs.OpRDMAWriteWithImm:
		return q.attr.QPAccessFlags&hostverbs.AccessRemoteWrite != 0
	case hostverbs.OpRDMARead:
		return q.attr.QPAccessFlags&hostverbs.AccessRemoteRead != 0 && q.attr.MaxDestRdAtomic > 0
	case hostverbs.OpAtomicCmpAndSwp, hostverbs.OpAtomicFetchAndAdd:
		return q.attr.QPAccessFlags&hostverbs.AccessRemoteAtomic != 0 && q.attr.MaxDestRdAtomic > 0
	}
	return true
}

// wellFormed says whether the packets of a message are what the queue pair expects. The word of an atomic operation lies at
// a multiple of its size. With another path MTU at the requester a message of several packets is cut in other places than
// here, which every responder refuses; one packet may be as long as the smaller of the two.
func (q *qp) wellFormed(m *message) bool {
	if isAtomic(m.op) {
		return m.remoteAddr%atomicBytes == 0
	}
	return m.mtu == q.attr.PathMTU || m.total <= uint64(min(m.mtu, q.attr.PathMTU).Bytes())
}

// remoteAccess is the right that an operation needs to a region.
func remoteAccess(o hostverbs.WROpcode) hostverbs.AccessFlags {
	switch o {
	case hostverbs.OpRDMARead:
		return hostverbs.AccessRemoteRead
	case hostverbs.OpAtomicCmpAndSwp, hostverbs.OpAtomicFetchAndAdd:
		return hostverbs.AccessRemoteAtomic
	}
	return hostverbs.AccessRemoteWrite
}

// nak refuses a message that no receive was used for: the queue pair's owner learns it from an event.
func (q *qp) nak(e hostverbs.EventType, status hostverbs.WCStatus) (reply, hostverbs.WCStatus) {
	if !q.reliable() {
		return q.lost(DropRefused)
	}
	q.fail()
	q.h.Event(e)
	return replyNAK, status
}
