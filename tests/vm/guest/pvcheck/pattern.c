// SPDX-License-Identifier: Apache-2.0
// The bytes of messages.
#include "pvcheck.h"

#include <string.h>

// mix is a bijection that spreads each bit over all (the finalizer of Steele, Lea and Flood's SplitMix).
uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static uint64_t pattern_word(uint64_t base, size_t word) { return mix(base + word); }

static uint64_t pattern_base(uint64_t seed, uint64_t iteration) { return mix(seed ^ mix(iteration)); }

uint8_t pattern_byte(uint64_t seed, uint64_t iteration, size_t offset)
{
	return (uint8_t)(pattern_word(pattern_base(seed, iteration), offset / 8) >> (8 * (offset % 8)));
}

// word_at returns the bytes of the message from offset on, and sets n to how many of them count.
static uint64_t word_at(uint64_t base, size_t offset, size_t left, size_t *n)
{
	size_t skip = offset % 8;
	*n = 8 - skip < left ? 8 - skip : left;
	return pattern_word(base, offset / 8) >> (8 * skip);
}

void pattern_fill(uint8_t *to, size_t size, uint64_t seed, uint64_t iteration, size_t start)
{
	uint64_t base = pattern_base(seed, iteration);
	for (size_t done = 0, n; done < size; done += n) {
		uint64_t word = word_at(base, start + done, size - done, &n);
		memcpy(to + done, &word, n);
	}
}

size_t pattern_check(const uint8_t *at, size_t size, uint64_t seed, uint64_t iteration, size_t start)
{
	uint64_t base = pattern_base(seed, iteration);
	for (size_t done = 0, n; done < size; done += n) {
		uint64_t word = word_at(base, start + done, size - done, &n);
		if (!memcmp(at + done, &word, n))
			continue;
		for (; at[done] == (uint8_t)word; word >>= 8)
			done++;
		return done;
	}
	return size;
}
