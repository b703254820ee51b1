// SPDX-License-Identifier: Apache-2.0
// Device, objects, and the states of the QP.
#include "pvcheck.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void must(struct end *e, int result, const char *what)
{
	if (result)
		die_at(e, EXIT_DIFFERENT, "%s: %s", what, strerror(result > 0 ? result : errno));
}

static void need(struct end *e, const void *object, const char *what)
{
	if (!object)
		die_at(e, EXIT_DIFFERENT, "%s: %s", what, strerror(errno));
}

struct ibv_context *device_open(const char *name)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_context *ctx = NULL;
	for (int i = 0; list && i < count && !ctx; i++)
		if (!name || !strcmp(name, ibv_get_device_name(list[i])))
			ctx = ibv_open_device(list[i]);
	if (!ctx)
		die(EXIT_SETUP, "cannot open RDMA device %s: %d in the list (modprobe ib_uverbs?)", name ? name : "(any)", count);
	ibv_free_device_list(list);
	return ctx;
}

const char *gid_text(const union ibv_gid *gid)
{
	static _Thread_local char text[INET6_ADDRSTRLEN];
	return inet_ntop(AF_INET6, gid->raw, text, sizeof text) ? text : "?";
}

static bool is_ipv4_mapped(const union ibv_gid *gid)
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};
	return !memcmp(gid->raw, prefix, sizeof prefix);
}

// take_gid takes a GID if it is wanted; a device has both types of the same address, or one alone.
static bool take_gid(struct end *e, int i, bool any_family, uint32_t type)
{
	struct ibv_gid_entry entry;
	if (ibv_query_gid_ex(e->ctx, e->port, (uint32_t)i, &entry, 0))
		return false;
	if (!any_family && (entry.gid_type != type || !is_ipv4_mapped(&entry.gid)))
		return false;
	e->gid_index = i;
	e->gid = entry.gid;
	return true;
}

static void pick_gid(struct end *e, int table_length, int wanted)
{
	static const uint32_t types[] = {IBV_GID_TYPE_ROCE_V2, IBV_GID_TYPE_ROCE_V1};
	if (wanted >= 0) {
		if (!take_gid(e, wanted, true, 0))
			die(EXIT_SETUP, "GID index %d is empty", wanted);
		return;
	}
	for (unsigned t = 0; t < sizeof types / sizeof *types; t++)
		for (int i = 0; i < table_length; i++)
			if (take_gid(e, i, false, types[t]))
				return;
	die(EXIT_SETUP, "found no GID of an IPv4 address among %d (has the netdev its address?)", table_length);
}

void end_open(struct end *e, struct ibv_context *ctx, int port, int gid_index)
{
	struct ibv_port_attr attr;
	e->ctx = ctx;
	e->port = (uint8_t)port;
	if (ibv_query_device(ctx, &e->attr) || ibv_query_port(ctx, e->port, &attr))
		die(EXIT_SETUP, "query device and port %d: %s", port, strerror(errno));
	if (attr.state != IBV_PORT_ACTIVE)
		die(EXIT_SETUP, "port %d is %s", port, ibv_port_state_str(attr.state));
	e->mtu = attr.active_mtu;
	pick_gid(e, attr.gid_tbl_len, gid_index);
}

static void create_qp(struct end *e)
{
	uint32_t max_sge = e->plan.max_sge;
	struct ibv_qp_init_attr init = {
		.send_cq = e->cq,
		.recv_cq = e->cq,
		.srq = e->srq,
		.cap = {.max_send_wr = MAX_DEPTH, .max_recv_wr = MAX_DEPTH, .max_send_sge = max_sge, .max_recv_sge = max_sge},
		.qp_type = IBV_QPT_RC,
	};
	e->qp = ibv_create_qp(e->pd, &init);
	need(e, e->qp, "ibv_create_qp");
	if (init.cap.max_send_wr < MAX_DEPTH || init.cap.max_send_sge < max_sge)
		die_at(e, EXIT_DIFFERENT, "ibv_create_qp granted less than was asked for");
}

