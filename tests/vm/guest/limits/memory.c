// SPDX-License-Identifier: Apache-2.0
// Questions about memory regions, and about what may be locked.
#define _GNU_SOURCE
#include "limits.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define GIB ((size_t)1 << 30)

void ask_mr_too_long(struct device *d)
{
	void *p = mmap(NULL, GIB + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		cannot("reserve addresses");
	answer_pointer(ibv_reg_mr(d->pd, p, GIB + 4096, IBV_ACCESS_LOCAL_WRITE));
	munmap(p, GIB + 4096);
}

void ask_mr_on_demand(struct device *d)
{
	static unsigned char bytes[4096];
	answer_pointer(ibv_reg_mr(d->pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND));
}

void ask_mr_dmabuf(struct device *d) { answer_pointer(ibv_reg_dmabuf_mr(d->pd, 0, 4096, 0, 0, IBV_ACCESS_LOCAL_WRITE)); }

// The region takes the addresses of its memory, whatever others are asked for: a request that uses those fails.
void ask_mr_iova(struct device *d)
{
	struct loop *l = loop_open(d);
	uint64_t iova = 0x10000000 + (uintptr_t)l->bytes % 4096;
	struct ibv_mr *mr = ibv_reg_mr_iova(d->pd, l->bytes, sizeof l->bytes, iova, IBV_ACCESS_LOCAL_WRITE);
	if (!mr)
		cannot("register memory at another address");
	struct ibv_sge own = {.addr = (uintptr_t)l->bytes, .length = 8, .lkey = mr->lkey};
	struct ibv_sge asked = {.addr = iova, .length = 8, .lkey = mr->lkey};
	const char *by_own = loop_send(l, &own, 0);
	answer("%s, %s", by_own, loop_send(l, &asked, 0));
	ibv_dereg_mr(mr);
	loop_close(l);
}

// as_a_user does what a user without rights and with 64 KiB to lock does, in a process of its own.
static void as_a_user(void (*try)(struct device *d))
{
	pid_t child = fork();
	int status;
	if (child < 0)
		cannot("fork");
	if (!child) {
		struct rlimit limit = {64 << 10, 64 << 10};
		if (setrlimit(RLIMIT_MEMLOCK, &limit) || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
			cannot("become nobody");
		struct device d = device_open();
		try(&d);
		exit(0);
	}
	if (waitpid(child, &status, 0) != child || status)
		cannot("ask as another user");
}

static void register_a_megabyte(struct device *d)
{
	static unsigned char bytes[1 << 20];
	answer_pointer(ibv_reg_mr(d->pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE));
}

static void create_a_long_queue(struct device *d) { answer_pointer(ibv_create_cq(d->ctx, 4096, NULL, NULL, 0)); }

void ask_memlock_mr(struct device *d)
{
	(void)d;
	as_a_user(register_a_megabyte);
}

void ask_memlock_cq(struct device *d)
{
	(void)d;
	as_a_user(create_a_long_queue);
}
