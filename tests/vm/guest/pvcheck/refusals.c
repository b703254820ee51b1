// SPDX-License-Identifier: Apache-2.0
// Requests that must be refused, each with its own status, and must change nothing. The statuses are those of
// ibv_poll_cq(3) for the classes of errors in the InfiniBand specification, volume 1, chapters 9.9 and 10.10.
#include "errors.h"

#include <string.h>
#include <unistd.h>

enum how {
	WRONG_KEY,
	NO_REMOTE_WRITE,
	NO_REMOTE_READ,
	NO_REMOTE_ATOMIC,
	BEYOND_END,
	BEFORE_START,
	WRAPS,
	FOREIGN_PD,
	DEREGISTERED,
	MISALIGNED,
	PLAIN,
	NO_LOCAL_WRITE,
	TOO_SHORT,
};

// The server's memory of a check: REGION bytes at offset REGION, with as much on either side that is not in the MR.
#define REGION 8192u
#define FILLER 0x3c

struct target {
	uint64_t address;
	uint32_t rkey, reserved;
};

static struct ibv_pd *other_pd(struct end *e)
{
	struct ibv_pd *pd = ibv_alloc_pd(e->ctx);
	must(e, pd ? 0 : -1, "ibv_alloc_pd");
	return pd;
}

// some_mr registers the region as the check demands.
static struct ibv_mr *some_mr(struct end *e, int how, struct ibv_pd *pd)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	if (e->attr.atomic_cap != IBV_ATOMIC_NONE)
		access |= IBV_ACCESS_REMOTE_ATOMIC;
	if (how == NO_REMOTE_WRITE)
		access &= ~(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	if (how == NO_REMOTE_READ)
		access &= ~IBV_ACCESS_REMOTE_READ;
	if (how == NO_REMOTE_ATOMIC)
		access &= ~IBV_ACCESS_REMOTE_ATOMIC;
	if (how == NO_LOCAL_WRITE)
		access = 0;
	struct ibv_mr *mr = ibv_reg_mr(pd, e->memory + REGION, REGION, access);
	must(e, mr ? 0 : -1, "ibv_reg_mr");
	return mr;
}

static struct target aim(const struct ibv_mr *mr, int how)
{
	struct target t = {.address = (uintptr_t)mr->addr + 1024, .rkey = mr->rkey};
	switch (how) {
	case WRONG_KEY:
		t.rkey ^= 0x00ffff00;
		break;
	case BEYOND_END: // by one byte
		t.address = (uintptr_t)mr->addr + mr->length - LENGTH + 1;
		break;
	case BEFORE_START:
		t.address = (uintptr_t)mr->addr - 1;
		break;
	case WRAPS: // the sum of address and length is a small number
		t.address = UINT64_MAX - LENGTH / 2;
		break;
	case MISALIGNED:
		t.address += 4;
		break;
	}
	return t;
}

static void remote_server(struct end *e, const struct check *c)
{
	struct ibv_pd *pd = c->how == FOREIGN_PD ? other_pd(e) : e->pd;
	struct ibv_mr *mr = some_mr(e, c->how, pd);
	struct target t = aim(mr, c->how);
	memset(e->memory, FILLER, 3 * REGION);
	if (c->how == DEREGISTERED) {
		must(e, ibv_dereg_mr(mr), "ibv_dereg_mr");
		mr = NULL;
	}
	peer_send(e, &t, sizeof t);
	barrier(e); // the client has its completion
	for (size_t i = 0; i < 3 * REGION; i++)
		if (e->memory[i] != FILLER)
			die_at(e, EXIT_DIFFERENT, "check=%s offset=%ld expected=0x%02x (untouched) got=0x%02x", c->name,
			       (long)i - (long)REGION, FILLER, e->memory[i]);
	expect_error_state(e, c);
	if (mr)
		must(e, ibv_dereg_mr(mr), "ibv_dereg_mr");
	if (pd != e->pd)
		must(e, ibv_dealloc_pd(pd), "ibv_dealloc_pd");
}

static void remote_client(struct end *e, const struct check *c, enum ibv_wr_opcode opcode)
{
	struct target t;
	struct ibv_sge sge = own_memory(e, 0);
	struct ibv_send_wr wr = {.wr_id = 7, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
	peer_receive(e, &t, sizeof t);
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		sge.length = 8;
		wr.wr.atomic.remote_addr = t.address;
		wr.wr.atomic.rkey = t.rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = t.address;
		wr.wr.rdma.rkey = t.rkey;
	}
	memset(e->memory, FILLER ^ 0xff, REGION);
	post_send(e, wr, &sge);
	expect(e, c, 7, c->expected);
	expect_error_state(e, c);
	for (size_t i = 0; i < REGION; i++) // a READ that was refused brings nothing
		if (e->memory[i] != (FILLER ^ 0xff))
			die_at(e, EXIT_DIFFERENT, "check=%s offset=%zu expected=0x%02x (untouched) got=0x%02x at the client",
			       c->name, i, FILLER ^ 0xff, e->memory[i]);
	barrier(e);
}

static void write_client(struct end *e, const struct check *c) { remote_client(e, c, IBV_WR_RDMA_WRITE); }
static void read_client(struct end *e, const struct check *c) { remote_client(e, c, IBV_WR_RDMA_READ); }
static void atomic_client(struct end *e, const struct check *c) { remote_client(e, c, IBV_WR_ATOMIC_FETCH_AND_ADD); }

// local_sge is a buffer that the QP may not use in this way.
static struct ibv_sge local_sge(const struct ibv_mr *mr, int how)
{
	struct target t = aim(mr, how);
	uint32_t lkey = how == WRONG_KEY ? mr->lkey ^ 0x00ffff00 : mr->lkey;
	return (struct ibv_sge){.addr = t.address, .length = LENGTH, .lkey = lkey};
}

