// SPDX-License-Identifier: Apache-2.0
// Waiting for completions.
#include "pvcheck.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>

#define LOOK_SECONDS 1 // between two looks at whether the peer is still there

static bool poll_once(struct end *e, struct ibv_wc *wc)
{
	int n = ibv_poll_cq(e->cq, 1, wc);
	if (n < 0)
		die_at(e, EXIT_DIFFERENT, "ibv_poll_cq: %d", n);
	return n == 1;
}

// sleep_for_event waits for one event of the channel; false: none came in time.
static bool sleep_for_event(struct end *e, double give_up)
{
	struct pollfd fd = {.fd = e->channel->fd, .events = POLLIN};
	struct ibv_cq *cq;
	void *context;
	for (;;) {
		double left = give_up - seconds();
		int n = poll(&fd, 1, left > LOOK_SECONDS ? LOOK_SECONDS * 1000 : left > 0 ? (int)(left * 1000) + 1 : 0);
		if (n > 0)
			break;
		if (n < 0 && errno != EINTR)
			die_at(e, EXIT_SETUP, "poll: %s", strerror(errno));
		if (n == 0 && seconds() >= give_up)
			return false;
		peer_look(e);
	}
	must(e, ibv_get_cq_event(e->channel, &cq, &context), "ibv_get_cq_event");
	if (cq != e->cq || context != e)
		die_at(e, EXIT_DIFFERENT, "completion event names another CQ");
	e->unacked++;
	return true;
}

// By event: arm first, look again, only then sleep. What arrives between the two looks must raise the event.
static bool wait_by_event(struct end *e, struct ibv_wc *wc, double give_up)
{
	for (;;) {
		if (poll_once(e, wc))
			return true;
		must(e, ibv_req_notify_cq(e->cq, 0), "ibv_req_notify_cq");
		if (poll_once(e, wc))
			return true;
		if (!sleep_for_event(e, give_up)) {
			if (poll_once(e, wc))
				die_at(e, EXIT_DIFFERENT, "a completion came, its event did not");
			return false;
		}
	}
}

static bool wait_by_polling(struct end *e, struct ibv_wc *wc, double give_up)
{
	double look = seconds() + LOOK_SECONDS;
	for (unsigned tries = 0;; tries++) {
		if (poll_once(e, wc))
			return true;
		if (tries % 64 != 63)
			continue;
		sched_yield(); // the peer may need this CPU
		double now = seconds();
		if (now > give_up)
			return false;
		if (now > look) { // by the clock: a CPU that is yielded to others tries seldom
			peer_look(e);
			look = now + LOOK_SECONDS;
		}
	}
}

bool try_completion(struct end *e, struct ibv_wc *wc, double wait)
{
	double give_up = seconds() + wait;
	return e->events ? wait_by_event(e, wc, give_up) : wait_by_polling(e, wc, give_up);
}

void next_completion(struct end *e, struct ibv_wc *wc, const char *what, uint64_t iteration)
{
	if (!try_completion(e, wc, WAIT_SECONDS))
		die_at(e, EXIT_DIFFERENT, "op=%s iteration=%lu: no completion in %d s", what, iteration, WAIT_SECONDS);
}
