// SPDX-License-Identifier: Apache-2.0

package abi_test

import "github.com/pvrdmad/pvrdmad/pvrdma/abi"

// codec is what every structure of the package can do.
type codec interface {
	Decode(b []byte) error
	Encode(b []byte)
}

// counterpart says which Go type stands for which C structure. Which fields there are, and
// where, is not said here: the headers' debug information and reflection say it.
type counterpart struct {
	tag    string // C structure
	member string // only this member of it, for a member that is a type of its own in Go
	blank  string // this member (path below member) is another counterpart's
	rename map[string]string
	new    func() codec
}

// counterparts lists the Go types. A C structure missing here fails the test, and so does
// a Go type.
func counterparts() []counterpart {
	all := append(commandCounterparts(), workRequestCounterparts()...)
	return append(all, []counterpart{
		{tag: "pvrdma_ah_attr", new: mk[abi.AHAttr]},
		{tag: "pvrdma_alloc_pd_resp", new: mk[abi.UverbsAllocPDResp]},
		{tag: "pvrdma_alloc_ucontext_resp", new: mk[abi.UverbsAllocUcontextResp]},
		{tag: "pvrdma_av", new: mk[abi.AV]},
		{tag: "pvrdma_cqe", new: mk[abi.CQE]},
		{tag: "pvrdma_cqne", new: mk[abi.CQNE]},
		{tag: "pvrdma_create_cq", new: mk[abi.UverbsCreateCQ]},
		{tag: "pvrdma_create_cq_resp", new: mk[abi.UverbsCreateCQResp]},
		{tag: "pvrdma_create_qp", new: mk[abi.UverbsCreateQP]},
		{tag: "pvrdma_create_qp_resp", new: mk[abi.UverbsCreateQPResp]},
		{tag: "pvrdma_create_srq", new: mk[abi.UverbsCreateSRQ]},
		{tag: "pvrdma_create_srq_resp", new: mk[abi.UverbsCreateSRQResp]},
		{tag: "pvrdma_device_caps", new: mk[abi.DeviceCaps]},
		{tag: "pvrdma_device_shared_region", new: mk[abi.DSR]},
		{tag: "pvrdma_eqe", new: mk[abi.EQE]},
		{tag: "pvrdma_ex_cmp_swap", new: mk[abi.ExCmpSwap]},
		{tag: "pvrdma_ex_fetch_add", new: mk[abi.ExFetchAdd]},
		{tag: "pvrdma_global_route", new: mk[abi.GlobalRoute]},
		{tag: "pvrdma_gos_info", new: mk[abi.GOSInfo]},
		{tag: "pvrdma_grh", new: mk[abi.GRH]},
		{tag: "pvrdma_port_attr", new: mk[abi.PortAttr]},
		{tag: "pvrdma_qp_attr", new: mk[abi.QPAttr]},
		{tag: "pvrdma_qp_cap", new: mk[abi.QPCap]},
		{tag: "pvrdma_resize_cq", new: mk[abi.UverbsResizeCQ]},
		{tag: "pvrdma_ring", new: mk[abi.Ring]},
		{tag: "pvrdma_ring_page_info", new: mk[abi.RingPageInfo]},
		{tag: "pvrdma_ring_state", new: mk[abi.RingState]},
		{tag: "pvrdma_srq_attr", new: mk[abi.SRQAttr]},
	}...)
}