static void local_client(struct end *e, const struct check *c, enum ibv_wr_opcode opcode)
{
	struct ibv_pd *pd = c->how == FOREIGN_PD ? other_pd(e) : e->pd;
	struct ibv_mr *mr = some_mr(e, c->how, pd);
	struct ibv_sge sge = local_sge(mr, c->how);
	struct ibv_send_wr wr = {.wr_id = 8, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
	wr.wr.rdma.remote_addr = e->remote.address;
	wr.wr.rdma.rkey = e->remote.rkey;
	barrier(e); // the server has posted a receive
	post_send(e, wr, &sge);
	expect(e, c, 8, c->expected);
	expect_error_state(e, c);
	must(e, ibv_dereg_mr(mr), "ibv_dereg_mr");
	if (pd != e->pd)
		must(e, ibv_dealloc_pd(pd), "ibv_dealloc_pd");
	barrier(e);
}

static void send_client(struct end *e, const struct check *c) { local_client(e, c, IBV_WR_SEND); }
static void read_into_client(struct end *e, const struct check *c) { local_client(e, c, IBV_WR_RDMA_READ); }

// Nothing of a send that failed at its source arrives.
static void silent_server(struct end *e, const struct check *c)
{
	struct ibv_sge sge = own_memory(e, 0);
	if (!e->srq)
		post_receive_of(e, 1, &sge);
	barrier(e);
	barrier(e);
	expect_nothing(e, c, 0.1);
}

// A receive that cannot take its message fails at both ends.
static void receive_server(struct end *e, const struct check *c)
{
	struct ibv_mr *mr = some_mr(e, c->how, e->pd);
	struct ibv_sge sge = local_sge(mr, c->how);
	if (c->how == TOO_SHORT)
		sge.length = LENGTH - 1;
	post_receive_of(e, 9, &sge);
	barrier(e);
	expect(e, c, 9, c->at_server);
	expect_error_state(e, c);
	must(e, ibv_dereg_mr(mr), "ibv_dereg_mr");
}

static void receive_client(struct end *e, const struct check *c)
{
	struct ibv_sge sge = own_memory(e, 0);
	struct ibv_send_wr wr = {.wr_id = 10, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	barrier(e);
	post_send(e, wr, &sge);
	expect(e, c, 10, c->expected);
	expect_error_state(e, c);
}

#define REMOTE(text, kind, variation, status, ...) \
	{.name = text, .client = kind##_client, .server = remote_server, .how = variation, .expected = status, __VA_ARGS__}
#define LOCAL(text, kind, variation) \
	{.name = text, .client = kind##_client, .server = silent_server, .how = variation, .expected = IBV_WC_LOC_PROT_ERR}
#define RECEIVE(text, variation, there, here) \
	{.name = text, .client = receive_client, .server = receive_server, .how = variation, .expected = here, .at_server = there}

const struct check refusal_checks[] = {
	REMOTE("write-wrong-rkey", write, WRONG_KEY, IBV_WC_REM_ACCESS_ERR),
	REMOTE("read-wrong-rkey", read, WRONG_KEY, IBV_WC_REM_ACCESS_ERR),
	REMOTE("write-mr-without-remote-write", write, NO_REMOTE_WRITE, IBV_WC_REM_ACCESS_ERR),
	REMOTE("read-mr-without-remote-read", read, NO_REMOTE_READ, IBV_WC_REM_ACCESS_ERR),
	REMOTE("write-beyond-end", write, BEYOND_END, IBV_WC_REM_ACCESS_ERR),
	REMOTE("write-before-start", write, BEFORE_START, IBV_WC_REM_ACCESS_ERR),
	REMOTE("write-wraps-around", write, WRAPS, IBV_WC_REM_ACCESS_ERR),
	REMOTE("read-beyond-end", read, BEYOND_END, IBV_WC_REM_ACCESS_ERR),
	REMOTE("read-wraps-around", read, WRAPS, IBV_WC_REM_ACCESS_ERR),
	REMOTE("write-mr-of-another-pd", write, FOREIGN_PD, IBV_WC_REM_ACCESS_ERR),
	REMOTE("write-after-deregistration", write, DEREGISTERED, IBV_WC_REM_ACCESS_ERR),
	REMOTE("write-qp-without-remote-write", write, PLAIN, IBV_WC_REM_INV_REQ_ERR, .denied = IBV_ACCESS_REMOTE_WRITE),
	REMOTE("read-qp-without-remote-read", read, PLAIN, IBV_WC_REM_INV_REQ_ERR, .denied = IBV_ACCESS_REMOTE_READ),
	REMOTE("atomic-mr-without-remote-atomic", atomic, NO_REMOTE_ATOMIC, IBV_WC_REM_ACCESS_ERR, .needs_atomics = true),
	REMOTE("atomic-misaligned", atomic, MISALIGNED, IBV_WC_REM_INV_REQ_ERR, .needs_atomics = true),
	LOCAL("send-wrong-lkey", send, WRONG_KEY),
	LOCAL("send-beyond-end", send, BEYOND_END),
	LOCAL("send-wraps-around", send, WRAPS),
	LOCAL("send-mr-of-another-pd", send, FOREIGN_PD),
	LOCAL("read-into-mr-without-local-write", read_into, NO_LOCAL_WRITE),
	RECEIVE("receive-too-short", TOO_SHORT, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR),
	RECEIVE("receive-wrong-lkey", WRONG_KEY, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR),
	RECEIVE("receive-mr-without-local-write", NO_LOCAL_WRITE, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR),
	{0},
};
