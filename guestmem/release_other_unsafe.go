// SPDX-License-Identifier: Apache-2.0

//go:build !amd64 || race

package guestmem

import (
	"sync/atomic"
	"unsafe"
)

// storeRelease32 writes an aligned word: what was stored before is seen before it. The race detector knows atomics alone.
func storeRelease32(p unsafe.Pointer, v uint32) {
	// SAFETY: the caller has checked bounds and alignment.
	atomic.StoreUint32((*uint32)(p), v)
}
