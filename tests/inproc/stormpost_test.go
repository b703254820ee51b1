// SPDX-License-Identifier: Apache-2.0

package inproc

import "github.com/pvrdmad/pvrdmad/internal/testguest/ram"

// stormOps are what a guest asks for, the wildest ones seldom.
var stormOps = []string{
	"RDMA_WRITE", "RDMA_WRITE", "RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "SEND", "SEND", "SEND", "SEND_WITH_IMM", "RDMA_READ", "RDMA_READ",
	"RDMA_WRITE", "RDMA_WRITE", "RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "SEND", "SEND", "SEND", "SEND_WITH_IMM", "RDMA_READ", "RDMA_READ",
	"RDMA_WRITE", "RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "SEND", "SEND", "SEND", "SEND_WITH_IMM", "RDMA_READ", "ATOMIC_CMP_AND_SWP",
	"ATOMIC_FETCH_AND_ADD", "SEND_WITH_INV", "LOCAL_INV", "FAST_REG_MR", "FAST_REG_MR", "MASKED_ATOMIC_FETCH_AND_ADD",
}

// post posts some requests and some receives of a queue pair, and rings.
func (x *hostile) post() {
	slot := x.rnd.IntN(few)
	q := x.qps[slot]
	if q.Handle == 0 {
		return
	}
	head := x.Bytes(q.Pages[0], 16)
	at := ram.Load32(head, 0)
	for range x.rnd.IntN(4) {
		x.request(slot, x.Bytes(q.Pages[1]+uint64(at%QPDepth)*sendStride, sendStride))
		at = (at + 1) % (2 * QPDepth)
	}
	ram.Store32(head, 0, at)
	at = ram.Load32(head, 8)
	for range x.rnd.IntN(3) {
		x.receive(x.Bytes(q.Pages[2]+uint64(at%QPDepth)*recvStride, recvStride))
		at = (at + 1) % (2 * QPDepth)
	}
	ram.Store32(head, 8, at)
	x.Doorbell(0, 0, x.Const("PVRDMA_UAR_QP_SEND")|q.Handle)
	x.Doorbell(0, 0, x.Const("PVRDMA_UAR_QP_RECV")|q.Handle)
	i := x.rnd.IntN(few)
	if s := x.srqMem[i]; len(s.Pages) != 0 && x.srqs[i] != 0 {
		head := x.Bytes(s.Pages[0], 16)
		at := ram.Load32(head, 8)
		x.receive(x.Bytes(s.Pages[1]+uint64(at%SRQDepth)*recvStride, recvStride))
		ram.Store32(head, 8, (at+1)%(2*SRQDepth))
	}
	x.Doorbell(0, 4, x.Const("PVRDMA_UAR_CQ_ARM")|uint32(x.any(x.cqs)))
	for _, c := range x.cqMem {
		if len(c.Pages) != 0 { // all entries are taken
			head := x.Bytes(c.Pages[0], 16)
			ram.Store32(head, 12, ram.Load32(head, 8))
		}
	}
}

func (x *hostile) request(from int, slot []byte) {
	op := stormOps[x.rnd.IntN(len(stormOps))]
	if from >= 4 && x.rnd.IntN(40) != 0 { // datagrams know nothing else
		op = "SEND"
	}
	if (op == "FAST_REG_MR" || op == "LOCAL_INV") && from != 0 { // those of one queue pair come in turns
		op = "SEND"
	}
	if x.due = x.due != (op == "FAST_REG_MR" || op == "LOCAL_INV"); op == "FAST_REG_MR" || op == "LOCAL_INV" {
		op = map[bool]string{true: "FAST_REG_MR", false: "LOCAL_INV"}[x.due]
	}
	hdr := x.L.View("pvrdma_sq_wqe_hdr", slot)
	hdr.Set("wr_id", x.rnd.Uint64()).Set("num_sge", uint64(x.rnd.IntN(4))).Set("send_flags", uint64(x.rnd.IntN(8))).
		Set("opcode", uint64(x.Const("PVRDMA_WR_"+op)))
	key := x.s.key(x.n, from, x.rnd.IntN(2))
	if x.rnd.IntN(16) == 0 {
		key = x.s.anyKey(x.rnd)
	}
	fast := uint64(x.fkeys[x.rnd.IntN(2)]&^0xff) | uint64(x.rnd.IntN(2))
	switch op {
	case "FAST_REG_MR":
		hdr.Set("wr.fast_reg.iova_start", MRStart).Set("wr.fast_reg.rkey", fast).
			Set("wr.fast_reg.pl_pdir_dma", x.big[x.rnd.IntN(len(x.big))].Dir.Addr()).Set("wr.fast_reg.page_shift", 12).
			Set("wr.fast_reg.page_list_len", hostileRegion).Set("wr.fast_reg.length", hostileRegion*PageSize).
			Set("wr.fast_reg.access_flags", 15)
		x.s.learn(x.rnd, uint32(fast))
	case "LOCAL_INV":
		hdr.Set("ex.invalidate_rkey", fast)
	case "ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD":
		hdr.Set("wr.atomic.remote_addr", MRStart+uint64(x.rnd.IntN(4096))*8).Set("wr.atomic.rkey", key).
			Set("wr.atomic.compare_add", uint64(x.rnd.IntN(3)))
	case "SEND":
		if x.rnd.IntN(2) == 0 {
			p := x.s.anybody(x.rnd)
			hdr.Set("wr.ud.remote_qpn", uint64(p.QPN)).Set("wr.ud.remote_qkey", stormQKey).
				Set("wr.ud.av.port_pd", 1<<24|x.any(x.pds)).SetBytes("wr.ud.av.dgid", p.GID)
		}
	default:
		hdr.Set("wr.rdma.remote_addr", MRStart+uint64(x.rnd.IntN(hostileRegion*PageSize/2))).Set("wr.rdma.rkey", key)
		if op == "SEND_WITH_INV" {
			hdr.Set("ex.invalidate_rkey", x.s.anyKey(x.rnd))
		}
	}
	x.elements(slot[x.L.Size("pvrdma_sq_wqe_hdr"):], 3, hostileRegion*PageSize/8)
}

func (x *hostile) receive(slot []byte) {
	x.L.View("pvrdma_rq_wqe_hdr", slot).Set("wr_id", x.rnd.Uint64()).Set("num_sge", 1+uint64(x.rnd.IntN(3)))
	x.elements(slot[x.L.Size("pvrdma_rq_wqe_hdr"):], 3, hostileRegion*PageSize)
}

// elements names parts of regions, of up to so many bytes each.
func (x *hostile) elements(b []byte, n int, most uint64) {
	size := x.L.Size("pvrdma_sge")
	for i := range n {
		length := most
		if x.rnd.IntN(4) == 0 {
			length = x.rnd.Uint64N(most)
		}
		x.L.View("pvrdma_sge", b[i*size:]).Set("addr", MRStart+x.rnd.Uint64N(hostileRegion*PageSize-length+1)).
			Set("length", length).Set("lkey", uint64(x.keys[x.rnd.IntN(2)]))
	}
}
