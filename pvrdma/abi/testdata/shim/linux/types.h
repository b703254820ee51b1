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

#endif
