// SPDX-License-Identifier: Apache-2.0
// limits: what an RDMA device does not have, and how it says so. See limits.c.
#ifndef LIMITS_H
#define LIMITS_H

#include <infiniband/verbs.h>

// What most questions need, made once.
struct device {
	struct ibv_context *ctx;
	struct ibv_device_attr attr;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
};

// device.c
struct device device_open(void);
void device_close(struct device *d);
struct ibv_qp_init_attr qp_attr(struct device *d, enum ibv_qp_type type);
struct ibv_qp *rc_create(struct device *d);
int to_init(struct ibv_qp *qp);
int to_rtr(struct device *d, struct ibv_qp *qp, enum ibv_mtu mtu); // connected to itself

// A queue pair that is connected to itself.
struct loop {
	struct device *d;
	struct ibv_qp *qp;
	struct ibv_mr *mr; // of both halves of bytes
	unsigned char bytes[128];
};
struct loop *loop_open(struct device *d);
// loop_send sends the first half of the bytes into the second and returns the completion's status, as verbs name it.
const char *loop_send(struct loop *l, struct ibv_sge *from, unsigned int flags);
void loop_close(struct loop *l);

// limits.c: what the answer is, and the way out when a question cannot be asked.
void answer(const char *format, ...) __attribute__((format(printf, 1, 2)));
void answer_errno(int error);
void answer_pointer(const void *got); // NULL is an error, and errno says which
_Noreturn void cannot(const char *what);

// objects.c, memory.c: the questions.
void ask_inline(struct device *d);
void ask_inline_send(struct device *d);
void ask_uc(struct device *d);
void ask_raw_packet(struct device *d);
void ask_qp_extended(struct device *d);
void ask_mw(struct device *d);
void ask_multicast(struct device *d);
void ask_cq_resize(struct device *d);
void ask_cq_moderation(struct device *d);
void ask_cq_extended(struct device *d);
void ask_cq_vector(struct device *d);
void ask_cq_too_long(struct device *d);
void ask_qp_too_long(struct device *d);
void ask_ah_without_grh(struct device *d);
void ask_ah_global_ipv6(struct device *d);
void ask_modify_by_kernel(struct device *d);
void ask_modify_by_device(struct device *d);
void ask_mr_too_long(struct device *d);
void ask_mr_on_demand(struct device *d);
void ask_mr_dmabuf(struct device *d);
void ask_mr_iova(struct device *d);
void ask_memlock_mr(struct device *d);
void ask_memlock_cq(struct device *d);

#endif
