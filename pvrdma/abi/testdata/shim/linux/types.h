/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel-internal names that the driver's headers take from linux/types.h, on top
 * of the user-space header of the same name. Written for these tests.
 */
#ifndef PVRDMAD_SHIM_LINUX_TYPES_H
#define PVRDMAD_SHIM_LINUX_TYPES_H

#include_next <linux/types.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;

typedef struct {
	int counter;
} atomic_t;

/* Enough of atomic_t for the inline functions of pvrdma_ring.h to compile. */
#define atomic_read(v) ((v)->counter)
#define atomic_set(v, i) ((v)->counter = (i))

#define BIT(n) (1UL << (n))

/* Types that appear only in prototypes. */
struct ib_device;
struct ib_device_attr;
struct ib_udata;
struct ib_port_attr;
union ib_gid;
struct ib_device_modify;
struct ib_port_modify;
struct ib_ucontext;
struct vm_area_struct;
struct ib_pd;
struct ib_mr;
struct scatterlist;
struct ib_cq;
struct ib_cq_init_attr;
struct ib_wc;
struct ib_ah;
struct rdma_ah_init_attr;
struct ib_srq;
struct ib_srq_init_attr;
struct ib_srq_attr;
struct ib_qp;
struct ib_qp_init_attr;
struct ib_qp_attr;
struct ib_send_wr;
struct ib_recv_wr;
enum rdma_link_layer { PVRDMAD_SHIM_RDMA_LINK_LAYER };
enum ib_mr_type { PVRDMAD_SHIM_IB_MR_TYPE };
enum ib_cq_notify_flags { PVRDMAD_SHIM_IB_CQ_NOTIFY_FLAGS };
enum ib_srq_attr_mask { PVRDMAD_SHIM_IB_SRQ_ATTR_MASK };

#endif
