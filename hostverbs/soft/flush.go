// SPDX-License-Identifier: Apache-2.0

package soft

import "github.com/pvrdmad/pvrdmad/hostverbs"

// Fail moves the queue pair to ERR for a reason of the device's.
func (q *qp) Fail() {
	if q.dead || q.attr.QPState == hostverbs.StateReset {
		return
	}
	q.fail()
}

// fail moves the queue pair to ERR. What is posted is flushed from its next turn on, so that the completion that says
// why comes first.
func (q *qp) fail() {
	if q.dead {
		return
	}
	if q.attr.QPState != hostverbs.StateErr {
		q.attr.QPState = hostverbs.StateErr
		q.epoch++
		q.sq.recall(q)
	}
	q.draining = false
	q.want(todoFlush)
	q.offer()
}

// stop ends the work of the send queue after a request that failed. What is not reliable has no peer that waits for the rest, and
// receives as before.
func (q *qp) stop() {
	if q.reliable() {
		q.fail()
		return
	}
	if s := q.attr.QPState; s == hostverbs.StateRTS || s == hostverbs.StateSQD {
		q.attr.QPState = hostverbs.StateSQE
		q.draining = false
		q.epoch++
	}
}

// flushHeld completes the request under way, which is older than everything that is still with the device.
func (q *qp) flushHeld() {
	if q.sq.busy {
		q.sq.end(q)
		q.completeSend(&q.sq.wr, hostverbs.WCWRFlushErr)
	}
}

// flush completes what is posted with WCWRFlushErr, in order: first what the engine holds, which the turn itself pays for.
// It says whether there may be more receives: a receive queue in shared memory can be refilled for ever. Those of a shared
// receive queue are for others.
func (q *qp) flush(b *budget) (more bool) {
	if q.sq.away {
		return false // it comes back, and the flush with it
	}
	q.flushHeld()
	if q.rq.have {
		b.wrs--
		q.completeRecv(hostverbs.WCWRFlushErr)
	}
	q.tellLast()
	for ; b.wrs > 0; b.wrs-- {
		if q.dead || q.srq != nil {
			return false
		}
		ok, err := q.h.PullRecv(&q.rq.wr)
		if err != nil {
			q.drop()
			return false
		}
		if !ok {
			return false
		}
		q.completeRecv(hostverbs.WCWRFlushErr)
	}
	return true
}

// tellLast says once that a queue pair in ERR has completed all that it took from its shared receive queue, and takes no more:
// whoever destroys it can wait for that.
func (q *qp) tellLast() {
	if q.srq != nil && !q.toldLast && !q.dead {
		q.toldLast = true
		q.h.Event(hostverbs.EventQPLastWQEReached)
	}
}
