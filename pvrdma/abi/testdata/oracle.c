/* SPDX-License-Identifier: Apache-2.0 */
/* Prints what the headers' function-like macros compute, for comparison with Go. */
#include <stdio.h>

#include "abi.c"

struct dev {
	u32 dsr_version;
	struct pvrdma_device_shared_region *dsr;
};

static void supported(u32 version, u8 mode, u8 gid_types)
{
	struct pvrdma_device_shared_region dsr = { 0 };
	struct dev d = { version, &dsr };
	struct dev *dev = &d;

	dsr.caps.mode = mode;
	dsr.caps.gid_types = gid_types;
	printf("supported %u %u %u = %d\n", version, mode, gid_types, PVRDMA_SUPPORTED(dev));
}

static void page_dir(unsigned long i)
{
	printf("page %lu = %lu %lu %lu\n", i, (unsigned long)PVRDMA_PAGE_DIR_DIR(i),
	       (unsigned long)PVRDMA_PAGE_DIR_TABLE(i), (unsigned long)PVRDMA_PAGE_DIR_PAGE(i));
}

int main(void)
{
	unsigned v, m, g;
	unsigned long i;

	for (v = 0; v < 40; v++)
		for (m = 0; m < 5; m++)
			for (g = 0; g < 256; g++)
				supported(v, m, g);
	for (i = 0; i < PVRDMA_PAGE_DIR_MAX_PAGES; i += i < 2048 ? 1 : 509)
		page_dir(i);
	page_dir(PVRDMA_PAGE_DIR_MAX_PAGES - 1);
	return 0;
}
