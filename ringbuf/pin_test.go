// SPDX-License-Identifier: Apache-2.0

package ringbuf_test

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// pin keeps the calling goroutine's thread on the nth processor that the process may use. What it returns undoes it.
func pin(nth int) (undo func()) {
	runtime.LockOSThread()
	var allowed, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		panic(fmt.Errorf("processors of this thread: %w", err))
	}
	for cpu, seen := 0, 0; seen <= nth; cpu++ {
		if cpu >= len(allowed)*64 {
			panic(fmt.Sprintf("this thread may not use %d processors", nth+1))
		}
		if allowed.IsSet(cpu) {
			if seen == nth {
				one.Set(cpu)
			}
			seen++
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		panic(fmt.Errorf("pin to processor: %w", err))
	}
	return func() {
		if err := unix.SchedSetaffinity(0, &allowed); err != nil {
			panic(fmt.Errorf("unpin: %w", err))
		}
		runtime.UnlockOSThread()
	}
}
