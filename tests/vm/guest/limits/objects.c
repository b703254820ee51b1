// SPDX-License-Identifier: Apache-2.0
// Questions about queue pairs, completion queues and addresses.
#include "limits.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

void ask_inline(struct device *d)
{
	struct ibv_qp_init_attr init = qp_attr(d, IBV_QPT_RC);
	init.cap.max_inline_data = 64;
	struct ibv_qp *qp = ibv_create_qp(d->pd, &init);
	if (!qp)
		cannot("create a QP");
	answer("max_inline_data %u", init.cap.max_inline_data);
	ibv_destroy_qp(qp);
}

// A program that asked for inline data and did not look at what it got may go on to post it, from memory that is not
// registered.
void ask_inline_send(struct device *d)
{
	struct loop *l = loop_open(d);
	unsigned char other[8] = {0};
	struct ibv_sge sge = {.addr = (uintptr_t)other, .length = sizeof other};
	answer("%s", loop_send(l, &sge, IBV_SEND_INLINE));
	loop_close(l);
}

static void create_type(struct device *d, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = qp_attr(d, type);
	struct ibv_qp *qp = ibv_create_qp(d->pd, &init);
	answer_pointer(qp);
	if (qp)
		ibv_destroy_qp(qp);
}

void ask_uc(struct device *d) { create_type(d, IBV_QPT_UC); }

void ask_raw_packet(struct device *d) { create_type(d, IBV_QPT_RAW_PACKET); }

void ask_qp_extended(struct device *d)
{
	struct ibv_qp_init_attr plain = qp_attr(d, IBV_QPT_RC);
	struct ibv_qp_init_attr_ex init = {
		.send_cq = plain.send_cq,
		.recv_cq = plain.recv_cq,
		.cap = plain.cap,
		.qp_type = plain.qp_type,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = d->pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	answer_pointer(ibv_create_qp_ex(d->ctx, &init));
}

void ask_mw(struct device *d) { answer_pointer(ibv_alloc_mw(d->pd, IBV_MW_TYPE_1)); }

void ask_multicast(struct device *d)
{
	struct ibv_qp *qp = rc_create(d);
	union ibv_gid group = {.raw = {0xff, 0x0e}};
	answer_errno(ibv_attach_mcast(qp, &group, 0));
	ibv_destroy_qp(qp);
}

void ask_cq_resize(struct device *d) { answer_errno(ibv_resize_cq(d->cq, 64)); }

void ask_cq_moderation(struct device *d)
{
	struct ibv_modify_cq_attr attr = {.attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = {.cq_count = 8, .cq_period = 8}};
	answer_errno(ibv_modify_cq(d->cq, &attr));
}

void ask_cq_extended(struct device *d)
{
	struct ibv_cq_init_attr_ex init = {.cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS};
	answer_pointer(ibv_create_cq_ex(d->ctx, &init));
}

void ask_cq_vector(struct device *d)
{
	if (d->ctx->num_comp_vectors != 1) {
		answer("%d completion vectors", d->ctx->num_comp_vectors);
		return;
	}
	answer_pointer(ibv_create_cq(d->ctx, 16, NULL, NULL, 1));
}

void ask_cq_too_long(struct device *d) { answer_pointer(ibv_create_cq(d->ctx, d->attr.max_cqe + 1, NULL, NULL, 0)); }

void ask_qp_too_long(struct device *d)
{
	struct ibv_qp_init_attr init = qp_attr(d, IBV_QPT_RC);
	init.cap.max_send_wr = (uint32_t)d->attr.max_qp_wr + 1;
	answer_pointer(ibv_create_qp(d->pd, &init));
}

static void create_ah(struct device *d, struct ibv_ah_attr *attr)
{
	struct ibv_ah *ah = ibv_create_ah(d->pd, attr);
	answer("%s", ah ? "success" : "NULL");
	if (ah)
		ibv_destroy_ah(ah);
}

void ask_ah_without_grh(struct device *d)
{
	struct ibv_ah_attr attr = {.port_num = 1, .dlid = 1};
	create_ah(d, &attr);
}

void ask_ah_global_ipv6(struct device *d)
{
	struct ibv_ah_attr attr = {.port_num = 1, .is_global = 1, .grh = {.hop_limit = 64}};
	if (inet_pton(AF_INET6, "2001:db8::1", attr.grh.dgid.raw) != 1)
		cannot("read an address");
	create_ah(d, &attr);
}

// The kernel has the table of transitions too, and does not ask the device for what it forbids.
void ask_modify_by_kernel(struct device *d)
{
	struct ibv_qp *qp = rc_create(d);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
	answer_errno(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	ibv_destroy_qp(qp);
}

// The kernel does not look at the MTU of a path, and the device has none of this number.
void ask_modify_by_device(struct device *d)
{
	struct ibv_qp *qp = rc_create(d);
	if (to_init(qp))
		cannot("move a QP to INIT");
	answer_errno(to_rtr(d, qp, (enum ibv_mtu)6));
	ibv_destroy_qp(qp);
}
