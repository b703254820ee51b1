// SPDX-License-Identifier: Apache-2.0

package soft

// reach returns the queue pair at the other end if a packet would arrive there and be the expected one, else nil.
func (q *qp) reach() *qp {
	m := &q.sq.msg
	if q.ctx.down {
		return nil
	}
	if q.datagrams() {
		return q.pl.receiver(m)
	}
	p := m.to
	if p == nil || m.toEpoch != p.epoch || m.gidEpoch != q.pl.gidEpoch {
		p = nil
		if q.bound() {
			p = q.pl.resolve(m)
		}
		m.to = p
		if p == nil {
			return nil
		}
		m.toEpoch, m.gidEpoch = p.epoch, q.pl.gidEpoch
	}
	if !p.expects(m) {
		return nil
	}
	return p
}

// bound says whether the guest has the address that the queue pair sends from.
func (q *qp) bound() bool {
	i := int(q.attr.AHAttr.SGIDIndex)
	return i < len(q.ctx.gids) && q.ctx.gids[i].bound
}

// resolve looks up the queue pair that a message is for, and asks it whether it means the sender too.
func (pl *poller) resolve(m *message) *qp {
	c := pl.gids[m.dgid]
	p := pl.qps[m.destQPN]
	if c == nil || p == nil || p.ctx != c || p.typ != m.typ || !p.receives() {
		return nil
	}
	if p.attr.DestQPNum != m.srcQPN || pl.gids[p.attr.AHAttr.DGID] != m.from {
		return nil
	}
	return p
}