void end_create(struct end *e)
{
	size_t size = (size_t)SLOT_SIZE * MAX_DEPTH;
	if (e->plan.depth < MAX_DEPTH)
		size = (size_t)SLOT_SIZE * e->plan.depth;
	e->pd = ibv_alloc_pd(e->ctx);
	need(e, e->pd, "ibv_alloc_pd");
	e->channel = e->events ? ibv_create_comp_channel(e->ctx) : NULL;
	if (e->events)
		need(e, e->channel, "ibv_create_comp_channel");
	e->cq = ibv_create_cq(e->ctx, 4 * MAX_DEPTH, e, e->channel, 0);
	need(e, e->cq, "ibv_create_cq");
	if (e->use_srq) {
		struct ibv_srq_init_attr init = {.attr = {.max_wr = MAX_DEPTH, .max_sge = e->plan.max_sge}};
		e->srq = ibv_create_srq(e->pd, &init);
		need(e, e->srq, "ibv_create_srq");
	}
	create_qp(e);
	e->memory = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
	need(e, e->memory, "aligned_alloc");
	memset(e->memory, 0, size);
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	if (e->attr.atomic_cap != IBV_ATOMIC_NONE)
		access |= IBV_ACCESS_REMOTE_ATOMIC;
	e->mr = ibv_reg_mr(e->pd, e->memory, size, access);
	need(e, e->mr, "ibv_reg_mr");
}

static void to_init(struct end *e, unsigned access)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = e->port, .qp_access_flags = access};
	must(e, ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
	     "modify QP to INIT");
}

static void to_rtr(struct end *e)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = e->remote.mtu < (uint32_t)e->mtu ? (enum ibv_mtu)e->remote.mtu : e->mtu,
		.dest_qp_num = e->remote.qpn,
		.rq_psn = e->remote.psn,
		.max_dest_rd_atomic = (uint8_t)(e->attr.max_qp_rd_atom < 16 ? e->attr.max_qp_rd_atom : 16),
		.min_rnr_timer = 12, // 0.64 ms
		.ah_attr = {.is_global = 1,
			    .port_num = e->port,
			    .grh = {.dgid = e->remote.gid, .sgid_index = (uint8_t)e->gid_index, .hop_limit = 64}},
	};
	must(e,
	     ibv_modify_qp(e->qp, &attr,
			   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
	     "modify QP to RTR");
}

static void to_rts(struct end *e, unsigned rnr_retry)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = e->psn,
		.timeout = 18,  // 1 s: a guest under emulation may be slow, and nothing here is lost on purpose
		.retry_cnt = 6, // the kernel's rxe takes 7 for ever
		.rnr_retry = (uint8_t)rnr_retry,
		.max_rd_atomic = (uint8_t)(e->attr.max_qp_init_rd_atom < 16 ? e->attr.max_qp_init_rd_atom : 16),
	};
	must(e,
	     ibv_modify_qp(e->qp, &attr,
			   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				   IBV_QP_MAX_QP_RD_ATOMIC),
	     "modify QP to RTS");
}

// end_connect brings a QP in RESET to RTS. changes may hold other access flags and another rnr_retry; NULL: all
// access, retry for ever. Both sides call it; when it returns the peer's QP takes requests.
void end_connect(struct end *e, const struct ibv_qp_attr *changes)
{
	unsigned access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	if (e->attr.atomic_cap != IBV_ATOMIC_NONE)
		access |= IBV_ACCESS_REMOTE_ATOMIC;
	e->psn = (uint32_t)mix((uint64_t)(seconds() * 1e9) ^ e->qp->qp_num) & 0xffffff;
	struct peer_info here = {
		.gid = e->gid,
		.qpn = e->qp->qp_num,
		.psn = e->psn,
		.rkey = e->mr->rkey,
		.mtu = e->mtu,
		.address = (uintptr_t)e->memory,
	};
	peer_send(e, &here, sizeof here);
	peer_receive(e, &e->remote, sizeof e->remote);
	to_init(e, changes ? changes->qp_access_flags : access);
	to_rtr(e);
	barrier(e);
	to_rts(e, changes ? changes->rnr_retry : 7);
	barrier(e);
}

void end_reset(struct end *e)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	must(e, ibv_modify_qp(e->qp, &attr, IBV_QP_STATE), "modify QP to RESET");
}

void end_destroy(struct end *e)
{
	if (e->unacked)
		ibv_ack_cq_events(e->cq, e->unacked);
	must(e, ibv_destroy_qp(e->qp), "ibv_destroy_qp");
	if (e->srq)
		must(e, ibv_destroy_srq(e->srq), "ibv_destroy_srq");
	must(e, ibv_destroy_cq(e->cq), "ibv_destroy_cq");
	if (e->channel)
		must(e, ibv_destroy_comp_channel(e->channel), "ibv_destroy_comp_channel");
	must(e, ibv_dereg_mr(e->mr), "ibv_dereg_mr");
	must(e, ibv_dealloc_pd(e->pd), "ibv_dealloc_pd");
	free(e->memory);
}
