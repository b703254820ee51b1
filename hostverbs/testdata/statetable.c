// SPDX-License-Identifier: Apache-2.0
//
// Asks the kernel's ib_modify_qp_is_ok about every attribute mask. What is the kernel's own is cut from its source when
// the test runs: words.h and table.h.
//
//   statetable words               prints every enumerator with its value
//   statetable TYPE CUR NEXT ...   writes for each type, current state and next state (enumerators) the verdicts as a bitmap:
//                                  bit n of byte m is that of mask number 8 m + n. The numbers below 2^21 are the masks
//                                  themselves, those from 2^21 on have RATE_LIMIT besides.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/ib_user_ioctl_verbs.h>

#define GENMASK(high, low) (((1u << ((high) - (low) + 1)) - 1) << (low))
#define EXPORT_SYMBOL(symbol)

#include "words.h"
#include "table.h"

#define STANDARD_MASKS (1u << 21)

struct word {
	const char *name;
	unsigned int value;
};

#define WORD(enumerator) { #enumerator, enumerator },
static const struct word words[] = { WORDS };

static uint8_t verdicts[2 * STANDARD_MASKS / 8];

static unsigned int value_of(const char *name)
{
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcmp(words[i].name, name) == 0)
			return words[i].value;
	fprintf(stderr, "the kernel has no %s\n", name);
	exit(EXIT_FAILURE);
}

static void write_cell(enum ib_qp_type type, enum ib_qp_state cur, enum ib_qp_state next)
{
	memset(verdicts, 0, sizeof(verdicts));
	for (uint32_t n = 0; n < 2 * STANDARD_MASKS; n++) {
		uint32_t mask = n < STANDARD_MASKS ? n : (n - STANDARD_MASKS) | IB_QP_RATE_LIMIT;

		verdicts[n / 8] |= (uint8_t)(ib_modify_qp_is_ok(cur, next, type, mask) << n % 8);
	}
	if (fwrite(verdicts, sizeof(verdicts), 1, stdout) != 1) {
		perror("write");
		exit(EXIT_FAILURE);
	}
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "words") == 0) {
		for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
			printf("%s %u\n", words[i].name, words[i].value);
		return EXIT_SUCCESS;
	}
	for (int i = 1; i + 2 < argc; i += 3)
		write_cell(value_of(argv[i]), value_of(argv[i + 1]), value_of(argv[i + 2]));
	return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
