// SPDX-License-Identifier: Apache-2.0

//go:build !amd64

package guestmem

import "unsafe"

// canStream says whether stream has an instruction for what it does.
const canStream = false

// stream is move where there is no better way.
func stream(dst, src hostPtr, n uint64) { move(dst, src, n) }

// streamFence has nothing to order.
func streamFence() {}

// prefetchRead is a hint.
func prefetchRead(unsafe.Pointer, uintptr) {}
