// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"github.com/pvrdmad/pvrdmad/tests/inproc"
)

// send writes a work request into a slot of the send ring, honest but for a few fields, and moves the index on: mostly by
// one, sometimes anywhere.
func send(w *world, s *script) {
	w.busy = true
	q := w.queuePair(s)
	head := w.Bytes(q.Pages[0], 16)
	at := ram.Load32(head, 0)
	slot := w.Bytes(q.Pages[1]+uint64(at%inproc.QPDepth)*sendStride, sendStride)
	hdr := w.L.View("pvrdma_sq_wqe_hdr", slot)
	hdr.Set("wr_id", uint64(s.u8())).Set("num_sge", uint64(s.u8()%3)).Set("opcode", uint64(s.u8()%7)).
		Set("send_flags", uint64(s.u8()%8)).Set("wr.rdma.remote_addr", w.n.mr.Start).Set("wr.rdma.rkey", uint64(w.n.mr.RKey))
	if hdr.Get("opcode") >= uint64(w.Const("PVRDMA_WR_ATOMIC_CMP_AND_SWP")) {
		hdr.Set("wr.atomic.compare_add", 0).Set("wr.atomic.swap", 0).Set("wr.atomic.rkey", uint64(w.n.mr.RKey))
	}
	w.elements(s, slot[w.L.Size("pvrdma_sq_wqe_hdr"):], w.region(q))
	switch q.Handle {
	case w.gsi.Handle:
		w.datagram(hdr, w.kpd, 1, gsiQKey)
		if s.u8()%2 == 0 {
			w.mad(hdr, slot[w.L.Size("pvrdma_sq_wqe_hdr"):])
		}
	case w.ud.Handle:
		w.datagram(hdr, w.pd, w.n.ud.QPN, udQKey)
	}
	for range s.below(maxPatches) {
		w.field(s, hdr)
	}
	w.produce(s, head, 0, at)
	w.ringQP(q, w.Const("PVRDMA_UAR_QP_SEND"))
}

// datagram gives a request the address of the neighbour's queue pair of the same kind.
func (w *world) datagram(hdr layout.View, pd, qpn, qkey uint32) {
	hdr.Set("opcode", uint64(w.Const("PVRDMA_WR_SEND"))).Set("wr.ud.remote_qpn", uint64(qpn)).
		Set("wr.ud.remote_qkey", uint64(qkey)).Set("wr.ud.av.port_pd", 1<<24|uint64(pd)).SetBytes("wr.ud.av.dgid", w.n.GID(0))
}

// mad makes a request that of a management datagram, in the two pieces that the MAD layer makes of it.
func (w *world) mad(hdr layout.View, sges []byte) {
	hdr.Set("num_sge", 2)
	n := w.L.Size("pvrdma_sge")
	w.L.View("pvrdma_sge", sges).Set("addr", w.kmr.Start).Set("length", 24)
	w.L.View("pvrdma_sge", sges[n:]).Set("addr", w.kmr.Start+24).Set("length", 232)
	copy(w.Bytes(w.kmr.Pages[0], 4), []byte{1, 7, 2, 3}) // base version, class CM, its version, method Send
}

// queuePair is mostly the one that is connected, sometimes one of datagrams or one of the kernel's.
func (w *world) queuePair(s *script) inproc.QP {
	switch s.u8() % 8 {
	case 2:
		return w.ud
	case 3:
		return w.gsi
	case 7:
		return w.kqp
	}
	return w.qp
}

// recv is the same for the receive ring.
func recv(w *world, s *script) {
	w.busy = true
	q := w.queuePair(s)
	head := w.Bytes(q.Pages[0], 16)
	at := ram.Load32(head, 8)
	slot := w.Bytes(q.Pages[2]+uint64(at%inproc.QPDepth)*recvStride, recvStride)
	hdr := w.L.View("pvrdma_rq_wqe_hdr", slot)
	hdr.Set("wr_id", uint64(s.u8())).Set("num_sge", uint64(s.u8()%3))
	w.elements(s, slot[w.L.Size("pvrdma_rq_wqe_hdr"):], w.region(q))
	for range s.below(maxPatches) {
		w.field(s, hdr)
	}
	w.produce(s, head, 8, at)
	w.ringQP(q, w.Const("PVRDMA_UAR_QP_RECV"))
}

// sharedRecv is the same for the shared receive queue.
func sharedRecv(w *world, s *script) {
	w.busy = true
	head := w.Bytes(w.srq.Pages[0], 16)
	at := ram.Load32(head, 8)
	slot := w.Bytes(w.srq.Pages[1]+uint64(at%inproc.SRQDepth)*recvStride, recvStride)
	hdr := w.L.View("pvrdma_rq_wqe_hdr", slot)
	hdr.Set("wr_id", uint64(s.u8())).Set("num_sge", uint64(s.u8()%3))
	w.elements(s, slot[w.L.Size("pvrdma_rq_wqe_hdr"):], w.mr)
	for range s.below(maxPatches) {
		w.field(s, hdr)
	}
	w.produce(s, head, 8, at)
	word := w.Const("PVRDMA_UAR_SRQ_RECV") | w.srq.Handle
	if w.uar != nil && s.u8()%2 == 0 {
		ram.Store32(w.uar, inproc.PageSize+int(w.Const("PVRDMA_UAR_SRQ_OFFSET")), word)
		w.Worker.Wake()
		return
	}
	w.Doorbell(uint32(s.u8()%3), w.Const("PVRDMA_UAR_SRQ_OFFSET"), word)
}

