// SPDX-License-Identifier: Apache-2.0
// limits asks an RDMA device for what docs/limits.md says that it does not have, and prints what the answer is: a line
// for each question, its name and the answer. `limits NAME...` asks these questions alone.
//
// It judges nothing: the test that runs it compares the answers with the page.
#include "limits.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct question {
	const char *name;
	void (*ask)(struct device *d);
} questions[] = {
	{"inline", ask_inline},
	{"inline-send", ask_inline_send},
	{"uc", ask_uc},
	{"raw-packet", ask_raw_packet},
	{"qp-extended", ask_qp_extended},
	{"mw", ask_mw},
	{"multicast", ask_multicast},
	{"cq-resize", ask_cq_resize},
	{"cq-moderation", ask_cq_moderation},
	{"cq-extended", ask_cq_extended},
	{"cq-vector", ask_cq_vector},
	{"cq-too-long", ask_cq_too_long},
	{"qp-too-long", ask_qp_too_long},
	{"mr-over-1gib", ask_mr_too_long},
	{"mr-on-demand", ask_mr_on_demand},
	{"mr-dmabuf", ask_mr_dmabuf},
	{"mr-iova", ask_mr_iova},
	{"ah-without-grh", ask_ah_without_grh},
	{"ah-global-ipv6", ask_ah_global_ipv6},
	{"modify-by-kernel", ask_modify_by_kernel},
	{"modify-by-device", ask_modify_by_device},
	{"memlock-mr", ask_memlock_mr},
	{"memlock-cq", ask_memlock_cq},
};

static const char *asked;

void answer(const char *format, ...)
{
	va_list args;
	printf("%s ", asked);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

void answer_errno(int error)
{
	static const struct {
		int number;
		const char *name;
	} names[] = {
		{EINVAL, "EINVAL"}, {EFAULT, "EFAULT"},	    {ENOMEM, "ENOMEM"}, {EOPNOTSUPP, "EOPNOTSUPP"},
		{ENOSYS, "ENOSYS"}, {ETIMEDOUT, "ETIMEDOUT"}, {EPERM, "EPERM"},	  {EACCES, "EACCES"},
	};
	if (!error) {
		answer("success");
		return;
	}
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
		if (names[i].number == error) {
			answer("%s", names[i].name);
			return;
		}
	answer("errno %d", error);
}

void answer_pointer(const void *got) { answer_errno(got ? 0 : errno); }

void cannot(const char *what)
{
	fprintf(stderr, "limits: %s: %s: %s\n", asked ? asked : "set up", what, strerror(errno));
	exit(2);
}

static int wanted(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], name))
			return 1;
	return argc == 1;
}

int main(int argc, char **argv)
{
	int found = 0;
	struct device d = device_open();
	for (unsigned i = 0; i < sizeof questions / sizeof *questions; i++) {
		if (!wanted(questions[i].name, argc, argv))
			continue;
		found++;
		asked = questions[i].name;
		questions[i].ask(&d);
	}
	if (found < argc - 1 || !found) {
		fprintf(stderr, "limits: there is no such question\n");
		return 2;
	}
	device_close(&d);
	return 0;
}
