// SPDX-License-Identifier: Apache-2.0
// The ways to end a run.
#include "pvcheck.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

volatile int stop_requested;

double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static _Noreturn void finish(enum exit_code code, const char *text)
{
	printf("pvcheck: %s %s\n", code == EXIT_LOST ? "LOST" : "FAIL", text);
	fflush(stdout);
	// The other thread of a --self run may be inside the library: no destructors.
	_Exit(code);
}

_Noreturn void die(enum exit_code code, const char *format, ...)
{
	char text[512];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	finish(code, text);
}

_Noreturn void die_at(struct end *e, enum exit_code code, const char *format, ...)
{
	char text[512];
	size_t used = (size_t)snprintf(text, sizeof text, "%s: ", e->role);
	va_list args;
	va_start(args, format);
	vsnprintf(text + used, sizeof text - used, format, args);
	va_end(args);
	tell_peer(e, code, text);
	finish(code, text);
}
