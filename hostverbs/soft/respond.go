// SPDX-License-Identifier: Apache-2.0

package soft

import "github.com/pvrdmad/pvrdmad/hostverbs"

// expects says whether the message is the one whose turn it is. The rest of a message means nothing to a queue pair that did
// not see its beginning.
func (q *qp) expects(m *message) bool {
	return m.psn == q.attr.RQPSN && (m.admittedBy == 0 || m.admittedBy == q.incarnation)
}

// serve carries a message on as far as the visit allows, and writes the answer into it.
func (q *qp) serve(m *message, b *budget) {
	var far target
	if m.admittedBy == 0 {
		m.reply, m.status = q.admit(m, &far)
		if m.reply != replyACK {
			m.rnrTimer = q.attr.MinRNRTimer
			return
		}
		m.admittedBy = q.incarnation
	}
	m.reply = replyACK
	if status := q.move(m, &far, b); status != hostverbs.WCSuccess {
		m.reply, m.status = replyNAK, status
		return
	}
	if m.moved < m.total {
		return
	}
	q.attr.RQPSN = hostverbs.MaskPSN(q.attr.RQPSN + m.packets)
	q.pl.count.message(m.op, m.total)
	if consumesReceive(m.op) && !q.received(m) {
		m.reply, m.status = replyNAK, hostverbs.WCRemOpErr
	}
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
	if !q.allows(m.op) {
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
