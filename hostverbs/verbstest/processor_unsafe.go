// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"sync/atomic"
	"unsafe"
)

// addAsProcessor adds to an aligned word of a guest's memory as one of its processors does, and returns the sum.
func addAsProcessor(ram []byte, off, v uint64) (sum uint64) {
	// SAFETY: the slice holds the word; the memory of the tests' guests begins at a page.
	return atomic.AddUint64((*uint64)(unsafe.Pointer(unsafe.SliceData(ram[off:off+8]))), v)
}
