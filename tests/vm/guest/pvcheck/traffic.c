// SPDX-License-Identifier: Apache-2.0
// Traffic in rounds. The client names a round of messages of one operation, the server prepares for it, the client
// posts all of it and takes the completions, and whoever received the bytes compares every one.
#include "pvcheck.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

struct round {
	uint64_t first; // message number
	uint32_t op, count;
};

static bool takes_receive(enum op op) { return op == OP_SEND || op == OP_SEND_IMM || op == OP_WRITE_IMM; }
static bool has_imm(enum op op) { return op == OP_SEND_IMM || op == OP_WRITE_IMM; }
static bool is_atomic(enum op op) { return op == OP_FETCH_ADD || op == OP_CMP_SWAP; }

static uint32_t imm_of(const struct end *e, uint64_t iteration)
{
	return htonl((uint32_t)mix(e->plan.seed + ~iteration));
}

static const enum ibv_wr_opcode wr_opcodes[OP_COUNT] = {
	[OP_SEND] = IBV_WR_SEND,
	[OP_SEND_IMM] = IBV_WR_SEND_WITH_IMM,
	[OP_WRITE] = IBV_WR_RDMA_WRITE,
	[OP_WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
	[OP_READ] = IBV_WR_RDMA_READ,
	[OP_FETCH_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
	[OP_CMP_SWAP] = IBV_WR_ATOMIC_CMP_AND_SWP,
};

static const enum ibv_wc_opcode wc_opcodes[OP_COUNT] = {
	[OP_SEND] = IBV_WC_SEND,
	[OP_SEND_IMM] = IBV_WC_SEND,
	[OP_WRITE] = IBV_WC_RDMA_WRITE,
	[OP_WRITE_IMM] = IBV_WC_RDMA_WRITE,
	[OP_READ] = IBV_WC_RDMA_READ,
	[OP_FETCH_ADD] = IBV_WC_FETCH_ADD,
	[OP_CMP_SWAP] = IBV_WC_COMP_SWAP,
};

// A completion with one of these says that the peer or the QP is gone, which is an end, not a fault, when someone
// kills or resets the other side on purpose.
static bool means_lost(enum ibv_wc_status status)
{
	return status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_WR_FLUSH_ERR || status == IBV_WC_REM_OP_ERR ||
	       status == IBV_WC_REM_ABORT_ERR || status == IBV_WC_RESP_TIMEOUT_ERR;
}

static void check_field(struct end *e, enum op op, uint64_t iteration, const char *field, uint64_t expected, uint64_t got)
{
	if (expected != got)
		die_at(e, EXIT_DIFFERENT, "op=%s iteration=%lu wc.%s expected=%#lx got=%#lx", op_names[op], iteration, field,
		       expected, got);
}

static void take_completion(struct end *e, struct ibv_wc *wc, enum op op, uint64_t iteration)
{
	next_completion(e, wc, op_names[op], iteration);
	if (wc->status != IBV_WC_SUCCESS)
		die_at(e, means_lost(wc->status) ? EXIT_LOST : EXIT_DIFFERENT,
		       "op=%s iteration=%lu wr_id=%lu wc.status expected=success got=%s", op_names[op], iteration, wc->wr_id,
		       ibv_wc_status_str(wc->status));
	check_field(e, op, iteration, "wr_id", iteration, wc->wr_id);
	check_field(e, op, iteration, "qp_num", e->qp->qp_num, wc->qp_num);
}

// Atomics: one word of the server's, in its first slot. Every other CMP_SWAP expects a value that is not there.
static uint64_t *atomic_word(uint64_t memory) { return (uint64_t *)(uintptr_t)(memory + 4096); }
static uint64_t atomic_start(const struct end *e, const struct round *r) { return mix(e->plan.seed ^ r->first); }
static uint64_t atomic_operand(const struct end *e, uint64_t iteration) { return mix(e->plan.seed ^ ~iteration); }
static bool swap_fails(uint64_t iteration) { return iteration % 2; }

static uint64_t atomic_next(const struct end *e, enum op op, uint64_t iteration, uint64_t value)
{
	uint64_t operand = atomic_operand(e, iteration);
	if (op == OP_FETCH_ADD)
		return value + operand;
	return swap_fails(iteration) ? value : operand;
}

// The old value comes back into the message's slot.
static struct layout atomic_result(struct end *e, uint64_t iteration)
{
	struct layout l = {.size = 8, .pieces = 1};
	l.piece[0].at = e->memory + iteration % e->plan.depth * SLOT_SIZE + 2 * GUARD + iteration % 64 * 8;
	l.piece[0].size = 8;
	return l;
}

static struct layout client_layout(struct end *e, enum op op, uint64_t iteration)
{
	if (is_atomic(op))
		return atomic_result(e, iteration);
	return layout_make(e, iteration, op == OP_READ ? SIDE_TARGET : SIDE_SOURCE, true);
}

static struct layout server_layout(struct end *e, enum op op, uint64_t iteration)
{
	bool is_send = op == OP_SEND || op == OP_SEND_IMM;
	return layout_make(e, iteration, op == OP_READ ? SIDE_SOURCE : SIDE_TARGET, is_send);
}

// The message that shall arrive wrong: the first of at least one byte from plan.corrupt_at on, sent by its source.
static void corrupt(struct end *e, const struct layout *l, uint64_t iteration)
{
	if (iteration < e->plan.corrupt_at || l->size == 0)
		return;
	l->piece[0].at[l->piece[0].size / 2] ^= 0x10;
	e->plan.corrupt_at = UINT64_MAX;
}

static void client_prepare(struct end *e, const struct round *r)
{
	for (uint64_t i = r->first; i < r->first + r->count; i++) {
		struct layout l = client_layout(e, r->op, i);
		if (r->op == OP_READ || is_atomic(r->op)) {
			layout_guard(&l);
			continue;
		}
		layout_fill(e, &l, i);
		corrupt(e, &l, i);
	}
}

// remote_address: the server lays a message out in its memory as we would in ours.
static uint64_t remote_address(struct end *e, enum op op, uint64_t iteration)
{
	return e->remote.address + (uint64_t)(server_layout(e, op, iteration).piece[0].at - e->memory);
}

static void post(struct end *e, const struct round *r, uint64_t iteration, uint64_t value)
{
	struct layout l = client_layout(e, r->op, iteration);
	struct ibv_sge sges[MAX_SGE];
	struct ibv_send_wr *bad, wr = {
		.wr_id = iteration,
		.sg_list = sges,
		.num_sge = (int)layout_sges(e, &l, sges),
		.opcode = wr_opcodes[r->op],
	};
	bool last = iteration == r->first + r->count - 1;
	if (last || (iteration - r->first) % e->plan.signal_every == e->plan.signal_every - 1)
		wr.send_flags |= IBV_SEND_SIGNALED;
	if (has_imm(r->op))
		wr.imm_data = imm_of(e, iteration);
	if (is_atomic(r->op)) {
		wr.wr.atomic.remote_addr = (uintptr_t)atomic_word(e->remote.address);
		wr.wr.atomic.rkey = e->remote.rkey;
		wr.wr.atomic.compare_add = r->op == OP_FETCH_ADD ? atomic_operand(e, iteration) : value + swap_fails(iteration);
		wr.wr.atomic.swap = atomic_operand(e, iteration);
	} else if (r->op != OP_SEND && r->op != OP_SEND_IMM) {
		wr.wr.rdma.remote_addr = remote_address(e, r->op, iteration);
		wr.wr.rdma.rkey = e->remote.rkey;
	}
	must(e, ibv_post_send(e->qp, &wr, &bad), "ibv_post_send");
}

// Latencies, from posting to completion, of the newest messages.
#define SAMPLES (1u << 17)
static float samples[SAMPLES];
static uint64_t sampled;

static void client_round(struct end *e, const struct round *r)
{
	double posted[MAX_DEPTH];
	uint64_t end = r->first + r->count, value = atomic_start(e, r);
	for (uint64_t i = r->first; i < end; i++) {
		posted[i - r->first] = seconds();
		post(e, r, i, value);
		value = atomic_next(e, r->op, i, value);
	}
	for (uint64_t i = r->first; i < end; i++) {
		struct ibv_wc wc;
		if (i != end - 1 && (i - r->first) % e->plan.signal_every != e->plan.signal_every - 1)
			continue; // not signalled: the next completion must be another's
		take_completion(e, &wc, r->op, i);
		samples[sampled++ % SAMPLES] = (float)((seconds() - posted[i - r->first]) * 1e6);
		check_field(e, r->op, i, "opcode", wc_opcodes[r->op], wc.opcode);
		if (r->op == OP_READ)
			check_field(e, r->op, i, "byte_len", message_size(&e->plan, i), wc.byte_len);
	}
}

static void client_check(struct end *e, const struct round *r)
{
	uint64_t value = atomic_start(e, r), got;
	for (uint64_t i = r->first; i < r->first + r->count; i++) {
		struct layout l = client_layout(e, r->op, i);
		if (r->op == OP_READ)
			layout_check(e, &l, r->op, i);
		if (!is_atomic(r->op))
			continue;
		memcpy(&got, l.piece[0].at, sizeof got);
		if (got != value)
			die_at(e, EXIT_DIFFERENT, "op=%s iteration=%lu offset=0 expected=%#lx got=%#lx", op_names[r->op], i, value,
			       got);
		layout_check_guards(e, &l, r->op, i);
		value = atomic_next(e, r->op, i, value);
	}
}

static int by_value(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;
	return (x > y) - (x < y);
}

static enum op op_of(const struct plan *plan, uint64_t round)
{
	uint64_t skip = round % (uint64_t)__builtin_popcount(plan->ops);
	for (enum op op = 0;; op++)
		if (plan->ops >> op & 1 && skip-- == 0)
			return op;
}

static void add_up(const struct end *e, const struct round *r, struct totals *t)
{
	t->messages += r->count;
	for (uint64_t i = r->first; i < r->first + r->count; i++)
		t->bytes += is_atomic(r->op) ? 8 : message_size(&e->plan, i);
}

void traffic_client(struct end *e, uint64_t count, double limit, struct totals *t)
{
	double give_up = seconds() + limit;
	struct round r = {.count = e->plan.depth};
	for (uint64_t n = 0; r.first < count && !stop_requested && (limit == 0 || seconds() < give_up); n++) {
		char ready;
		r.op = op_of(&e->plan, n);
		client_prepare(e, &r);
		peer_send(e, &r, sizeof r);
		peer_receive(e, &ready, 1);
		client_round(e, &r);
		barrier(e); // all is done; the server checks, and would tell us
		client_check(e, &r);
		barrier(e);
		add_up(e, &r, t);
		r.first += r.count;
	}
	r.count = 0;
	peer_send(e, &r, sizeof r);
	size_t n = sampled < SAMPLES ? sampled : SAMPLES;
	qsort(samples, n, sizeof *samples, by_value);
	t->p50_us = n ? (double)samples[n / 2] : 0;
}

static void post_receive(struct end *e, enum op op, uint64_t iteration)
{
	struct ibv_sge sges[MAX_SGE];
	struct ibv_recv_wr *bad, wr = {.wr_id = iteration, .sg_list = sges};
	if (op != OP_WRITE_IMM) {
		struct layout l = server_layout(e, op, iteration);
		wr.num_sge = (int)layout_sges(e, &l, sges);
		if (wr.num_sge && iteration % 2) // sometimes the buffer is longer than the message
			sges[wr.num_sge - 1].length += GUARD;
	}
	must(e, e->srq ? ibv_post_srq_recv(e->srq, &wr, &bad) : ibv_post_recv(e->qp, &wr, &bad), "post receive");
}

static void server_prepare(struct end *e, const struct round *r)
{
	if (is_atomic(r->op))
		*atomic_word((uintptr_t)e->memory) = atomic_start(e, r);
	for (uint64_t i = r->first; i < r->first + r->count && !is_atomic(r->op); i++) {
		struct layout l = server_layout(e, r->op, i);
		if (r->op == OP_READ) {
			layout_fill(e, &l, i);
			corrupt(e, &l, i);
		} else {
			layout_guard(&l);
		}
		if (takes_receive(r->op))
			post_receive(e, r->op, i);
	}
}

static void server_completion(struct end *e, const struct round *r, uint64_t iteration)
{
	struct ibv_wc wc;
	bool imm = has_imm(r->op);
	take_completion(e, &wc, r->op, iteration);
	check_field(e, r->op, iteration, "opcode", r->op == OP_WRITE_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV, wc.opcode);
	check_field(e, r->op, iteration, "byte_len", message_size(&e->plan, iteration), wc.byte_len);
	check_field(e, r->op, iteration, "wc_flags&WITH_IMM", imm, !!(wc.wc_flags & IBV_WC_WITH_IMM));
	if (imm)
		check_field(e, r->op, iteration, "imm_data", imm_of(e, iteration), wc.imm_data);
}

static void server_check(struct end *e, const struct round *r)
{
	uint64_t value = atomic_start(e, r);
	for (uint64_t i = r->first; i < r->first + r->count; i++) {
		if (is_atomic(r->op)) {
			value = atomic_next(e, r->op, i, value);
		} else if (r->op != OP_READ) {
			struct layout l = server_layout(e, r->op, i);
			layout_check(e, &l, r->op, i);
		}
	}
	uint64_t got = *atomic_word((uintptr_t)e->memory);
	if (is_atomic(r->op) && got != value)
		die_at(e, EXIT_DIFFERENT, "op=%s iteration=%lu offset=0 expected=%#lx got=%#lx (in the server's memory)",
		       op_names[r->op], r->first + r->count - 1, value, got);
}

void traffic_server(struct end *e, struct totals *t)
{
	for (;;) {
		char ready = 'r';
		struct round r;
		peer_receive(e, &r, sizeof r);
		if (r.count == 0)
			return;
		if (r.op >= OP_COUNT || r.count > e->plan.depth)
			die_at(e, EXIT_SETUP, "peer asks for a round of %u x op %u", r.count, r.op);
		server_prepare(e, &r);
		peer_send(e, &ready, 1);
		for (uint64_t i = r.first; i < r.first + r.count && takes_receive(r.op); i++)
			server_completion(e, &r, i);
		barrier(e);
		server_check(e, &r);
		barrier(e);
		add_up(e, &r, t);
	}
}