func commandCounterparts() []counterpart {
	return []counterpart{
		{tag: "pvrdma_cmd_create_bind", new: mk[abi.CmdCreateBindReq]},
		{tag: "pvrdma_cmd_create_cq", new: mk[abi.CmdCreateCQReq]},
		{tag: "pvrdma_cmd_create_cq_resp", new: mk[abi.CmdCreateCQResp]},
		{tag: "pvrdma_cmd_create_mr", new: mk[abi.CmdCreateMRReq]},
		{tag: "pvrdma_cmd_create_mr_resp", new: mk[abi.CmdCreateMRResp]},
		{tag: "pvrdma_cmd_create_pd", new: mk[abi.CmdCreatePDReq]},
		{tag: "pvrdma_cmd_create_pd_resp", new: mk[abi.CmdCreatePDResp]},
		{tag: "pvrdma_cmd_create_qp", new: mk[abi.CmdCreateQPReq]},
		{tag: "pvrdma_cmd_create_qp_resp", new: mk[abi.CmdCreateQPResp]},
		{tag: "pvrdma_cmd_create_qp_resp_v2", new: mk[abi.CmdCreateQPRespV2]},
		{tag: "pvrdma_cmd_create_srq", new: mk[abi.CmdCreateSRQReq]},
		{tag: "pvrdma_cmd_create_srq_resp", new: mk[abi.CmdCreateSRQResp]},
		{tag: "pvrdma_cmd_create_uc", new: mk[abi.CmdCreateUCReq]},
		{tag: "pvrdma_cmd_create_uc_resp", new: mk[abi.CmdCreateUCResp]},
		{tag: "pvrdma_cmd_destroy_bind", new: mk[abi.CmdDestroyBindReq]},
		{tag: "pvrdma_cmd_destroy_cq", new: mk[abi.CmdDestroyCQReq]},
		{tag: "pvrdma_cmd_destroy_mr", new: mk[abi.CmdDestroyMRReq]},
		{tag: "pvrdma_cmd_destroy_pd", new: mk[abi.CmdDestroyPDReq]},
		{tag: "pvrdma_cmd_destroy_qp", new: mk[abi.CmdDestroyQPReq]},
		{tag: "pvrdma_cmd_destroy_qp_resp", new: mk[abi.CmdDestroyQPResp]},
		{tag: "pvrdma_cmd_destroy_srq", new: mk[abi.CmdDestroySRQReq]},
		{tag: "pvrdma_cmd_destroy_uc", new: mk[abi.CmdDestroyUCReq]},
		{tag: "pvrdma_cmd_hdr", new: mk[abi.CmdHeader]},
		{tag: "pvrdma_cmd_modify_qp", new: mk[abi.CmdModifyQPReq]},
		{tag: "pvrdma_cmd_modify_srq", new: mk[abi.CmdModifySRQReq]},
		{tag: "pvrdma_cmd_query_pkey", new: mk[abi.CmdQueryPKeyReq]},
		{tag: "pvrdma_cmd_query_pkey_resp", new: mk[abi.CmdQueryPKeyResp]},
		{tag: "pvrdma_cmd_query_port", new: mk[abi.CmdQueryPortReq]},
		{tag: "pvrdma_cmd_query_port_resp", new: mk[abi.CmdQueryPortResp]},
		{tag: "pvrdma_cmd_query_qp", new: mk[abi.CmdQueryQPReq]},
		{tag: "pvrdma_cmd_query_qp_resp", new: mk[abi.CmdQueryQPResp]},
		{tag: "pvrdma_cmd_query_srq", new: mk[abi.CmdQuerySRQReq]},
		{tag: "pvrdma_cmd_query_srq_resp", new: mk[abi.CmdQuerySRQResp]},
		{tag: "pvrdma_cmd_resize_cq", new: mk[abi.CmdResizeCQReq]},
		{tag: "pvrdma_cmd_resize_cq_resp", new: mk[abi.CmdResizeCQResp]},
		{tag: "pvrdma_cmd_resp_hdr", new: mk[abi.RespHeader]},
	}
}

func workRequestCounterparts() []counterpart {
	const sq = "pvrdma_sq_wqe_hdr"
	return []counterpart{
		{tag: "pvrdma_sge", new: mk[abi.SGE]},
		{tag: "pvrdma_rq_wqe_hdr", new: mk[abi.RecvWQEHdr]},
		{tag: sq, blank: "wr", new: mk[abi.SendWQEHdr], rename: map[string]string{
			"ex.imm_data": "Ex", "ex.invalidate_rkey": "Ex",
		}},
		{tag: sq, member: "wr.rdma", new: mk[abi.RDMAWR]},
		{tag: sq, member: "wr.atomic", new: mk[abi.AtomicWR]},
		{
			tag: sq, member: "wr.masked_atomics", blank: "wr_data.fetch_add",
			rename: map[string]string{"wr_data.cmp_swap": "CmpSwap"}, new: mk[abi.MaskedCmpSwapWR],
		},
		{
			tag: sq, member: "wr.masked_atomics", blank: "wr_data.cmp_swap",
			rename: map[string]string{"wr_data.fetch_add": "FetchAdd"}, new: mk[abi.MaskedFetchAddWR],
		},
		{tag: sq, member: "wr.fast_reg", new: mk[abi.FastRegWR]},
		{tag: sq, member: "wr.ud", new: mk[abi.UDWR]},
	}
}

// mk makes a zero T, whose pointer is a codec.
func mk[T any, P interface {
	*T
	codec
}]() codec {
	return P(new(T))
}
