// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"errors"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// longMessage is how many bytes a message has that is not copied through the caches: from here on that would take 1.6 times
// as long, and push out what others have there.
const longMessage = 1 << 20

// target is where a message goes at the responder, if it is one piece there: as found when it was admitted, and good for
// that step.
type target struct {
	at    span
	whole bool
}

// move copies as much of the message as the visit has left.
func (q *qp) move(m *message, far *target, b *budget) hostverbs.WCStatus {
	if far.whole && m.near.one() && m.total <= b.bytes {
		status := q.copySpan(m, m.near.head().span, far.at, m.total)
		if status == hostverbs.WCSuccess {
			m.moved = m.total
			b.moved(m.total)
		}
		return status
	}
	for m.moved < m.total && b.bytes > 0 {
		n, status := q.movePiece(m, min(m.total-m.moved, b.bytes))
		if status != hostverbs.WCSuccess {
			return status
		}
		m.moved += n
		b.moved(n)
	}
	return hostverbs.WCSuccess
}

// movePiece copies the next bytes that are contiguous on both sides, at most limit. The key is looked up for every piece,
// since the region may have been deregistered between two visits.
func (q *qp) movePiece(m *message, limit uint64) (uint64, hostverbs.WCStatus) {
	near := m.near.head()
	n := min(limit, near.n)
	var far span
	if isSend(m.op) {
		r := q.rq.entry()
		if r == nil { // more than was admitted: never
			_, status := q.nak(hostverbs.EventQPFatal, hostverbs.WCRemOpErr)
			return 0, status
		}
		n = min(n, uint64(r.Length-q.rq.off))
		var status hostverbs.WCStatus
		far, status = q.ctx.keys.local(r.LKey, q.recvPD, r.Addr+uint64(q.rq.off), n, hostverbs.AccessLocalWrite)
		if status != hostverbs.WCSuccess {
			_, status = q.failReceive(status, hostverbs.WCRemOpErr)
			return 0, status
		}
	} else {
		var ok bool
		far, ok = q.ctx.keys.remote(m.rkey, q.pd, m.remoteAddr+m.moved, n, remoteAccess(m.op))
		if !ok {
			_, status := q.nak(hostverbs.EventQPAccessErr, hostverbs.WCRemAccessErr)
			return 0, status
		}
	}
	if status := q.copySpan(m, near.span, far, n); status != hostverbs.WCSuccess {
		return 0, status
	}
	m.near.moved(n)
	q.rq.off += uint32(n)
	return n, hostverbs.WCSuccess
}

// entry returns the SGE of the pulled receive that the next byte goes to, nil if all are used up.
func (r *recvQueue) entry() *hostverbs.SGE {
	for ; r.i < r.wr.NumSGE; r.i, r.off = r.i+1, 0 {
		if s := &r.wr.SGE[r.i]; r.off < s.Length {
			return s
		}
	}
	return nil
}

// copySpan copies between the requester's memory (near) and the responder's (far), and finds out who is to blame if
// it fails.
func (q *qp) copySpan(m *message, near, far span, n uint64) hostverbs.WCStatus {
	dst, src, pull := far, near, m.op == hostverbs.OpRDMARead
	if pull {
		dst, src = near, far
	}
	copyBytes := guestmem.Copy
	if m.total >= longMessage {
		copyBytes = guestmem.CopyLong
	}
	err := copyBytes(dst.mem, dst.off, src.mem, src.off, n)
	if err == nil {
		return hostverbs.WCSuccess
	}
	return q.copyFailed(m, err, pull)
}

// copyFailed is the requester's status after a copy that failed. What is the responder's fault is its end too.
func (q *qp) copyFailed(m *message, err error, pull bool) hostverbs.WCStatus {
	var fault *guestmem.FaultError
	faulted := errors.As(err, &fault)
	if faulted {
		q.pl.fault(fault)
	}
	var side *guestmem.CopyError
	if errors.As(err, &side) && side.Dst == pull {
		return hostverbs.WCLocProtErr
	}
	if isSend(m.op) {
		_, status := q.failReceive(hostverbs.WCLocProtErr, hostverbs.WCRemOpErr)
		return status
	}
	// Memory that was taken back is no longer the region's to give, as with a region that the host's kernel has revoked; a
	// fault is the responder's own failure.
	event, status := hostverbs.EventQPAccessErr, hostverbs.WCRemAccessErr
	if faulted {
		event, status = hostverbs.EventQPFatal, hostverbs.WCRemOpErr
	}
	_, status = q.nak(event, status)
	return status
}
