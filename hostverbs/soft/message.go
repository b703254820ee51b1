// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// message is all that a responder knows of a request: what its packets would carry, and where the requester's bytes lie.
// A responder sees no other part of the requester. A queue pair has one under way, which lies in its send queue: the
// requester fills it in, the responder works on it and answers in it, the requester reads the answer.
type message struct {
	// Where it comes from and goes to. from, which a wire would tell by the source GID, is for comparing.
	typ             hostverbs.QPType
	sl              uint8
	mtu             hostverbs.MTU
	srcQPN, destQPN uint32
	dgid            hostverbs.GID
	from            *context

	// What is asked. packets is the number of sequence numbers that it takes, psn the first of them.
	op           hostverbs.WROpcode
	solicited    bool
	imm          uint32
	rkey         uint32
	psn, packets uint32
	remoteAddr   uint64
	total        uint64
	// compareAdd and swap are the operands of an atomic operation.
	compareAdd, swap uint64
	// path is of a datagram; of other messages the version of RoCE alone.
	path path

	// moved is how many bytes have moved. admittedBy is the responder's name for the message once it has let it in, 0 before.
	moved      uint64
	admittedBy uint64
	// The answer. status is the requester's completion of a replyNAK, rnrTimer the responder's min_rnr_timer of a replyRNR.
	// was is what an atomic operation has found.
	reply    reply
	status   hostverbs.WCStatus
	rnrTimer uint8
	was      uint64

	// near is where the bytes that have not moved yet lie at the requester: as found in this step, since a region may be
	// gone in the next. It is the longest, and last because most messages have one piece.
	near pieces
}

// reply is what a responder answers.
type reply uint8

const (
	// replyACK: the bytes that have moved are acknowledged.
	replyACK reply = iota
	// replyNone: the packet is dropped.
	replyNone
	// replyRNR: there is no receive, try again.
	replyRNR
	// replyNAK: the message failed; the status is the requester's.
	replyNAK
	// replyAgain: the requester's memory has to be found anew.
	replyAgain
)

// address writes what all messages of a connection have in common.
func (m *message) address(q *qp) {
	m.typ, m.from, m.srcQPN = q.typ, q.ctx, q.num
	m.mtu = q.attr.PathMTU
	m.sl, m.dgid, m.destQPN = q.attr.AHAttr.SL, q.attr.AHAttr.DGID, q.attr.DestQPNum
}

// ask writes what a request asks for. How long it is, and where its bytes lie, follows when it is checked.
func (m *message) ask(wr *hostverbs.SendWR, psn uint32) {
	m.op = wr.Opcode
	m.solicited = wr.Flags&hostverbs.SendSolicited != 0
	m.imm, m.rkey, m.remoteAddr = wr.Imm, wr.RKey, wr.RemoteAddr
	m.compareAdd, m.swap = wr.CompareAdd, wr.Swap
	m.psn = psn
	m.moved, m.total, m.admittedBy = 0, 0, 0
}

// span is a range of guest memory that passed its checks.
type span struct {
	mem guestmem.Memory
	off uint64
}

// piece is a span with its length.
type piece struct {
	span
	n uint64
}

// pieces are the parts of a message's memory, in order: the first of them shrinks as bytes move.
type pieces struct {
	first, end uint8
	list       [hostverbs.MaxSGE]piece
}

// clear forgets all parts.
func (p *pieces) clear() { p.first, p.end = 0, 0 }

// add appends a part that is not empty.
func (p *pieces) add(at span, n uint64) {
	h := &p.list[p.end]
	h.mem, h.off, h.n = at.mem, at.off, n
	p.end++
}

// one says whether there is one part.
func (p *pieces) one() bool { return p.end == p.first+1 }

// head returns the part whose turn it is. There is one.
func (p *pieces) head() *piece { return &p.list[p.first] }

// moved takes n bytes off the head.
func (p *pieces) moved(n uint64) {
	h := p.head()
	h.off += n
	h.n -= n
	if h.n == 0 {
		p.first++
	}
}
