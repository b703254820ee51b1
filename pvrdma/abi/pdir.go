// SPDX-License-Identifier: Apache-2.0

package abi

// Page directories (pvrdma_dev_api.h, pvrdma_misc.c): a directory page holds the guest
// addresses of table pages, a table page those of data pages, each a little-endian 64-bit
// number; unused entries are 0.
const (
	PageSize        = 4096 // bytes, whatever the guest's own page size
	PDirEntries     = 512  // entries in a directory or table page
	PDirEntSize     = 8    // bytes
	PDirShift       = 18   // reserved for a second directory page; never used
	PTableShift     = 9
	MaxPages        = PDirEntries * PDirEntries // data pages: PVRDMA_PAGE_DIR_MAX_PAGES
	MaxFastRegPages = 128                       // pages of one fast registration
)

// PDirTable returns the directory entry that leads to data page i
// (PVRDMA_PAGE_DIR_TABLE).
func PDirTable(i uint32) uint32 { return i >> PTableShift & (PDirEntries - 1) }

// PDirPage returns the table entry of data page i (PVRDMA_PAGE_DIR_PAGE).
func PDirPage(i uint32) uint32 { return i & (PDirEntries - 1) }

// PDirTables returns the number of table pages for n data pages, 1 to MaxPages.
func PDirTables(n uint32) uint32 { return PDirTable(n-1) + 1 }
