// SPDX-License-Identifier: Apache-2.0
// Sizes of messages, and where their bytes lie: at odd offsets, in several pieces, each between guards.
#include "pvcheck.h"

#include <string.h>

#define GUARD_BYTE 0xa5

const char *const op_names[OP_COUNT] = {
	[OP_SEND] = "SEND",       [OP_SEND_IMM] = "SEND_WITH_IMM",        [OP_WRITE] = "RDMA_WRITE",
	[OP_READ] = "RDMA_READ",  [OP_WRITE_IMM] = "RDMA_WRITE_WITH_IMM", [OP_FETCH_ADD] = "FETCH_ADD",
	[OP_CMP_SWAP] = "CMP_SWAP",
};

// Around every boundary that something in the path may have: words, cache lines, MTUs, pages, 16 bits, the maximum.
static const uint32_t sizes[] = {
	0,    1,    2,    7,    8,     9,     63,    64,     65,     255,    256,     257,
	1023, 1024, 1025, 4095, 4096,  4097,  8192,  16385,  65535,  65536,  65537,   (1u << 20) - 1,
	1u << 20,
};

#define SIZES (sizeof sizes / sizeof *sizes)

// The ops take turns by rounds of depth messages, so the size advances with the round too: all pairs come up.
size_t message_size(const struct plan *plan, uint64_t iteration)
{
	if (plan->fixed_size != UINT32_MAX)
		return plan->fixed_size;
	unsigned fitting = 0;
	while (fitting < SIZES && sizes[fitting] <= plan->max_size)
		fitting++;
	uint64_t cycle = iteration / plan->depth / (uint64_t)__builtin_popcount(plan->ops);
	return sizes[(cycle * plan->depth + iteration % plan->depth) % fitting];
}

// draw gives a number below limit that both ends agree on.
static size_t draw(const struct plan *plan, uint64_t iteration, unsigned what, size_t limit)
{
	return mix(plan->seed ^ mix(iteration * 16 + what)) % limit;
}

struct layout layout_make(struct end *e, uint64_t iteration, enum side side, bool scattered)
{
	const struct plan *plan = &e->plan;
	unsigned base = side == SIDE_SOURCE ? 0 : 8;
	struct layout l = {.size = message_size(plan, iteration), .pieces = 1};
	uint8_t *at = e->memory + iteration % plan->depth * SLOT_SIZE + GUARD + draw(plan, iteration, base, MAX_SHIFT);
	size_t start = 0;

	if (scattered && l.size >= plan->max_sge)
		l.pieces = 1 + (unsigned)draw(plan, iteration, base + 1, plan->max_sge);
	for (unsigned i = 0; i < l.pieces; i++) {
		size_t left = l.size - start, after = l.pieces - 1 - i; // each later piece gets a byte at least
		size_t size = after ? 1 + draw(plan, iteration, base + 2 + i, left - after) : left;
		l.piece[i] = (struct piece){.at = at, .size = size, .start = start};
		start += size;
		at += size + 2 * GUARD;
	}
	return l;
}

unsigned layout_sges(const struct end *e, const struct layout *l, struct ibv_sge *sges)
{
	for (unsigned i = 0; i < l->pieces; i++)
		sges[i] = (struct ibv_sge){
			.addr = (uintptr_t)l->piece[i].at, .length = (uint32_t)l->piece[i].size, .lkey = e->mr->lkey};
	return l->size ? l->pieces : 0; // an SGE of no bytes may mean 2^31 to a device
}

void layout_fill(const struct end *e, const struct layout *l, uint64_t iteration)
{
	for (unsigned i = 0; i < l->pieces; i++)
		pattern_fill(l->piece[i].at, l->piece[i].size, e->plan.seed, iteration, l->piece[i].start);
}

void layout_guard(const struct layout *l)
{
	for (unsigned i = 0; i < l->pieces; i++) {
		memset(l->piece[i].at - GUARD, GUARD_BYTE, GUARD);
		memset(l->piece[i].at + l->piece[i].size, GUARD_BYTE, GUARD);
	}
}

static void guard_check(struct end *e, const struct piece *p, ptrdiff_t from, enum op op, uint64_t iteration)
{
	for (ptrdiff_t i = from; i < from + (ptrdiff_t)GUARD; i++)
		if (p->at[i] != GUARD_BYTE)
			die_at(e, EXIT_DIFFERENT,
			       "op=%s iteration=%lu offset=%td expected=0x%02x got=0x%02x (outside the piece of %zu bytes at %zu)",
			       op_names[op], iteration, (ptrdiff_t)p->start + i, GUARD_BYTE, p->at[i], p->size, p->start);
}

void layout_check_guards(struct end *e, const struct layout *l, enum op op, uint64_t iteration)
{
	for (unsigned i = 0; i < l->pieces; i++) {
		guard_check(e, &l->piece[i], -(ptrdiff_t)GUARD, op, iteration);
		guard_check(e, &l->piece[i], (ptrdiff_t)l->piece[i].size, op, iteration);
	}
}

void layout_check(struct end *e, const struct layout *l, enum op op, uint64_t iteration)
{
	for (unsigned i = 0; i < l->pieces; i++) {
		const struct piece *p = &l->piece[i];
		size_t same = pattern_check(p->at, p->size, e->plan.seed, iteration, p->start);
		if (same < p->size)
			die_at(e, EXIT_DIFFERENT, "op=%s iteration=%lu offset=%zu expected=0x%02x got=0x%02x", op_names[op],
			       iteration, p->start + same, pattern_byte(e->plan.seed, iteration, p->start + same), p->at[same]);
	}
	layout_check_guards(e, l, op, iteration);
}
