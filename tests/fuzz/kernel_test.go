// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"github.com/pvrdmad/pvrdmad/tests/inproc"
)

// fastPages is how many pages the region for fast registration has room for.
const fastPages = 4

// kernelOps are the opcodes that the guest kernel's driver puts into requests of connected queue pairs, and one that it should
// not. Those that only the kernel may use are there twice.
var kernelOps = []string{
	"RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "SEND", "SEND_WITH_IMM", "RDMA_READ", "ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD",
	"SEND_WITH_INV", "LOCAL_INV", "FAST_REG_MR", "SEND_WITH_INV", "LOCAL_INV", "FAST_REG_MR", "MASKED_ATOMIC_FETCH_AND_ADD",
}

// kernel gives the guest kernel a queue pair that talks to itself, a region, and one for fast registration.
func (w *world) kernel() {
	w.kmr = w.MR(w.kpd, 15, 2)
	w.fast = w.FastMR(w.kpd, fastPages)
	w.kqp = w.QP(w.kpd, w.kcq.Handle, w.kcq.Handle, "RC")
	w.Connect(w.kqp, inproc.Peer{GID: w.GID(0), QPN: w.kqp.QPN})
}

// kernelSend is send for the kernel's queue pair.
func kernelSend(w *world, s *script) {
	w.busy = true
	q := w.kqp
	head := w.Bytes(q.Pages[0], 16)
	at := ram.Load32(head, 0)
	slot := w.Bytes(q.Pages[1]+uint64(at%inproc.QPDepth)*sendStride, sendStride)
	hdr := w.L.View("pvrdma_sq_wqe_hdr", slot)
	hdr.Set("wr_id", uint64(s.u8())).Set("num_sge", uint64(s.u8()%3)).Set("send_flags", uint64(s.u8()%8))
	w.operation(s, hdr)
	w.elements(s, slot[w.L.Size("pvrdma_sq_wqe_hdr"):], w.kmr)
	for range s.below(maxPatches) {
		w.field(s, hdr)
	}
	w.produce(s, head, 0, at)
	w.ringQP(q, w.Const("PVRDMA_UAR_QP_SEND"))
}

// operation fills in what one of the operations uses.
func (w *world) operation(s *script, hdr layout.View) {
	op := pick(s, kernelOps)
	hdr.Set("opcode", uint64(w.Const("PVRDMA_WR_"+op)))
	key := uint64(w.fast.RKey&^0xff) | uint64(s.u8()%4)
	switch op {
	case "FAST_REG_MR":
		n := uint64(s.u8()%fastPages) + 1
		hdr.Set("wr.fast_reg.iova_start", inproc.MRStart+uint64(s.u16())%inproc.PageSize).Set("wr.fast_reg.rkey", key).
			Set("wr.fast_reg.pl_pdir_dma", w.fast.Dir.Addr()).Set("wr.fast_reg.page_shift", 12).
			Set("wr.fast_reg.page_list_len", n).Set("wr.fast_reg.length", (n-1)*inproc.PageSize+1).
			Set("wr.fast_reg.access_flags", uint64(s.u8()%16)|1)
	case "LOCAL_INV", "SEND_WITH_INV":
		hdr.Set("ex.invalidate_rkey", key)
	case "ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD":
		hdr.Set("wr.atomic.remote_addr", inproc.MRStart+uint64(s.u16()%512)*8).Set("wr.atomic.rkey", w.target(s, key)).
			Set("wr.atomic.compare_add", uint64(s.u8()))
	default:
		hdr.Set("wr.rdma.remote_addr", inproc.MRStart+uint64(s.u16()%4096)).Set("wr.rdma.rkey", w.target(s, key))
	}
}

// target is the key of the kernel's region, or one that the region for fast registration may have.
func (w *world) target(s *script, key uint64) uint64 {
	if s.u8()%2 == 0 {
		return key
	}
	return uint64(w.kmr.RKey)
}
