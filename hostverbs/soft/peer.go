// SPDX-License-Identifier: Apache-2.0

package soft

import "github.com/pvrdmad/pvrdmad/hostverbs"

// reach returns the queue pair at the other end if a packet would arrive there and be the expected one, else nil.
func (q *qp) reach() *qp {
	m, s := q.sq.msg, &q.sq
	if q.ctx.down {
		return q.pl.nobody(m, DropPortDown)
	}
	if q.datagrams() {
		return q.pl.receiver(m)
	}
	p := s.to
	if p == nil || s.toEpoch != p.epoch || s.gidEpoch != q.pl.gidEpoch {
		s.to = nil
		if !q.bound() {
			return q.pl.nobody(m, DropNoAddress)
		}
		if p = q.pl.resolve(m); p == nil {
			return nil
		}
		s.to = p
		s.toEpoch, s.gidEpoch = p.epoch, q.pl.gidEpoch
	}
	if !p.expects(m) {
		return q.pl.nobody(m, DropNoQP)
	}
	return p
}

// nobody counts a message that nobody receives, if it is not one that its sender sends again.
func (pl *poller) nobody(m *message, why DropReason) *qp {
	if m.typ != hostverbs.QPTypeRC {
		pl.lose(why)
	}
	return nil
}

// bound says whether the guest has the address that the queue pair sends from, and writes of which version of RoCE it is.
func (q *qp) bound() bool {
	i := int(q.attr.AHAttr.SGIDIndex)
	if i >= len(q.ctx.gids) || !q.ctx.gids[i].bound {
		return false
	}
	q.sq.msg.path.typ = q.ctx.gids[i].typ
	return true
}

// resolve looks up the queue pair that a message is for, and asks it whether it means the sender too.
func (pl *poller) resolve(m *message) *qp {
	c := pl.gids[m.dgid]
	if c == nil || c.pl != pl || !c.reachedBy(m) {
		return pl.nobody(m, DropNoAddress)
	}
	p := c.reachable[m.destQPN]
	if p == nil || p.typ != m.typ || !p.receives() {
		return pl.nobody(m, DropNoQP)
	}
	if p.attr.DestQPNum != m.srcQPN || pl.gids[p.attr.AHAttr.DGID] != m.from {
		return pl.nobody(m, DropNoQP)
	}
	return p
}

// find returns the queue pair that a message which has come from elsewhere is for, if it is the expected one.
func (pl *poller) find(m *message) *qp {
	if m.typ == hostverbs.QPTypeUD || m.typ == hostverbs.QPTypeGSI {
		return pl.receiver(m)
	}
	p := pl.resolve(m)
	if p != nil && !p.expects(m) {
		return pl.nobody(m, DropNoQP)
	}
	return p
}
