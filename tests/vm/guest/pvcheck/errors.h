// SPDX-License-Identifier: Apache-2.0
// What the protection checks share.
#ifndef ERRORS_H
#define ERRORS_H

#include "pvcheck.h"

// A check is played by both ends on a freshly connected pair of QPs.
struct check {
	const char *name;
	void (*client)(struct end *e, const struct check *c);
	void (*server)(struct end *e, const struct check *c);
	int how;                      // which variation, for the functions that play several
	enum ibv_wc_status expected;  // at the client
	enum ibv_wc_status at_server; // where a receive completes too
	bool needs_atomics, needs_rq; // left out without atomics; left out with an SRQ
	bool no_retry;                // the client's rnr_retry is 0
	unsigned denied;              // access flags that the server's QP lacks
};

extern const struct check refusal_checks[], state_checks[]; // refusals.c and states.c; ended by a check without name

#define LENGTH 64u // of the messages of the checks

void post_send(struct end *e, struct ibv_send_wr wr, const struct ibv_sge *sge);
void post_receive_of(struct end *e, uint64_t wr_id, const struct ibv_sge *sge);
struct ibv_sge own_memory(const struct end *e, size_t offset);
void expect(struct end *e, const struct check *c, uint64_t wr_id, enum ibv_wc_status status);
void expect_nothing(struct end *e, const struct check *c, double wait);
void expect_error_state(struct end *e, const struct check *c);
void to_error(struct end *e);

#endif
