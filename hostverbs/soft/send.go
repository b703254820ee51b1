// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/internal/timerwheel"
)

// sendQueue is the requester half of a queue pair: the one request that could not be carried out at once. All others
// are still with the device.
type sendQueue struct {
	// busy: wr is under way. Otherwise wr means nothing.
	busy bool
	// starved: the device has requests that PostSend did not take.
	starved bool
	// waiting is what the timer is for, delay how long it runs, in ns.
	waiting waitKind
	delay   int64
	timer   timerwheel.Timer
	// retries and rnrRetries are what is left of RetryCnt and RNRRetry; rnrWaited is how long the request has waited for a
	// receive, in ns.
	retries, rnrRetries uint8
	rnrWaited           int64

	// to is where the last message went, as of toEpoch and gidEpoch.
	to                *qp
	toEpoch, gidEpoch uint32
	// msg is the request as the peer sees it: own, or that of parcel, which it travels in if the peer is another owner's.
	// away: it is there, and nothing of it may be touched.
	msg    *message
	away   bool
	parcel *parcel
	own    message

	wr hostverbs.SendWR
}

// start prepares for a new request.
func (s *sendQueue) start(wr *hostverbs.SendWR, a *hostverbs.QPAttr) {
	s.retries, s.rnrRetries = a.RetryCnt, a.RNRRetry
	s.waiting = waitNone
	s.rnrWaited = 0
	s.msg.ask(wr, a.SQPSN)
}

// end forgets the request under way.
func (s *sendQueue) end(q *qp) {
	s.busy = false
	if s.away {
		s.forsake(q)
	}
	s.msg.admittedBy = 0
	if s.waiting != waitNone {
		s.waiting = waitNone
		q.pl.timers.Cancel(&s.timer)
	}
	q.todo &^= todoRun | todoArm
}

// PostSend carries out requests until one has to wait or the visit is over.
func (q *qp) PostSend(wrs []hostverbs.SendWR) int {
	if q.running {
		// A callback of this queue pair posts: it is told when the request under way is finished.
		q.sq.starved = true
		return 0
	}
	q.running = true
	q.pl.sends(q.ctx)
	b := q.pl.visit()
	n := 0
	for n < len(wrs) && b.left() && q.accept(&wrs[n], &b) {
		b.wrs--
		n++
	}
	q.running = false
	if n < len(wrs) {
		q.sq.starved = true
	}
	q.offer()
	return n
}

// accept takes one request, unless it has to stay with the device.
func (q *qp) accept(wr *hostverbs.SendWR, b *budget) bool {
	if q.dead {
		return true // nobody is told: the device is being reset
	}
	switch q.attr.QPState {
	case hostverbs.StateErr, hostverbs.StateSQE:
		if q.sq.away {
			return false
		}
		q.flushHeld()
		q.completeSend(wr, hostverbs.WCWRFlushErr)
		return true
	case hostverbs.StateRTS:
		if q.sq.busy || q.sq.waiting != waitNone || q.sendsMAD(wr) && !q.paced() {
			return false
		}
		q.sq.start(wr, &q.attr)
		if isLocal(wr.Opcode) && q.reliable() {
			q.local(wr, b)
			return true
		}
		if q.step(wr, b) && !q.dead {
			q.sq.wr = *wr
			q.sq.busy = true
		}
		return true
	}
	return false
}

// resume goes on with the request under way, because its timer fired or it is its turn again.
func (q *qp) resume(b *budget) {
	if q.sq.away {
		return
	}
	expired := q.sq.waiting
	q.sq.waiting = waitNone
	if !q.sq.busy {
		return
	}
	if expired == waitAck {
		if q.sq.retries == 0 {
			q.finish(&q.sq.wr, hostverbs.WCRetryExcErr)
			return
		}
		q.sq.retries--
		q.pl.count.add(cntRetries, 1)
	}
	if isLocal(q.sq.wr.Opcode) {
		q.local(&q.sq.wr, b)
		return
	}
	q.step(&q.sq.wr, b)
}

