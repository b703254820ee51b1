// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/hostverbs/gsi"
)

// sendsMAD says whether a request is for a GSI queue pair: a program's datagram may be, too.
func (q *qp) sendsMAD(wr *hostverbs.SendWR) bool {
	return q.typ == hostverbs.QPTypeGSI || q.typ == hostverbs.QPTypeUD && wr.RemoteQPN == gsi.QPN
}

// paced says whether the guest may send a management datagram now. If not, the queue pair waits until it may.
func (q *qp) paced() bool {
	if q.ctx.mads.Take(q.pl.now) {
		return true
	}
	q.sq.delay = q.ctx.mads.Wait(q.pl.now)
	q.sq.waiting = waitPace
	q.want(todoArm)
	return false
}

// passes says whether the datagram is one that a GSI queue pair may be given: any, for the others.
func (q *qp) passes(payload []byte) bool { return q.num != gsi.QPN || gsi.Valid(payload) }
