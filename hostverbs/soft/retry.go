// SPDX-License-Identifier: Apache-2.0

package soft

import "github.com/pvrdmad/pvrdmad/hostverbs"

// waitKind is what a send request waits for. While it waits, only its timer lets it go on: not a post, not a receive
// that arrives, since a retry ahead of time would use up the retries.
type waitKind uint8

const (
	waitNone waitKind = iota
	// waitAck: the peer did not answer.
	waitAck
	// waitRNR: the peer had no receive.
	waitRNR
	// waitPace: no request is under way, the guest has sent too many.
	waitPace
)

const (
	// rnrForever is the RNRRetry that never ends.
	rnrForever = 7
	// ackTimeoutUnit is 4.096 us, the unit of ibv_qp_attr.timeout, in ns.
	ackTimeoutUnit = 4096
	// rnrPatience and rnrSlowest make the tries of a request that nobody receives rarer, so that a forgotten one costs
	// nothing: a try is late by an eighth of the time waited, and by 100 ms at most, in ns. The receiver's timer is a
	// minimum, and one of fewer than 7 tries is never stretched.
	rnrPatience = 8
	rnrSlowest  = 100_000_000
	// rnrUnit is 10 us, and rnrLongest the 655.36 ms of code 0, in ns.
	rnrUnit    = 10_000
	rnrLongest = 655_360_000
)

// ackTimeout is the time in ns that a timeout code stands for, 0 for never.
func ackTimeout(code uint8) int64 {
	if code == 0 {
		return 0
	}
	return ackTimeoutUnit << code
}

// rnrDelay is the time in ns that a code of min_rnr_timer stands for, see ibv_modify_qp(3).
func rnrDelay(code uint8) int64 {
	units := [...]uint16{
		0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
		256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
	}
	if code == 0 {
		return rnrLongest
	}
	return int64(units[code&31]) * rnrUnit
}

// awaitAck starts to wait for an answer that does not come. With timeout 0 only the end of the queue pair ends it.
func (q *qp) awaitAck() {
	q.sq.delay = ackTimeout(q.attr.Timeout)
	if q.sq.delay == 0 {
		return
	}
	q.sq.waiting = waitAck
	q.want(todoArm)
}

// awaitReceive waits as long as the peer asked for, unless all retries are used up. It says whether the request is
// still under way.
func (q *qp) awaitReceive(wr *hostverbs.SendWR, code uint8) bool {
	q.sq.retries = q.attr.RetryCnt // the peer did answer
	if q.attr.RNRRetry != rnrForever {
		if q.sq.rnrRetries == 0 {
			q.finish(wr, hostverbs.WCRNRRetryExcErr)
			return false
		}
		q.sq.rnrRetries--
	}
	q.pl.count.add(cntRNRNAKs, 1)
	q.sq.delay = max(rnrDelay(code), min(q.sq.rnrWaited/rnrPatience, rnrSlowest))
	q.sq.rnrWaited += q.sq.delay
	q.sq.waiting = waitRNR
	q.want(todoArm)
	return true
}
