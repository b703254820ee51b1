// SPDX-License-Identifier: Apache-2.0
// The device, and a queue pair of it that is connected to itself.
#include "limits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct device device_open(void)
{
	struct device d = {0};
	struct ibv_device **list = ibv_get_device_list(NULL);
	if (!list || !list[0])
		cannot("find a device");
	d.ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	if (!d.ctx)
		cannot("open the device");
	if (ibv_query_device(d.ctx, &d.attr))
		cannot("query the device");
	if (!(d.pd = ibv_alloc_pd(d.ctx)))
		cannot("allocate a PD");
	if (!(d.cq = ibv_create_cq(d.ctx, 16, NULL, NULL, 0)))
		cannot("create a CQ");
	return d;
}

void device_close(struct device *d)
{
	if (ibv_destroy_cq(d->cq) || ibv_dealloc_pd(d->pd) || ibv_close_device(d->ctx))
		cannot("close the device");
}

struct ibv_qp_init_attr qp_attr(struct device *d, enum ibv_qp_type type)
{
	return (struct ibv_qp_init_attr){
		.send_cq = d->cq,
		.recv_cq = d->cq,
		.qp_type = type,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
	};
}

struct ibv_qp *rc_create(struct device *d)
{
	struct ibv_qp_init_attr init = qp_attr(d, IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp(d->pd, &init);
	if (!qp)
		cannot("create a QP");
	return qp;
}

int to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE};
	return ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

// own_gid finds an address of the port whose hardware address every guest can resolve: that of an IPv4 address.
static int own_gid(struct device *d, union ibv_gid *gid)
{
	static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
	for (int i = 0; i < 16; i++)
		if (!ibv_query_gid(d->ctx, 1, i, gid) && !memcmp(gid->raw, mapped, sizeof mapped))
			return i;
	errno = ENOENT;
	cannot("find the GID of an IPv4 address");
}

int to_rtr(struct device *d, struct ibv_qp *qp, enum ibv_mtu mtu)
{
	union ibv_gid gid;
	int index = own_gid(d, &gid);
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu,
		.dest_qp_num = qp->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .sgid_index = (uint8_t)index, .hop_limit = 1}},
	};
	return ibv_modify_qp(qp, &a,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static int to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
	return ibv_modify_qp(qp, &a,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				     IBV_QP_MAX_QP_RD_ATOMIC);
}

struct loop *loop_open(struct device *d)
{
	struct loop *l = calloc(1, sizeof *l);
	if (!l)
		cannot("allocate memory");
	l->d = d;
	l->qp = rc_create(d);
	l->mr = ibv_reg_mr(d->pd, l->bytes, sizeof l->bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!l->mr)
		cannot("register memory");
	if (to_init(l->qp) || to_rtr(d, l->qp, IBV_MTU_1024) || to_rts(l->qp))
		cannot("connect a QP to itself");
	return l;
}

const char *loop_send(struct loop *l, struct ibv_sge *from, unsigned int flags)
{
	struct ibv_send_wr *bad, wr = {
		.sg_list = from,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED | flags,
		.wr.rdma = {.remote_addr = (uintptr_t)l->bytes + sizeof l->bytes / 2, .rkey = l->mr->rkey},
	};
	struct ibv_wc wc;
	int n;
	memset(l->bytes, 0x5a, sizeof l->bytes / 2);
	errno = ibv_post_send(l->qp, &wr, &bad);
	if (errno)
		cannot("post a request");
	do
		n = ibv_poll_cq(l->d->cq, 1, &wc);
	while (!n);
	if (n < 0)
		cannot("poll");
	if (wc.status == IBV_WC_SUCCESS && memcmp(l->bytes, l->bytes + sizeof l->bytes / 2, from->length))
		return "success without the data";
	return wc.status == IBV_WC_SUCCESS ? "success" : ibv_wc_status_str(wc.status);
}

void loop_close(struct loop *l)
{
	if (ibv_destroy_qp(l->qp) || ibv_dereg_mr(l->mr))
		cannot("take the loop apart");
	free(l);
}
