// SPDX-License-Identifier: Apache-2.0
// What the QP's states promise: receiver not ready, flushing in ERR, forgetting in RESET.
#include "errors.h"

#include <unistd.h>

static struct ibv_send_wr plain_send(uint64_t wr_id)
{
	return (struct ibv_send_wr){.wr_id = wr_id, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
}

static void no_server(struct end *e, const struct check *c) { expect_nothing(e, c, 0.1); }

static void rnr_client(struct end *e, const struct check *c)
{
	struct ibv_sge sge = own_memory(e, 0);
	post_send(e, plain_send(1), &sge);
	expect(e, c, 1, c->expected);
}

#define LATE_US (300 * 1000)

static void late_client(struct end *e, const struct check *c)
{
	struct ibv_sge sge = own_memory(e, 0);
	double start = seconds();
	pattern_fill(e->memory, LENGTH, e->plan.seed, 1, 0);
	barrier(e);
	post_send(e, plain_send(1), &sge);
	expect(e, c, 1, IBV_WC_SUCCESS);
	if (seconds() - start < LATE_US * 0.9e-6)
		die_at(e, EXIT_DIFFERENT, "check=%s the send completed before its receive was posted", c->name);
}

static void late_server(struct end *e, const struct check *c)
{
	struct ibv_sge sge = own_memory(e, 0);
	barrier(e);
	usleep(LATE_US);
	post_receive_of(e, 2, &sge);
	expect(e, c, 2, IBV_WC_SUCCESS);
	size_t same = pattern_check(e->memory, LENGTH, e->plan.seed, 1, 0);
	if (same < LENGTH)
		die_at(e, EXIT_DIFFERENT, "check=%s offset=%zu expected=0x%02x got=0x%02x", c->name, same,
		       pattern_byte(e->plan.seed, 1, same), e->memory[same]);
}

#define FLUSHED 8

static void idle_client(struct end *e, const struct check *c)
{
	(void)e;
	(void)c;
}

static void flush_server(struct end *e, const struct check *c)
{
	struct ibv_sge sge = own_memory(e, 0);
	for (uint64_t i = 0; i < FLUSHED; i++)
		post_receive_of(e, 100 + i, &sge);
	to_error(e);
	for (uint64_t i = 0; i < FLUSHED; i++)
		expect(e, c, 100 + i, IBV_WC_WR_FLUSH_ERR);
	expect_nothing(e, c, 0.1);
}

// What is posted in ERR completes too, signalled or not.
static void post_in_error_server(struct end *e, const struct check *c)
{
	struct ibv_sge sge = own_memory(e, 0);
	struct ibv_send_wr quiet = plain_send(201);
	quiet.send_flags = 0;
	to_error(e);
	post_receive_of(e, 200, &sge);
	expect(e, c, 200, IBV_WC_WR_FLUSH_ERR);
	post_send(e, quiet, &sge);
	expect(e, c, 201, IBV_WC_WR_FLUSH_ERR);
	expect_nothing(e, c, 0.1);
}

// After the first error the rest of the send queue is flushed in order.
static void flush_after_client(struct end *e, const struct check *c)
{
	struct ibv_sge sge = own_memory(e, 0);
	struct ibv_send_wr wrong = {.wr_id = 300, .opcode = IBV_WR_RDMA_WRITE};
	wrong.wr.rdma.remote_addr = e->remote.address;
	wrong.wr.rdma.rkey = e->remote.rkey ^ 0x00ffff00;
	post_send(e, wrong, &sge); // not signalled: errors complete all the same
	for (uint64_t i = 1; i < FLUSHED; i++)
		post_send(e, plain_send(300 + i), &sge);
	expect(e, c, 300, IBV_WC_REM_ACCESS_ERR);
	for (uint64_t i = 1; i < FLUSHED; i++)
		expect(e, c, 300 + i, IBV_WC_WR_FLUSH_ERR);
	expect_nothing(e, c, 0.1);
}

// RESET forgets what was posted, without a completion, and the QP can be used again.
static void reset_server(struct end *e, const struct check *c)
{
	struct ibv_sge sge = own_memory(e, 0);
	for (uint64_t i = 0; i < FLUSHED; i++)
		post_receive_of(e, 400 + i, &sge);
	end_reset(e);
	expect_nothing(e, c, 0.1);
	barrier(e);
	end_connect(e, NULL);
	post_receive_of(e, 500, &sge);
	barrier(e);
	expect(e, c, 500, IBV_WC_SUCCESS);
	expect_nothing(e, c, 0.1);
}

static void reset_client(struct end *e, const struct check *c)
{
	struct ibv_sge sge = own_memory(e, 0);
	barrier(e);
	end_reset(e);
	end_connect(e, NULL);
	barrier(e);
	post_send(e, plain_send(501), &sge);
	expect(e, c, 501, IBV_WC_SUCCESS);
}

const struct check state_checks[] = {
	{.name = "rnr-retry-0", .client = rnr_client, .server = no_server, .expected = IBV_WC_RNR_RETRY_EXC_ERR, .no_retry = true},
	{.name = "rnr-late-receive", .client = late_client, .server = late_server},
	{.name = "flush-receives", .client = idle_client, .server = flush_server, .needs_rq = true},
	{.name = "post-in-error", .client = idle_client, .server = post_in_error_server, .needs_rq = true},
	{.name = "flush-after-error", .client = flush_after_client, .server = no_server},
	{.name = "reset-forgets", .client = reset_client, .server = reset_server, .needs_rq = true},
	{0},
};
