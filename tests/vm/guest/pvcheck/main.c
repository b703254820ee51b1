// SPDX-License-Identifier: Apache-2.0
// pvcheck checks an RDMA device by what arrives. Every byte of every message derives from a seed, the message's
// number and the byte's offset; the receiver compares all of them and the guards beside them, and every field of
// every completion that verbs define. With --errors it checks instead that what must be refused is refused.
#include "pvcheck.h"

#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char usage_text[] =
	"usage: pvcheck [options]              server: takes one client, then ends\n"
	"       pvcheck [options] HOST         client\n"
	"       pvcheck [options] --self       both in one process, two QPs of one device\n"
	"either side:\n"
	"  -d, --device NAME     RDMA device (default: the first)\n"
	"  -i, --ib-port N       its port (1)\n"
	"  -g, --gid-index N     GID (default: the first GID of an IPv4 address, of RoCE v2 if there is one)\n"
	"  -p, --port N          TCP port (18515)\n"
	"  -e, --events          sleep on completion events\n"
	"  -Q, --srq             receive through an SRQ\n"
	"client or --self:\n"
	"  -o, --ops LIST        of SEND,SEND_WITH_IMM,RDMA_WRITE,RDMA_WRITE_WITH_IMM,RDMA_READ,FETCH_ADD,CMP_SWAP\n"
	"                        (default: all but the last two; \"all\": all)\n"
	"  -n, --messages N      how many (400); -t, --seconds N  or for how long\n"
	"  -q, --depth N         in flight, 1..64 (16)\n"
	"  -s, --size N          bytes of each message (default: a mixture from 0 to --max-size)\n"
	"  -m, --max-size N      (1048576)\n"
	"  -G, --max-sge N       pieces of a message, 1..4 (3)\n"
	"  -u, --signal-every N  one send completion for so many messages (1)\n"
	"  -S, --seed N          (1)\n"
	"  -c, --corrupt-at N    message N carries one wrong byte: the run must FAIL\n"
	"  -C, --counter         one word that the server's processors and --messages atomic operations add to\n"
	"  -E, --errors          check protection instead; -x, --skip LIST  without these checks\n"
	"The last line is `pvcheck: PASS ...` (exit 0), `pvcheck: FAIL ...` (1: the device did wrong, 2: set-up),\n"
	"or `pvcheck: LOST ...` (3: the other side is gone, nothing was wrong until then).\n";

struct options {
	const char *device, *host, *skip;
	int ib_port, gid_index, port;
	bool events, srq, self;
	uint64_t messages;
	double seconds;
	struct plan plan;
};

static uint64_t number(const char *text, uint64_t low, uint64_t high, const char *what)
{
	char *end;
	unsigned long long n = strtoull(text, &end, 0);
	if (end == text || *end || n < low || n > high)
		die(EXIT_SETUP, "%s %s: want %lu..%lu", what, text, low, high);
	return n;
}

static uint32_t op_mask(char *list)
{
	uint32_t mask = 0;
	for (char *name = strtok(list, ","); name; name = strtok(NULL, ",")) {
		int op = 0;
		if (!strcmp(name, "all"))
			return (1u << OP_COUNT) - 1;
		while (op < OP_COUNT && strcmp(name, op_names[op]))
			op++;
		if (op == OP_COUNT)
			die(EXIT_SETUP, "unknown operation %s", name);
		mask |= 1u << op;
	}
	return mask;
}

static const struct option long_options[] = {
	{"device", 1, NULL, 'd'},    {"ib-port", 1, NULL, 'i'},  {"gid-index", 1, NULL, 'g'},    {"port", 1, NULL, 'p'},
	{"events", 0, NULL, 'e'},    {"srq", 0, NULL, 'Q'},      {"ops", 1, NULL, 'o'},          {"messages", 1, NULL, 'n'},
	{"seconds", 1, NULL, 't'},   {"depth", 1, NULL, 'q'},    {"size", 1, NULL, 's'},         {"max-size", 1, NULL, 'm'},
	{"max-sge", 1, NULL, 'G'},   {"seed", 1, NULL, 'S'},     {"signal-every", 1, NULL, 'u'}, {"corrupt-at", 1, NULL, 'c'},
	{"counter", 0, NULL, 'C'},   {"errors", 0, NULL, 'E'},   {"skip", 1, NULL, 'x'},         {"self", 0, NULL, 'L'},
	{"help", 0, NULL, 'h'},
	{0},
};

static void set_option(struct options *o, int c, char *value)
{
	switch (c) {
	case 'd': o->device = value; break;
	case 'i': o->ib_port = (int)number(value, 1, 255, "--ib-port"); break;
	case 'g': o->gid_index = (int)number(value, 0, 255, "--gid-index"); break;
	case 'p': o->port = (int)number(value, 1, 65535, "--port"); break;
	case 'e': o->events = true; break;
	case 'Q': o->srq = true; break;
	case 'o': o->plan.ops = op_mask(value); break;
	case 'n': o->messages = number(value, 1, UINT64_MAX, "--messages"); break;
	case 't': o->seconds = (double)number(value, 1, 1000000, "--seconds"); o->messages = UINT64_MAX; break;
	case 'q': o->plan.depth = (uint32_t)number(value, 1, MAX_DEPTH, "--depth"); break;
	case 's': o->plan.fixed_size = (uint32_t)number(value, 0, MAX_MESSAGE, "--size"); break;
	case 'm': o->plan.max_size = (uint32_t)number(value, 0, MAX_MESSAGE, "--max-size"); break;
	case 'G': o->plan.max_sge = (uint32_t)number(value, 1, MAX_SGE, "--max-sge"); break;
	case 'u': o->plan.signal_every = (uint32_t)number(value, 1, MAX_DEPTH, "--signal-every"); break;
	case 'S': o->plan.seed = number(value, 0, UINT64_MAX, "--seed"); break;
	case 'c': o->plan.corrupt_at = number(value, 0, UINT64_MAX - 1, "--corrupt-at"); break;
	case 'E': o->plan.errors = 1; break;
	case 'C': o->plan.counter = 1; break;
	case 'x': o->skip = value; break;
	case 'L': o->self = true; break;
	case 'h': fputs(usage_text, stdout); exit(EXIT_PASS);
	default: fputs(usage_text, stderr); exit(EXIT_SETUP);
	}
}

