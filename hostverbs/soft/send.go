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

	// Where the copy of the request stands. The message is one for both sides once admitted: the peer had admitted it
	// in the incarnation admittedBy. li and loff are the place in the request's SGEs, ri and roff in the peer's.
	admitted   bool
	admittedBy uint32
	admittedTo *qp
	li, ri     uint8
	loff, roff uint32
	moved      uint64
	total      uint64
	// near and far are where the message lies on the two sides if it is one piece there: as found in this step, since a
	// region may be gone in the next.
	near, far           span
	nearWhole, farWhole bool

	wr hostverbs.SendWR
}

// start prepares for a new request.
func (s *sendQueue) start(a *hostverbs.QPAttr) {
	s.retries, s.rnrRetries = a.RetryCnt, a.RNRRetry
	s.admitted, s.admittedTo = false, nil
	s.li, s.ri, s.loff, s.roff = 0, 0, 0, 0
	s.moved, s.total = 0, 0
	s.waiting = waitNone
	s.rnrWaited = 0
}

// end forgets the request under way.
func (s *sendQueue) end(q *qp) {
	s.busy = false
	s.admitted, s.admittedTo = false, nil
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
		q.flushHeld()
		q.completeSend(wr, hostverbs.WCWRFlushErr)
		return true
	case hostverbs.StateRTS:
		if q.sq.busy {
			return false
		}
		if q.typ == hostverbs.QPTypeGSI {
			q.sendMAD(wr)
			return true
		}
		q.sq.start(&q.attr)
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
	if !q.sq.busy {
		return
	}
	expired := q.sq.waiting
	q.sq.waiting = waitNone
	if expired == waitAck {
		if q.sq.retries == 0 {
			q.finish(&q.sq.wr, hostverbs.WCRetryExcErr)
			return
		}
		q.sq.retries--
		q.pl.count.add(cntRetries, 1)
	}
	q.step(&q.sq.wr, b)
}

// step carries a request on as far as it goes, and says whether it is still under way.
func (q *qp) step(wr *hostverbs.SendWR, b *budget) (under bool) {
	q.sq.nearWhole, q.sq.farWhole = false, false
	if q.sq.moved == 0 {
		if status := q.checkRequest(wr); status != hostverbs.WCSuccess {
			q.finish(wr, status)
			return false
		}
	}
	p := q.reach()
	if p == nil {
		q.awaitAck()
		return true
	}
	if !q.sq.admitted {
		switch reply, status := p.admit(q, wr); reply {
		case replyNone:
			q.awaitAck()
			return true
		case replyRNR:
			return q.awaitReceive(wr, p.attr.MinRNRTimer)
		case replyNAK:
			q.finish(wr, status)
			return false
		}
		q.sq.admitted, q.sq.admittedTo, q.sq.admittedBy = true, p, p.incarnation
	}
	q.sq.retries = q.attr.RetryCnt
	if status := q.move(p, wr, b); status != hostverbs.WCSuccess {
		q.finish(wr, status)
		return false
	}
	if q.sq.moved < q.sq.total {
		q.want(todoRun)
		return true
	}
	q.conclude(p, wr)
	return false
}

// conclude completes a message whose bytes have all arrived, on both sides.
func (q *qp) conclude(p *qp, wr *hostverbs.SendWR) {
	n := packets(q.sq.total, q.attr.PathMTU)
	q.attr.SQPSN = hostverbs.MaskPSN(q.attr.SQPSN + n)
	p.attr.RQPSN = hostverbs.MaskPSN(p.attr.RQPSN + n)
	q.pl.count.message(wr.Opcode, q.sq.total)
	status := hostverbs.WCSuccess
	if consumesReceive(wr.Opcode) && !p.received(q, wr) {
		status = hostverbs.WCRemOpErr
	}
	q.finish(wr, status)
}

// packets is how many sequence numbers a message takes: one for each packet, and one packet if there are no bytes.
func packets(n uint64, mtu hostverbs.MTU) uint32 {
	size := uint64(mtu.Bytes())
	if n <= size {
		return 1
	}
	return uint32((n + size - 1) / size)
}

// finish completes a request. Any failure is the end of the queue pair's work.
func (q *qp) finish(wr *hostverbs.SendWR, status hostverbs.WCStatus) {
	q.sq.end(q)
	if status != hostverbs.WCSuccess {
		q.fail()
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
	if status == hostverbs.WCSuccess && wr.Opcode == hostverbs.OpRDMARead {
		q.wc.ByteLen = uint32(q.sq.total)
	}
	q.pl.count.completion(status)
	if q.h.CompleteSend(&q.wc) != nil {
		q.drop()
	}
}

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
