// SPDX-License-Identifier: Apache-2.0

package guestmem

import "unsafe"

// PrefetchObject asks for the lines of the first n bytes of one of the daemon's own objects, n not 0, to be read soon: there
// are thousands of some, more than the caches hold.
func PrefetchObject[T any](p *T, n uintptr) {
	// SAFETY: a prefetch reads nothing and does not fault, wherever it points.
	prefetchRead(unsafe.Pointer(p), n)
}