static struct options parse(int argc, char **argv)
{
	struct options o = {
		.skip = "",
		.ib_port = 1,
		.gid_index = -1,
		.port = 18515,
		.messages = 400,
		.plan = {.seed = 1,
			 .corrupt_at = UINT64_MAX,
			 .ops = 1u << OP_SEND | 1u << OP_SEND_IMM | 1u << OP_WRITE | 1u << OP_WRITE_IMM | 1u << OP_READ,
			 .depth = 16,
			 .fixed_size = UINT32_MAX,
			 .max_size = MAX_MESSAGE,
			 .max_sge = 3,
			 .signal_every = 1},
	};
	int c;
	while ((c = getopt_long(argc, argv, "d:i:g:p:eQo:n:t:q:s:m:G:S:u:c:CEx:h", long_options, NULL)) != -1)
		set_option(&o, c, optarg);
	if (argc - optind > 1 || (o.self && optind < argc)) {
		fputs(usage_text, stderr);
		exit(EXIT_SETUP);
	}
	o.host = optind < argc ? argv[optind] : NULL;
	return o;
}

static struct end make_end(const struct options *o, const char *role, struct ibv_context *ctx)
{
	struct end e = {.role = role, .events = o->events, .use_srq = o->srq, .plan = o->plan};
	end_open(&e, ctx, o->ib_port, o->gid_index);
	printf("pvcheck: %s: %s port %d GID %d %s\n", role, ibv_get_device_name(ctx->device), e.port, e.gid_index,
	       gid_text(&e.gid));
	fflush(stdout);
	return e;
}

static void serve(struct end *e)
{
	struct totals t = {0};
	unsigned checks = 0;
	peer_receive(e, &e->plan, sizeof e->plan);
	end_create(e);
	if (e->plan.errors) {
		checks = errors_run(e, false, "");
	} else {
		end_connect(e, NULL);
		(e->plan.counter ? counter_server : traffic_server)(e, &t);
	}
	end_destroy(e);
	if (checks)
		printf("pvcheck: server: PASS checks=%u\n", checks);
	else
		printf("pvcheck: server: PASS messages=%lu bytes_compared=%lu\n", t.messages, t.bytes);
	fflush(stdout);
	barrier(e); // the client has the last word
}

static void print_pass(const struct options *o, const struct totals *t)
{
	char ops[128] = "";
	for (int op = 0; op < OP_COUNT; op++)
		if (o->plan.ops >> op & 1)
			strcat(strcat(ops, *ops ? "," : ""), op_names[op]);
	printf("pvcheck: PASS ops=%s messages=%lu bytes_compared=%lu p50_us=%.1f\n", ops, t->messages, t->bytes, t->p50_us);
}

static void request(struct end *e, const struct options *o)
{
	struct totals t = {0};
	unsigned checks = 0;
	peer_send(e, &e->plan, sizeof e->plan);
	end_create(e);
	if (e->plan.errors) {
		checks = errors_run(e, true, o->skip);
	} else if (e->plan.counter) {
		end_connect(e, NULL);
		counter_client(e, o->messages, &t);
	} else {
		end_connect(e, NULL);
		traffic_client(e, o->messages, o->seconds, &t);
	}
	end_destroy(e);
	barrier(e);
	if (o->plan.errors)
		printf("pvcheck: PASS checks=%u\n", checks);
	else if (o->plan.counter)
		printf("pvcheck: PASS counter messages=%lu\n", t.messages);
	else if (o->plan.corrupt_at < t.messages)
		die(EXIT_DIFFERENT, "client: the planted wrong byte was not noticed");
	else
		print_pass(o, &t);
}

static void *serve_thread(void *e)
{
	serve(e);
	return NULL;
}

static void run_self(const struct options *o, struct ibv_context *ctx)
{
	struct end server = make_end(o, "server", ctx), client = make_end(o, "client", ctx);
	pthread_t thread;
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		die(EXIT_SETUP, "socketpair failed");
	server.peer = pair[0];
	client.peer = pair[1];
	if (pthread_create(&thread, NULL, serve_thread, &server))
		die(EXIT_SETUP, "cannot start a thread");
	request(&client, o);
	pthread_join(thread, NULL);
}

static void on_signal(int number)
{
	(void)number;
	stop_requested = 1;
}

int main(int argc, char **argv)
{
	struct options o = parse(argc, argv);
	struct sigaction stop = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	struct ibv_context *ctx = device_open(o.device);

	if (o.self) {
		sigaction(SIGINT, &stop, NULL);
		sigaction(SIGTERM, &stop, NULL);
		run_self(&o, ctx);
	} else if (o.host) {
		struct end client = make_end(&o, "client", ctx);
		client.peer = peer_dial(o.host, o.port);
		sigaction(SIGINT, &stop, NULL);
		sigaction(SIGTERM, &stop, NULL);
		request(&client, &o);
	} else {
		struct end server = make_end(&o, "server", ctx);
		server.peer = peer_listen(o.port);
		serve(&server);
	}
	if (ibv_close_device(ctx))
		die(EXIT_DIFFERENT, "ibv_close_device failed");
	return EXIT_PASS;
}