// step carries a request on as far as it goes, and says whether it is still under way. Keys are looked up in every step, since
// regions may have been deregistered between two.
func (q *qp) step(wr *hostverbs.SendWR, b *budget) (under bool) {
	var status hostverbs.WCStatus
	if q.sq.msg.moved == 0 {
		status = q.checkRequest(wr)
	} else {
		status = q.gather(wr)
	}
	if status != hostverbs.WCSuccess {
		q.finish(wr, status)
		return false
	}
	if q.pl.several {
		if to := q.elsewhere(); to != nil {
			q.depart(to, wr)
			return true
		}
	}
	p := q.reach()
	if p == nil {
		return q.unheard(wr)
	}
	p.serve(q.sq.msg, b)
	return q.answered(wr)
}

// answered acts on the peer's answer, and says whether the request is still under way.
func (q *qp) answered(wr *hostverbs.SendWR) (under bool) {
	m := q.sq.msg
	switch m.reply {
	case replyAgain:
		q.want(todoRun)
		return true
	case replyNone:
		return q.unheard(wr)
	case replyRNR:
		return q.awaitReceive(wr, m.rnrTimer)
	case replyNAK:
		if !q.reliable() && m.status != hostverbs.WCLocProtErr {
			return q.unheard(wr) // what fails at the other end is not told
		}
		q.finish(wr, m.status)
		return false
	}
	q.sq.retries = q.attr.RetryCnt
	if m.moved < m.total {
		q.want(todoRun)
		return true
	}
	status := hostverbs.WCSuccess
	if isAtomic(wr.Opcode) {
		status = q.keep(wr)
	}
	q.sent(wr, status)
	return false
}

// sent completes a request whose packets have all arrived, or are all sent if nobody says whether they do.
func (q *qp) sent(wr *hostverbs.SendWR, status hostverbs.WCStatus) {
	q.attr.SQPSN = hostverbs.MaskPSN(q.attr.SQPSN + q.sq.msg.packets)
	q.finish(wr, status)
}

// finish completes a request. Any failure is the end of the send queue's work.
func (q *qp) finish(wr *hostverbs.SendWR, status hostverbs.WCStatus) {
	q.sq.end(q)
	if status != hostverbs.WCSuccess {
		q.stop()
	}
	if status != hostverbs.WCSuccess || q.sigAll || wr.Flags&hostverbs.SendSignaled != 0 {
		q.completeSend(wr, status)
	}
	q.drained()
}

// completeSend delivers a completion of the send queue.
func (q *qp) completeSend(wr *hostverbs.SendWR, status hostverbs.WCStatus) {
	if q.dead {
		return
	}
	q.wc = hostverbs.WC{WRID: wr.WRID, Status: status, Opcode: sendOpcode(wr.Opcode)}
	if status == hostverbs.WCSuccess && returns(wr.Opcode) {
		q.wc.ByteLen = uint32(q.sq.msg.total)
	}
	q.pl.count.completion(status)
	if q.h.CompleteSend(&q.wc) != nil {
		q.drop()
	}
}

// returns says whether an operation has bytes for the requester.
func returns(o hostverbs.WROpcode) bool { return o == hostverbs.OpRDMARead || isAtomic(o) }

// sendOpcode is the completion's operation for a request's.
func sendOpcode(o hostverbs.WROpcode) hostverbs.WCOpcode {
	switch o {
	case hostverbs.OpRDMAWrite, hostverbs.OpRDMAWriteWithImm:
		return hostverbs.WCOpRDMAWrite
	case hostverbs.OpRDMARead:
		return hostverbs.WCOpRDMARead
	case hostverbs.OpAtomicCmpAndSwp:
		return hostverbs.WCOpCompSwap
	case hostverbs.OpAtomicFetchAndAdd:
		return hostverbs.WCOpFetchAdd
	case hostverbs.OpLocalInv:
		return hostverbs.WCOpLocalInv
	case hostverbs.OpRegMR:
		return hostverbs.WCOpRegMR
	}
	return hostverbs.WCOpSend
}