// kernels says whether a queue pair is the guest kernel's.
func (w *world) kernels(q inproc.QP) bool {
	return q.Handle == w.gsi.Handle || q.Handle == w.kqp.Handle
}

// region is what requests of a queue pair are about.
func (w *world) region(q inproc.QP) inproc.MR {
	if w.kernels(q) {
		return w.kmr
	}
	return w.mr
}

// elements fills two scatter/gather elements with parts of a region, and changes some.
func (w *world) elements(s *script, b []byte, mr inproc.MR) {
	n := w.L.Size("pvrdma_sge")
	for i := range 2 {
		w.L.View("pvrdma_sge", b[i*n:]).Set("addr", mr.Start+uint64(s.u16())).Set("length", uint64(s.u16()%2048)).
			Set("lkey", uint64(mr.LKey))
	}
	for range s.below(3) {
		w.field(s, w.L.View("pvrdma_sge", b[s.below(2)*n:]))
	}
}

// produce moves the producer's index on.
func (w *world) produce(s *script, head []byte, off int, at uint32) {
	next := (at + 1) % (2 * inproc.QPDepth)
	if s.u8()%16 == 15 {
		next = uint32(w.number(s))
	}
	ram.Store32(head, off, next)
}

func (w *world) ringQP(q inproc.QP, bit uint32) {
	if w.uar != nil && !w.kernels(q) {
		ram.Store32(w.uar, inproc.PageSize, bit|q.Handle)
		w.Worker.Wake()
		return
	}
	w.Doorbell(1, 0, bit|q.Handle) // the kernel's has no business there
	w.Doorbell(0, 0, bit|q.Handle)
}

// peerSend lets the neighbour send something to the guest, and sharedSend to the queue pair that shares its receives.
func peerSend(w *world, s *script) { w.fromPeer(w.n.qp, s) }

func sharedSend(w *world, s *script) { w.fromPeer(w.n.shared, s) }

func (w *world) fromPeer(q inproc.QP, s *script) {
	w.busy = true
	n := w.n
	head := n.Bytes(q.Pages[0], 16)
	at := ram.Load32(head, 0)
	slot := n.Bytes(q.Pages[1]+uint64(at%inproc.QPDepth)*sendStride, sendStride)
	n.L.View("pvrdma_sq_wqe_hdr", slot).Set("wr_id", 1).Set("num_sge", 1).Set("opcode", uint64(s.u8()%7)).
		Set("wr.atomic.rkey", uint64(w.mr.RKey)).
		Set("wr.rdma.remote_addr", w.mr.Start+uint64(s.u16())).Set("wr.rdma.rkey", uint64(w.mr.RKey))
	n.L.View("pvrdma_sge", slot[n.L.Size("pvrdma_sq_wqe_hdr"):]).Set("addr", n.mr.Start).Set("length", uint64(s.u16()%8192)).
		Set("lkey", uint64(n.mr.LKey))
	ram.Store32(head, 0, (at+1)%(2*inproc.QPDepth))
	n.Doorbell(1, 0, n.Const("PVRDMA_UAR_QP_SEND")|q.Handle)
}

// consume moves the guest's index of its completion queue, mostly to where the device's is.
func consume(w *world, s *script) {
	w.busy = true
	head := w.Bytes(w.cq.Pages[0], 16)
	v := ram.Load32(head, 8)
	if s.u8()%8 == 7 {
		v = uint32(w.number(s))
	}
	ram.Store32(head, 12, v)
}

// arm arms the completion queue.
func arm(w *world, s *script) {
	w.busy = true
	bit := w.Const("PVRDMA_UAR_CQ_ARM")
	if s.u8()%2 == 0 {
		bit = w.Const("PVRDMA_UAR_CQ_ARM_SOL")
	}
	w.Doorbell(uint32(s.u8()%2), 4, bit|w.cq.Handle)
}

// checkRequests compares the counters of broken requests with the completions: a request that breaks a rule moves one, and
// completes in error.
func (w *world) checkRequests() {
	if !w.quiet {
		return
	}
	w.Settle()
	c, moved := w.Fn.Counters(), w.Seen.Counts()
	if bad := moved[inproc.ProtocolCounter(badWQE)]; uint64(bad) > c.SendWQEs+c.RecvWQEs {
		w.t.Errorf("%d broken requests of %d that were taken", bad, c.SendWQEs+c.RecvWQEs)
	}
	if c.CQEErrors > c.CQEs+uint64(moved[inproc.ProtocolCounter(cqOverflow)])*inproc.QPDepth*4 {
		w.t.Errorf("%d completions in error of %d", c.CQEErrors, c.CQEs)
	}
}
