// SPDX-License-Identifier: Apache-2.0
// The exchange beside the RDMA connection. Each side sends records, each with its length and kind in front; a failure
// of one side is a record too, which ends the other side with the same text.
#include "pvcheck.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum kind { KIND_DATA = 1, KIND_FAILURE = 2 };

struct head {
	uint32_t kind, size, code;
};

#define MAX_RECORD 4096
#define DIAL_SECONDS 60

// A peer whose machine vanished sends no FIN: ask whether it is there, and believe silence after some 10 s.
static void tune(int fd)
{
	int on = 1, idle = 4, interval = 2, count = 3, unacked_ms = 10000;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacked_ms, sizeof unacked_ms);
}

static int tcp_socket(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int on = 1;
	if (fd < 0)
		die(EXIT_SETUP, "socket: %s", strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	return fd;
}

int peer_listen(int port)
{
	struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int fd = tcp_socket();
	if (bind(fd, (void *)&addr, sizeof addr) || listen(fd, 1))
		die(EXIT_SETUP, "listen on port %d: %s", port, strerror(errno));
	printf("pvcheck: listening on port %d\n", port);
	fflush(stdout);
	int conn = accept(fd, NULL, NULL);
	if (conn < 0)
		die(EXIT_SETUP, "accept: %s", strerror(errno));
	close(fd);
	tune(conn);
	return conn;
}

int peer_dial(const char *host, int port)
{
	struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	double give_up = seconds() + DIAL_SECONDS;
	if (inet_pton(AF_INET, host, &addr.sin_addr) != 1)
		die(EXIT_SETUP, "%s is not an IPv4 address", host);
	for (;;) {
		int fd = tcp_socket();
		if (!connect(fd, (void *)&addr, sizeof addr)) {
			tune(fd);
			return fd;
		}
		if (errno != ECONNREFUSED || seconds() > give_up)
			die(EXIT_SETUP, "connect to %s port %d: %s", host, port, strerror(errno));
		close(fd);
		usleep(50 * 1000); // the server may still be starting
	}
}

static bool put_all(int fd, const void *data, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t n = send(fd, (const char *)data + done, size - done, MSG_NOSIGNAL);
		if (n <= 0)
			return false;
		done += (size_t)n;
	}
	return true;
}

static bool take_all(int fd, void *data, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t n = read(fd, (char *)data + done, size - done);
		if (n <= 0 && !(n < 0 && errno == EINTR))
			return false;
		done += n > 0 ? (size_t)n : 0;
	}
	return true;
}

static bool put_record(int fd, struct head head, const void *data)
{
	char record[sizeof head + MAX_RECORD];
	memcpy(record, &head, sizeof head);
	memcpy(record + sizeof head, data, head.size);
	return put_all(fd, record, sizeof head + head.size);
}

void peer_send(struct end *e, const void *data, size_t size)
{
	if (!put_record(e->peer, (struct head){.kind = KIND_DATA, .size = (uint32_t)size}, data))
		die(EXIT_LOST, "%s: peer is gone: %s", e->role, strerror(errno));
}

void peer_receive(struct end *e, void *data, size_t size)
{
	char text[MAX_RECORD];
	struct head head;
	if (!take_all(e->peer, &head, sizeof head) || head.size > sizeof text || !take_all(e->peer, text, head.size))
		die(EXIT_LOST, "%s: peer is gone", e->role);
	if (head.kind == KIND_FAILURE)
		die((enum exit_code)head.code, "%.*s", (int)head.size, text);
	if (head.size != size)
		die(EXIT_SETUP, "%s: peer is another version of pvcheck", e->role);
	memcpy(data, text, size);
}

void peer_look(struct end *e)
{
	struct head head;
	ssize_t n = recv(e->peer, &head, sizeof head, MSG_PEEK | MSG_DONTWAIT);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		die(EXIT_LOST, "%s: peer is gone", e->role);
	if (n == sizeof head && head.kind == KIND_FAILURE)
		peer_receive(e, NULL, 0);
}

void barrier(struct end *e)
{
	char here = 'b', there;
	peer_send(e, &here, 1);
	peer_receive(e, &there, 1);
}

void tell_peer(struct end *e, int code, const char *text)
{
	struct head head = {.kind = KIND_FAILURE, .size = (uint32_t)strlen(text), .code = (uint32_t)code};
	if (e->peer > 0)
		put_record(e->peer, head, text);
}
