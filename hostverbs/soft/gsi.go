// SPDX-License-Identifier: Apache-2.0

package soft

import "github.com/pvrdmad/pvrdmad/hostverbs"

// sendMAD carries out a request of the GSI queue pair. The engine has no connection management, so that a management
// datagram that is well formed completes, reaches nobody, and is counted. What is wrong with a request moves the queue
// pair to SQE, as for all datagram queue pairs.
func (q *qp) sendMAD(wr *hostverbs.SendWR) {
	q.sq.msg.ask(wr, 0)
	status := q.checkMAD(wr)
	if status != hostverbs.WCSuccess {
		q.attr.QPState = hostverbs.StateSQE
		q.epoch++
		q.completeSend(wr, status)
		return
	}
	q.pl.count.add(cntDroppedMADs, 1)
	if q.sigAll || wr.Flags&hostverbs.SendSignaled != 0 {
		q.completeSend(wr, status)
	}
}

// checkMAD looks at a management datagram: one SEND of at most one packet.
func (q *qp) checkMAD(wr *hostverbs.SendWR) hostverbs.WCStatus {
	switch {
	case wr.Status != hostverbs.WCSuccess:
		return wr.Status
	case wr.Opcode != hostverbs.OpSend,
		int(wr.NumSGE) > len(wr.SGE),
		uint32(wr.NumSGE) > q.attr.Cap.MaxSendSGE:
		return hostverbs.WCLocQPOpErr
	}
	if hostverbs.Length(wr.SGE[:wr.NumSGE]) > uint64(activeMTU.Bytes()) {
		return hostverbs.WCLocLenErr
	}
	return q.gather(wr)
}
