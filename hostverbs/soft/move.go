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

// move copies as much of the message as the visit has left. Keys are looked up for every piece, since regions may have been
// deregistered between two visits.
func (q *qp) move(p *qp, wr *hostverbs.SendWR, b *budget) hostverbs.WCStatus {
	s := &q.sq
	if s.nearWhole && s.farWhole && s.total <= b.bytes && s.moved == 0 {
		status := q.copySpan(p, wr, s.near, s.far, s.total, wr.Opcode == hostverbs.OpRDMARead)
		if status == hostverbs.WCSuccess {
			s.moved = s.total
			b.moved(s.total)
		}
		return status
	}
	for s.moved < s.total && b.bytes > 0 {
		n, status := q.movePiece(p, wr, min(s.total-s.moved, b.bytes))
		if status != hostverbs.WCSuccess {
			return status
		}
		s.moved += n
		b.moved(n)
	}
	return hostverbs.WCSuccess
}

// movePiece copies the next bytes that are contiguous on both sides, at most limit.
func (q *qp) movePiece(p *qp, wr *hostverbs.SendWR, limit uint64) (uint64, hostverbs.WCStatus) {
	s := &q.sq
	l := entry(&wr.SGE, &s.li, &s.loff)
	n := min(limit, uint64(l.Length-s.loff))
	need, pull := hostverbs.AccessFlags(0), wr.Opcode == hostverbs.OpRDMARead
	if pull {
		need = hostverbs.AccessLocalWrite
	}
	var far span
	if isSend(wr.Opcode) {
		r := entry(&p.rq.wr.SGE, &s.ri, &s.roff)
		n = min(n, uint64(r.Length-s.roff))
		var status hostverbs.WCStatus
		far, status = p.ctx.keys.local(r.LKey, p.pd, r.Addr+uint64(s.roff), n, hostverbs.AccessLocalWrite)
		if status != hostverbs.WCSuccess {
			_, status = p.failReceive(status, hostverbs.WCRemOpErr)
			return 0, status
		}
	} else {
		var ok bool
		far, ok = p.ctx.keys.remote(wr.RKey, p.pd, wr.RemoteAddr+s.moved, n, remoteAccess(wr.Opcode))
		if !ok {
			_, status := p.nak(hostverbs.EventQPAccessErr, hostverbs.WCRemAccessErr)
			return 0, status
		}
	}
	near, status := q.ctx.keys.local(l.LKey, q.pd, l.Addr+uint64(s.loff), n, need)
	if status != hostverbs.WCSuccess {
		return 0, status
	}
	if status := q.copySpan(p, wr, near, far, n, pull); status != hostverbs.WCSuccess {
		return 0, status
	}
	s.loff += uint32(n)
	s.roff += uint32(n)
	return n, hostverbs.WCSuccess
}

// entry returns the SGE that the cursor (i, off) is in, past those that are used up. The caller knows that bytes are
// left in the list.
func entry(sges *[hostverbs.MaxSGE]hostverbs.SGE, i *uint8, off *uint32) *hostverbs.SGE {
	for *off == sges[*i].Length {
		*i++
		*off = 0
	}
	return &sges[*i]
}

// copySpan copies between the requester's memory (near) and the responder's (far), and finds out who is to blame if
// it fails.
func (q *qp) copySpan(p *qp, wr *hostverbs.SendWR, near, far span, n uint64, pull bool) hostverbs.WCStatus {
	dst, src := far, near
	if pull {
		dst, src = near, far
	}
	copyBytes := guestmem.Copy
	if q.sq.total >= longMessage {
		copyBytes = guestmem.CopyLong
	}
	err := copyBytes(dst.mem, dst.off, src.mem, src.off, n)
	if err == nil {
		return hostverbs.WCSuccess
	}
	var fault *guestmem.FaultError
	faulted := errors.As(err, &fault)
	if faulted {
		q.pl.fault(fault)
	}
	var side *guestmem.CopyError
	if errors.As(err, &side) && side.Dst == pull {
		return hostverbs.WCLocProtErr
	}
	if isSend(wr.Opcode) {
		_, status := p.failReceive(hostverbs.WCLocProtErr, hostverbs.WCRemOpErr)
		return status
	}
	// Memory that was taken back is no longer the region's to give, as with a region that the host's kernel has revoked; a
	// fault is the responder's own failure.
	event, status := hostverbs.EventQPAccessErr, hostverbs.WCRemAccessErr
	if faulted {
		event, status = hostverbs.EventQPFatal, hostverbs.WCRemOpErr
	}
	_, status = p.nak(event, status)
	return status
}
