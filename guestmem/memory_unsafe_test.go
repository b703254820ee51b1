// SPDX-License-Identifier: Apache-2.0

package guestmem_test

import "unsafe"

// processorsView returns an aligned word as a guest's processor sees it: in another mapping of the same file, if ram is one.
func processorsView(ram []byte, off int) *uint64 {
	// SAFETY: the index checks that the word begins in ram; ram is whole pages, and off is a multiple of 8.
	return (*uint64)(unsafe.Pointer(&ram[off]))
}
