// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Operations of futex(2) on memory that only this process uses (include/uapi/linux/futex.h).
const (
	futexWaitPrivate = 0 | 128
	futexWakePrivate = 1 | 128
)

// futexWait sleeps while *word is val, for ns nanoseconds at most. It may return early; the caller looks again.
func futexWait(word *atomic.Uint32, val uint32, ns int64) {
	ts := unix.NsecToTimespec(ns)
	// SAFETY: word and ts are live for the whole call, the kernel keeps neither. Syscall6 and not RawSyscall6, so that
	// the scheduler can give this thread's processor to others while it sleeps.
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWaitPrivate, uintptr(val),
		uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// futexWake wakes the thread that waits on word.
func futexWake(word *atomic.Uint32) {
	// SAFETY: as above; the kernel only uses the address.
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWakePrivate, 1, 0, 0, 0)
}
