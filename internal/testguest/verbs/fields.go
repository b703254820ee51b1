// SPDX-License-Identifier: Apache-2.0

package verbs

import "github.com/pvrdmad/pvrdmad/internal/testguest/layout"

// fields are the places of the data path's structures, looked up once.
type fields struct {
	cqe  cqeFields
	sq   sqFields
	rq   struct{ wrID, numSGE layout.Field }
	sge  struct{ addr, length, lkey layout.Field }
	bell bells

	cqeSize, sqSize, rqSize, sgeSize int
}

type cqeFields struct {
	wrID, qp, opcode, status, byteLen, imm, srcQP, flags, vendorErr, pkeyIndex, networkType layout.Field
}

type sqFields struct {
	wrID, numSGE, opcode, flags, imm, invKey                 layout.Field
	rdmaAddr, rdmaKey                                        layout.Field
	atomicAddr, atomicKey, compareAdd, swap                  layout.Field
	udQPN, udQKey, udAV                                      layout.Field
	frIOVA, frPDir, frShift, frLen, frBytes, frAccess, frKey layout.Field
}

// bells are the offsets and bits of a doorbell page.
type bells struct {
	qp, cq, srq                            uint32
	send, recv, arm, armSol, poll, srqRecv uint32
}

func newFields(l *layout.Layout) fields {
	f := fields{
		cqe: cqePlaces(l), sq: sqPlaces(l), bell: bellPlaces(l),
		cqeSize: l.Size("pvrdma_cqe"), sqSize: l.Size("pvrdma_sq_wqe_hdr"),
		rqSize: l.Size("pvrdma_rq_wqe_hdr"), sgeSize: l.Size("pvrdma_sge"),
	}
	f.rq.wrID, f.rq.numSGE = l.Field("pvrdma_rq_wqe_hdr", "wr_id"), l.Field("pvrdma_rq_wqe_hdr", "num_sge")
	f.sge.addr, f.sge.length = l.Field("pvrdma_sge", "addr"), l.Field("pvrdma_sge", "length")
	f.sge.lkey = l.Field("pvrdma_sge", "lkey")
	return f
}

func cqePlaces(l *layout.Layout) cqeFields {
	at := func(name string) layout.Field { return l.Field("pvrdma_cqe", name) }
	return cqeFields{
		wrID: at("wr_id"), qp: at("qp"), opcode: at("opcode"), status: at("status"), byteLen: at("byte_len"),
		imm: at("imm_data"), srcQP: at("src_qp"), flags: at("wc_flags"), vendorErr: at("vendor_err"),
		pkeyIndex: at("pkey_index"), networkType: at("network_hdr_type"),
	}
}

func sqPlaces(l *layout.Layout) sqFields {
	at := func(name string) layout.Field { return l.Field("pvrdma_sq_wqe_hdr", name) }
	return sqFields{
		wrID: at("wr_id"), numSGE: at("num_sge"), opcode: at("opcode"), flags: at("send_flags"),
		imm: at("ex.imm_data"), invKey: at("ex.invalidate_rkey"),
		rdmaAddr: at("wr.rdma.remote_addr"), rdmaKey: at("wr.rdma.rkey"),
		atomicAddr: at("wr.atomic.remote_addr"), atomicKey: at("wr.atomic.rkey"),
		compareAdd: at("wr.atomic.compare_add"), swap: at("wr.atomic.swap"),
		udQPN: at("wr.ud.remote_qpn"), udQKey: at("wr.ud.remote_qkey"), udAV: at("wr.ud.av"),
		frIOVA: at("wr.fast_reg.iova_start"), frPDir: at("wr.fast_reg.pl_pdir_dma"),
		frShift: at("wr.fast_reg.page_shift"), frLen: at("wr.fast_reg.page_list_len"),
		frBytes: at("wr.fast_reg.length"), frAccess: at("wr.fast_reg.access_flags"), frKey: at("wr.fast_reg.rkey"),
	}
}

func bellPlaces(l *layout.Layout) bells {
	return bells{
		qp: l.Const("PVRDMA_UAR_QP_OFFSET"), cq: l.Const("PVRDMA_UAR_CQ_OFFSET"), srq: l.Const("PVRDMA_UAR_SRQ_OFFSET"),
		send: l.Const("PVRDMA_UAR_QP_SEND"), recv: l.Const("PVRDMA_UAR_QP_RECV"),
		arm: l.Const("PVRDMA_UAR_CQ_ARM"), armSol: l.Const("PVRDMA_UAR_CQ_ARM_SOL"), poll: l.Const("PVRDMA_UAR_CQ_POLL"),
		srqRecv: l.Const("PVRDMA_UAR_SRQ_RECV"),
	}
}
