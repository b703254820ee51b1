// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"sync/atomic"
	"unsafe"
)

// addAsProcessor adds to an aligned word of a guest's memory as one of its processors does.
func addAsProcessor(ram []byte, off, v uint64) {
	// SAFETY: the slice holds the word; the memory of the tests' guests begins at a page.
	atomic.AddUint64((*uint64)(unsafe.Pointer(unsafe.SliceData(ram[off:off+8]))), v)
}
