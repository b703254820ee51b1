// SPDX-License-Identifier: Apache-2.0
// The protection checks: runner and tools.
#include "errors.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

void post_send(struct end *e, struct ibv_send_wr wr, const struct ibv_sge *sge)
{
	struct ibv_send_wr *bad;
	struct ibv_sge copy = *sge;
	wr.sg_list = &copy;
	wr.num_sge = 1;
	must(e, ibv_post_send(e->qp, &wr, &bad), "ibv_post_send");
}

void post_receive_of(struct end *e, uint64_t wr_id, const struct ibv_sge *sge)
{
	struct ibv_sge copy = *sge;
	struct ibv_recv_wr *bad, wr = {.wr_id = wr_id, .sg_list = &copy, .num_sge = 1};
	must(e, e->srq ? ibv_post_srq_recv(e->srq, &wr, &bad) : ibv_post_recv(e->qp, &wr, &bad), "post receive");
}

struct ibv_sge own_memory(const struct end *e, size_t offset)
{
	return (struct ibv_sge){.addr = (uintptr_t)e->memory + offset, .length = LENGTH, .lkey = e->mr->lkey};
}

void expect(struct end *e, const struct check *c, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc;
	if (!try_completion(e, &wc, WAIT_SECONDS))
		die_at(e, EXIT_DIFFERENT, "check=%s wr_id=%lu: no completion in %d s", c->name, wr_id, WAIT_SECONDS);
	if (wc.wr_id != wr_id)
		die_at(e, EXIT_DIFFERENT, "check=%s wc.wr_id expected=%lu got=%lu (%s)", c->name, wr_id, wc.wr_id,
		       ibv_wc_status_str(wc.status));
	if (wc.status != status)
		die_at(e, EXIT_DIFFERENT, "check=%s wr_id=%lu wc.status expected=\"%s\" got=\"%s\"", c->name, wr_id,
		       ibv_wc_status_str(status), ibv_wc_status_str(wc.status));
}

void expect_nothing(struct end *e, const struct check *c, double wait)
{
	struct ibv_wc wc;
	if (try_completion(e, &wc, wait))
		die_at(e, EXIT_DIFFERENT, "check=%s expected no completion, got wr_id=%lu status=\"%s\"", c->name, wc.wr_id,
		       ibv_wc_status_str(wc.status));
}

// The QP goes to ERR a moment before or after the completion that says why.
void expect_error_state(struct end *e, const struct check *c)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	double give_up = seconds() + 5;
	do {
		must(e, ibv_query_qp(e->qp, &attr, IBV_QP_STATE, &init), "ibv_query_qp");
		if (attr.qp_state == IBV_QPS_ERR)
			return;
		usleep(10 * 1000);
	} while (seconds() < give_up);
	die_at(e, EXIT_DIFFERENT, "check=%s qp_state expected=%d (ERR) got=%d", c->name, IBV_QPS_ERR, attr.qp_state);
}

void to_error(struct end *e)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	must(e, ibv_modify_qp(e->qp, &attr, IBV_QP_STATE), "modify QP to ERR");
}

static bool skipped(const struct end *e, const struct check *c, const char *skip)
{
	size_t length = strlen(c->name);
	if ((c->needs_atomics && e->attr.atomic_cap == IBV_ATOMIC_NONE) || (c->needs_rq && e->srq))
		return true;
	for (const char *at = skip; (at = strstr(at, c->name)); at++)
		if ((at == skip || at[-1] == ',') && (at[length] == ',' || at[length] == 0))
			return true;
	return false;
}

// play runs one check. The client names it, so that both ends agree on what they skip.
static void play(struct end *e, const struct check *c, bool client)
{
	unsigned access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	if (e->attr.atomic_cap != IBV_ATOMIC_NONE)
		access |= IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_qp_attr changes = {.qp_access_flags = access & ~c->denied, .rnr_retry = c->no_retry ? 0 : 7};
	struct ibv_wc wc;

	end_connect(e, &changes);
	(client ? c->client : c->server)(e, c);
	barrier(e); // both have seen what they expect
	end_reset(e);
	while (!e->srq && ibv_poll_cq(e->cq, 1, &wc) == 1)
		if (wc.status != IBV_WC_WR_FLUSH_ERR)
			die_at(e, EXIT_DIFFERENT, "check=%s left wr_id=%lu status=\"%s\"", c->name, wc.wr_id,
			       ibv_wc_status_str(wc.status));
	if (client)
		printf("ok %s\n", c->name);
}

static unsigned play_all(struct end *e, const struct check *checks, bool client, const char *skip)
{
	unsigned played = 0;
	for (const struct check *c = checks; c->name; c++) {
		char run = client && !skipped(e, c, skip);
		if (client)
			peer_send(e, &run, 1);
		else
			peer_receive(e, &run, 1);
		if (!run)
			continue;
		play(e, c, client);
		played++;
	}
	return played;
}

unsigned errors_run(struct end *e, bool client, const char *skip)
{
	return play_all(e, refusal_checks, client, skip) + play_all(e, state_checks, client, skip);
}
