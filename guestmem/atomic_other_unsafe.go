// SPDX-License-Identifier: Apache-2.0

//go:build !amd64 || race

package guestmem

import (
	"sync/atomic"
	"unsafe"
)

// compareExchange64 writes val to an aligned word if it holds old, and returns what it held. The race detector knows atomics
// alone.
func compareExchange64(p unsafe.Pointer, old, val uint64) (was uint64) {
	// SAFETY: the caller has checked bounds and alignment.
	w := (*uint64)(p)
	// Each further round means that the word became something else before the swap and old again before the look.
	for {
		if atomic.CompareAndSwapUint64(w, old, val) {
			return old
		}
		if was := atomic.LoadUint64(w); was != old {
			return was
		}
	}
}
