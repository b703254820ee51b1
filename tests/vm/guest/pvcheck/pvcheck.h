// SPDX-License-Identifier: Apache-2.0
// pvcheck: data and protection checks of an RDMA device over libibverbs. See main.c for what it does.
#ifndef PVCHECK_H
#define PVCHECK_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum exit_code {
	EXIT_PASS = 0,
	EXIT_DIFFERENT = 1, // the device did something that verbs do not allow
	EXIT_SETUP = 2,     // wrong options, or no device to check
	EXIT_LOST = 3,      // the peer or its QP went away; nothing that arrived was wrong
};

#define MAX_MESSAGE (1u << 20)
#define GUARD 64u      // bytes on either side of each target that must stay as they are
#define MAX_SHIFT 4096u // how far into its slot a message may begin
#define MAX_DEPTH 64u
#define MAX_SGE 4u
// A message lies in up to MAX_SGE pieces, each between guards of its own.
#define SLOT_SIZE (MAX_MESSAGE + MAX_SHIFT + 2 * GUARD * MAX_SGE)
#define WAIT_SECONDS 60 // for a completion or an event, before the run counts as hung

enum op { OP_SEND, OP_SEND_IMM, OP_WRITE, OP_WRITE_IMM, OP_READ, OP_FETCH_ADD, OP_CMP_SWAP, OP_COUNT };
extern const char *const op_names[OP_COUNT];

// What both sides must agree on: the client's options, sent to the server.
struct plan {
	uint64_t seed;
	uint64_t corrupt_at; // message that carries one wrong byte; UINT64_MAX for none
	uint32_t ops;        // bit mask of enum op
	uint32_t depth;      // messages in flight
	uint32_t fixed_size; // of every message; UINT32_MAX for a mixture
	uint32_t max_size;
	uint32_t max_sge;
	uint32_t signal_every; // one completion for so many messages
	uint32_t errors;       // 1: the protection checks instead of traffic
	uint32_t counter;      // 1: one word that all add to, instead of traffic
};

// One end of the connection.
struct end {
	const char *role;
	struct ibv_context *ctx;
	struct ibv_device_attr attr;
	uint8_t port;
	int gid_index;
	union ibv_gid gid;
	enum ibv_mtu mtu;
	bool events;  // sleep on a completion channel instead of polling
	bool use_srq; // receives go through an SRQ
	struct plan plan;

	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	unsigned unacked; // events of cq that ibv_ack_cq_events has not heard of
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	uint32_t psn;

	uint8_t *memory; // depth slots
	struct ibv_mr *mr;
	int peer; // socket of the out-of-band exchange
	struct peer_info {
		union ibv_gid gid;
		uint32_t qpn, psn, rkey, mtu;
		uint64_t address;
	} remote;
};

// fail.c: the one way out of a check that did not hold.
extern volatile int stop_requested; // set by SIGINT and SIGTERM
_Noreturn void die(enum exit_code code, const char *format, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void die_at(struct end *e, enum exit_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));
double seconds(void);

// pattern.c: every byte of a message follows from the seed, the message's number and the byte's offset.
uint64_t mix(uint64_t x);
void pattern_fill(uint8_t *to, size_t size, uint64_t seed, uint64_t iteration, size_t start);
// pattern_check compares size bytes that begin at offset start of the message. It returns size, or where the first
// difference is.
size_t pattern_check(const uint8_t *at, size_t size, uint64_t seed, uint64_t iteration, size_t start);
uint8_t pattern_byte(uint64_t seed, uint64_t iteration, size_t offset);

// layout.c: where the bytes of a message lie.
struct layout {
	size_t size; // of the message
	unsigned pieces;
	struct piece {
		uint8_t *at;
		size_t size, start; // start is the piece's offset in the message
	} piece[MAX_SGE];
};
enum side { SIDE_SOURCE, SIDE_TARGET };
size_t message_size(const struct plan *plan, uint64_t iteration);
// layout_make places a message in its slot; scattered messages come in several pieces.
struct layout layout_make(struct end *e, uint64_t iteration, enum side side, bool scattered);
unsigned layout_sges(const struct end *e, const struct layout *l, struct ibv_sge *sges);
void layout_fill(const struct end *e, const struct layout *l, uint64_t iteration);
void layout_guard(const struct layout *l);
// layout_check dies at the first byte that is not the message's, or beside it not the guard's.
void layout_check(struct end *e, const struct layout *l, enum op op, uint64_t iteration);
void layout_check_guards(struct end *e, const struct layout *l, enum op op, uint64_t iteration);

// verbs.c: from a device to a connected RC QP and back.
struct ibv_context *device_open(const char *name);
void end_open(struct end *e, struct ibv_context *ctx, int port, int gid_index);
void end_create(struct end *e);
void end_connect(struct end *e, const struct ibv_qp_attr *changes);
void end_reset(struct end *e);
void end_destroy(struct end *e);
void must(struct end *e, int result, const char *what);
const char *gid_text(const union ibv_gid *gid);

// completion.c: one completion, polled or by event.
void next_completion(struct end *e, struct ibv_wc *wc, const char *what, uint64_t iteration);
bool try_completion(struct end *e, struct ibv_wc *wc, double wait);

// peer.c: the TCP connection beside the RDMA one.
int peer_listen(int port);
int peer_dial(const char *host, int port);
void peer_send(struct end *e, const void *data, size_t size);
void peer_receive(struct end *e, void *data, size_t size);
// peer_look ends the run if the peer has failed or gone; it consumes nothing.
void peer_look(struct end *e);
void barrier(struct end *e);
// tell_peer passes a failure on, so that both sides end with it.
void tell_peer(struct end *e, int code, const char *text);

// traffic.c and errors.c: what there is to check.
struct totals {
	uint64_t messages, bytes;
	double p50_us;
};
void traffic_client(struct end *e, uint64_t count, double limit, struct totals *t);
void traffic_server(struct end *e, struct totals *t);
void counter_client(struct end *e, uint64_t count, struct totals *t); // counter.c
void counter_server(struct end *e, struct totals *t);
unsigned errors_run(struct end *e, bool client, const char *skip);

#endif
