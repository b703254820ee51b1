// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"errors"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/hostverbs/gsi"
)

// maxDatagram is the most bytes that a datagram carries: one packet of the port's.
const maxDatagram = 4096

// datagrams says whether each request of the queue pair goes where it says itself.
func (q *qp) datagrams() bool { return q.typ == hostverbs.QPTypeUD || q.typ == hostverbs.QPTypeGSI }

// path is what the packet of a datagram carries of its way.
type path struct {
	qkey, flowLabel        uint32
	sgid                   hostverbs.GID
	typ                    hostverbs.GIDType
	network                hostverbs.Network
	trafficClass, hopLimit uint8
}

// route writes where a datagram goes, and says whether a way can lead there: from one of the guest's addresses to the port of
// one other, which no header can hold both of if they are of two families. Whoever is there is another matter.
func (q *qp) route(wr *hostverbs.SendWR) bool {
	ah := &wr.AH
	if ah.PortNum != 1 || !ah.GRH || !ah.DGID.Unicast() || int(ah.SGIDIndex) >= len(q.ctx.gids) {
		return false
	}
	from := &q.ctx.gids[ah.SGIDIndex]
	network := ah.DGID.Network(from.typ)
	if !from.bound || network != from.gid.Network(from.typ) {
		return false
	}
	m := q.sq.msg
	m.dgid, m.destQPN, m.sl = ah.DGID, wr.RemoteQPN, ah.SL
	m.path = path{
		qkey: wr.RemoteQKey, flowLabel: ah.FlowLabel, sgid: from.gid, typ: from.typ, network: network,
		trafficClass: ah.TrafficClass, hopLimit: ah.HopLimit,
	}
	if m.path.qkey&controlledQKey != 0 {
		m.path.qkey = q.attr.QKey
	}
	return true
}

// controlledQKey is the bit of a Q_Key that no request may set: it stands for the queue pair's own (InfiniBand architecture
// 10.2.5), so that a program cannot use a key that its kernel has not given it.
const controlledQKey = 1 << 31

// receiver looks up the queue pair that a datagram is for.
func (pl *poller) receiver(m *message) *qp {
	c := pl.gids[m.dgid]
	if c == nil || c.pl != pl || !c.reachedBy(m) {
		pl.lose(DropNoAddress)
		return nil
	}
	p := c.reachable[m.destQPN]
	if m.destQPN == gsi.QPN {
		p = c.gsi
	}
	if p == nil || !p.datagrams() || !p.receives() {
		pl.lose(DropNoQP)
		return nil
	}
	return p
}

// reachedBy says whether the guest has the address that a message goes to in the version of RoCE that it is sent by.
func (c *context) reachedBy(m *message) bool {
	for i := range c.gids {
		if g := &c.gids[i]; g.bound && g.gid == m.dgid && g.typ == m.path.typ {
			return true
		}
	}
	return false
}

// receives says whether packets of others come in.
func (q *qp) receives() bool {
	if q.dead {
		return false
	}
	switch q.attr.QPState {
	case hostverbs.StateRTR, hostverbs.StateRTS, hostverbs.StateSQD:
		return true
	case hostverbs.StateSQE: // its send queue alone has stopped
		return true
	}
	return false
}

// deliver puts a datagram into a receive. Whatever becomes of it, its sender has done its part: what can fail there now is its
// memory alone.
func (q *qp) deliver(m *message, b *budget) {
	m.reply, m.moved = replyACK, m.total
	if m.path.qkey != q.attr.QKey {
		q.pl.lose(DropQKey)
		return
	}
	var far target
	if reply, _ := q.admitReceive(m, &far); reply != replyACK {
		return
	}
	// The bytes are read once: what the kernel behind a GSI queue pair gets is what was looked at.
	packet := q.pl.packet[:hostverbs.GRHBytes+m.total]
	payload := packet[hostverbs.GRHBytes:]
	if err := m.collect(payload); err != nil {
		q.pl.noteFault(err)
		m.reply, m.status = replyNAK, hostverbs.WCLocProtErr
		return
	}
	b.moved(m.total)
	if !q.passes(payload) {
		q.pl.lose(DropNotMAD)
		return
	}
	m.header((*[hostverbs.GRHBytes]byte)(packet))
	if status := q.spread(packet, &far); status != hostverbs.WCSuccess {
		q.failReceive(status, hostverbs.WCSuccess)
		return
	}
	q.pl.count.message(m.op, m.total)
	q.received(m)
}

// collect copies the message out of the sender's memory.
func (m *message) collect(b []byte) error {
	for len(b) > 0 {
		p := m.near.head()
		n := min(p.n, uint64(len(b)))
		if err := guestmem.CopyOut(b[:n], p.mem, p.off); err != nil {
			return err
		}
		m.near.moved(n)
		b = b[n:]
	}
	return nil
}

// spread copies a packet into the pulled receive, which has room for it.
func (q *qp) spread(b []byte, far *target) hostverbs.WCStatus {
	if far.whole {
		return q.put(far.at, b)
	}
	for len(b) > 0 {
		s := q.rq.entry()
		if s == nil { // more than was admitted: never
			return hostverbs.WCLocLenErr
		}
		n := min(s.Length-q.rq.off, uint32(len(b)))
		at, status := q.ctx.keys.local(s.LKey, q.recvPD, s.Addr+uint64(q.rq.off), uint64(n), hostverbs.AccessLocalWrite)
		if status == hostverbs.WCSuccess {
			status = q.put(at, b[:n])
		}
		if status != hostverbs.WCSuccess {
			return status
		}
		q.rq.off += n
		b = b[n:]
	}
	return hostverbs.WCSuccess
}

// put copies bytes to a place in the guest's memory.
func (q *qp) put(at span, b []byte) hostverbs.WCStatus {
	if err := guestmem.CopyIn(at.mem, at.off, b); err != nil {
		q.pl.noteFault(err)
		return hostverbs.WCLocProtErr
	}
	return hostverbs.WCSuccess
}

// noteFault tells the observer of an error of guest memory if it is a fault.
func (pl *poller) noteFault(err error) {
	var fault *guestmem.FaultError
	if errors.As(err, &fault) {
		pl.fault(fault)
	}
}
