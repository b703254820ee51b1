// SPDX-License-Identifier: Apache-2.0

package soft

import "github.com/pvrdmad/pvrdmad/hostverbs"

// checkRequest looks at everything that the requester can judge alone, and measures the message.
func (q *qp) checkRequest(wr *hostverbs.SendWR) hostverbs.WCStatus {
	if wr.Status != hostverbs.WCSuccess {
		return wr.Status
	}
	need := hostverbs.AccessFlags(0)
	switch wr.Opcode {
	case hostverbs.OpSend, hostverbs.OpSendWithImm, hostverbs.OpRDMAWrite, hostverbs.OpRDMAWriteWithImm:
	case hostverbs.OpRDMARead:
		need = hostverbs.AccessLocalWrite
		if q.attr.MaxRdAtomic == 0 {
			return hostverbs.WCLocQPOpErr
		}
	default:
		return hostverbs.WCLocQPOpErr
	}
	if int(wr.NumSGE) > len(wr.SGE) || uint32(wr.NumSGE) > q.attr.Cap.MaxSendSGE {
		return hostverbs.WCLocQPOpErr
	}
	sges := wr.SGE[:wr.NumSGE]
	total := hostverbs.Length(sges)
	if total > hostverbs.MaxMsgSize {
		return hostverbs.WCLocLenErr
	}
	q.sq.total = total
	var status hostverbs.WCStatus
	q.sq.near, q.sq.nearWhole, status = q.checkSGEs(sges, total, need)
	return status
}

// checkSGEs checks the entries that the first n bytes lie in. One without length names no memory, whatever its key. If the
// first entry holds all bytes, it says where they lie.
func (q *qp) checkSGEs(sges []hostverbs.SGE, n uint64, need hostverbs.AccessFlags) (at span, whole bool, _ hostverbs.WCStatus) {
	for i := range sges {
		s := &sges[i]
		if n == 0 {
			break
		}
		if s.Length == 0 {
			continue
		}
		found, status := q.ctx.keys.local(s.LKey, q.pd, s.Addr, uint64(s.Length), need)
		if status != hostverbs.WCSuccess {
			return span{}, false, status
		}
		if i == 0 && n <= uint64(s.Length) {
			return found, true, hostverbs.WCSuccess
		}
		n -= min(n, uint64(s.Length))
	}
	return span{}, false, hostverbs.WCSuccess
}

// consumesReceive says whether the peer needs a posted receive.
func consumesReceive(o hostverbs.WROpcode) bool {
	return o == hostverbs.OpSend || o == hostverbs.OpSendWithImm || o == hostverbs.OpRDMAWriteWithImm
}

// isSend says whether the bytes go to the buffers of a receive.
func isSend(o hostverbs.WROpcode) bool {
	return o == hostverbs.OpSend || o == hostverbs.OpSendWithImm
}

// reach returns the queue pair at the other end if a packet would arrive there and be the expected one, else nil.
func (q *qp) reach() *qp {
	p := q.peer
	if p == nil || q.peerEpoch != p.epoch || q.gidEpoch != q.pl.gidEpoch {
		p = q.resolve()
		q.peer = p
		if p == nil {
			return nil
		}
		q.peerEpoch, q.gidEpoch = p.epoch, q.pl.gidEpoch
	}
	if q.attr.SQPSN != p.attr.RQPSN {
		return nil
	}
	// The rest of a message means nothing to a queue pair that did not see its beginning.
	if q.sq.admitted && (q.sq.admittedTo != p || q.sq.admittedBy != p.incarnation) {
		return nil
	}
	return p
}

// resolve looks the peer up, and asks it whether it means this queue pair too.
func (q *qp) resolve() *qp {
	a := &q.attr.AHAttr
	if int(a.SGIDIndex) >= len(q.ctx.gids) || !q.ctx.gids[a.SGIDIndex].bound {
		return nil
	}
	c := q.pl.gids[a.DGID]
	p := q.pl.qps[q.attr.DestQPNum]
	if c == nil || p == nil || p.ctx != c || p.dead || p.typ != q.typ {
		return nil
	}
	switch p.attr.QPState {
	case hostverbs.StateRTR, hostverbs.StateRTS, hostverbs.StateSQD:
	default:
		return nil
	}
	if p.attr.DestQPNum != q.num || q.pl.gids[p.attr.AHAttr.DGID] != q.ctx {
		return nil
	}
	return p
}
