// SPDX-License-Identifier: Apache-2.0
// One word that everybody adds to: the server's processors with locked instructions, as fast as they can, and the client
// with atomic operations. What each has added must be there in the end.
#include "pvcheck.h"

#include <pthread.h>
#include <string.h>

#define PROCESSORS 2
#define WORD_AT 4096u // in both ends' memory: the server's word, and the first of the client's results

struct adder {
	pthread_t thread;
	uint64_t *word, added;
	volatile int *stop;
};

static void *add_until_stopped(void *arg)
{
	struct adder *a = arg;
	while (!__atomic_load_n(a->stop, __ATOMIC_RELAXED)) {
		__atomic_fetch_add(a->word, 1, __ATOMIC_SEQ_CST);
		a->added++;
	}
	return NULL;
}

void counter_server(struct end *e, struct totals *t)
{
	uint64_t *word = (uint64_t *)(void *)(e->memory + WORD_AT), by_client, sum;
	volatile int stop = 0;
	struct adder adders[PROCESSORS];
	*word = sum = mix(e->plan.seed);
	barrier(e); // the word is what it is to begin with
	for (unsigned i = 0; i < PROCESSORS; i++) {
		adders[i] = (struct adder){.word = word, .stop = &stop};
		if (pthread_create(&adders[i].thread, NULL, add_until_stopped, &adders[i]))
			die_at(e, EXIT_SETUP, "cannot start a thread");
	}
	peer_receive(e, &by_client, sizeof by_client);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	sum += by_client;
	for (unsigned i = 0; i < PROCESSORS; i++) {
		pthread_join(adders[i].thread, NULL);
		sum += adders[i].added;
		t->messages += adders[i].added;
	}
	uint64_t got = __atomic_load_n(word, __ATOMIC_SEQ_CST);
	if (got != sum)
		die_at(e, EXIT_DIFFERENT, "counter: %lu additions by the client, %lu by processors: sum expected=%#lx got=%#lx",
		       by_client, t->messages, sum, got);
	t->messages += by_client;
}

// Every fourth operation swaps what was there last for one more, which fails if somebody was faster.
static bool swaps(uint64_t i) { return i % 4 == 3; }

static uint64_t *result_of(struct end *e, uint64_t i)
{
	return (uint64_t *)(void *)(e->memory + WORD_AT + i % e->plan.depth * sizeof(uint64_t));
}

static void post_addition(struct end *e, uint64_t i, uint64_t guess)
{
	struct ibv_sge sge = {.addr = (uintptr_t)result_of(e, i), .length = sizeof(uint64_t), .lkey = e->mr->lkey};
	struct ibv_send_wr *bad, wr = {
		.wr_id = i,
		.sg_list = &sge,
		.num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED,
		.opcode = swaps(i) ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD,
		.wr.atomic = {.remote_addr = e->remote.address + WORD_AT,
			      .rkey = e->remote.rkey,
			      .compare_add = swaps(i) ? guess : 1,
			      .swap = guess + 1},
	};
	must(e, ibv_post_send(e->qp, &wr, &bad), "ibv_post_send");
}

// It goes on until the processors have added between so many operations: on a busy machine they seldom run at the same time.
#define ENOUGH 20u
#define MOST 100u // times the operations asked for

void counter_client(struct end *e, uint64_t count, struct totals *t)
{
	uint64_t guesses[MAX_DEPTH], added = 0, posted = 0, done = 0, last = 0, apart = 0;
	barrier(e);
	for (;; done++) {
		for (; posted < done + e->plan.depth && (posted < count || apart < ENOUGH) && posted < count * MOST; posted++) {
			guesses[posted % e->plan.depth] = last + (posted - done); // as if nobody else added
			post_addition(e, posted, guesses[posted % e->plan.depth]);
		}
		if (done == posted)
			break;
		struct ibv_wc wc;
		next_completion(e, &wc, "counter", done);
		if (wc.status != IBV_WC_SUCCESS || wc.wr_id != done || wc.byte_len != sizeof(uint64_t) ||
		    wc.opcode != (swaps(done) ? IBV_WC_COMP_SWAP : IBV_WC_FETCH_ADD))
			die_at(e, EXIT_DIFFERENT, "counter: operation %lu: wr_id=%lu opcode=%d byte_len=%u status=\"%s\"", done,
			       wc.wr_id, wc.opcode, wc.byte_len, ibv_wc_status_str(wc.status));
		uint64_t was = *result_of(e, done);
		bool changed = !swaps(done) || was == guesses[done % e->plan.depth];
		if (done && was - last > UINT64_MAX / 2)
			die_at(e, EXIT_DIFFERENT, "counter: operation %lu found %#lx after %#lx", done, was, last);
		apart += done && was != last;
		last = was + changed;
		added += changed;
	}
	peer_send(e, &added, sizeof added);
	if (apart < ENOUGH)
		die_at(e, EXIT_DIFFERENT, "counter: the server's processors added between %lu of %lu operations only", apart, done);
	t->messages = done;
	t->bytes = done * sizeof(uint64_t);
}
