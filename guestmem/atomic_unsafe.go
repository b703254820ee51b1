// SPDX-License-Identifier: Apache-2.0

//go:build amd64 && !race

package guestmem

import "unsafe"

// compareExchange64 writes val to an aligned word if it holds old, and returns what it held, in one step. sync/atomic says
// only whether it wrote: to look afterwards would be a second step.
//
//go:noescape
func compareExchange64(p unsafe.Pointer, old, val uint64) (was uint64)
