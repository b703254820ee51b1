// SPDX-License-Identifier: Apache-2.0

//go:build amd64

package guestmem

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// canStream says whether stream has an instruction for what it does.
var canStream = cpu.X86.HasAVX

// streamBlocks copies n bytes forward, past the caches. n is a multiple of 128 and not 0, dst a multiple of 32. What it has
// stored is ordered before later stores by streamFence only.
//
//go:noescape
func streamBlocks(dst, src unsafe.Pointer, n uintptr)

// streamFence orders the stores of streamBlocks before all that follow.
func streamFence()

// prefetchRead asks for the lines of n bytes, n not 0.
//
//go:noescape
func prefetchRead(p unsafe.Pointer, n uintptr)

const (
	// streamAlign is how dst must be aligned, streamBlock the unit of n.
	streamAlign = 32
	streamBlock = 128
)

// stream is move for bytes that this processor does not look at again: they go to memory instead of pushing other
// things out of the caches, and the target is not read before it is written. streamFence follows the last of several.
func stream(dst, src hostPtr, n uint64) {
	if n < 2*streamBlock || dst.addr()-src.addr() < uintptr(n) || src.addr()-dst.addr() < uintptr(n) {
		move(dst, src, n) // short, or overlapping
		return
	}
	if head := uint64(-dst.addr() % streamAlign); head != 0 {
		move(dst, src, head)
		dst, src, n = dst.add(head), src.add(head), n-head
	}
	blocks := n &^ (streamBlock - 1)
	// SAFETY: the caller has checked that n bytes lie at both addresses; there is one block at least.
	streamBlocks(dst.p, src.p, uintptr(blocks))
	if tail := n - blocks; tail != 0 {
		move(dst.add(blocks), src.add(blocks), tail)
	}
}
