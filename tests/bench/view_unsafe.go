// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapRuns maps the runs of a memory file side by side.
func mapRuns(f memoryFile) ([]byte, error) {
	fd, err := unix.Open(f.Path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", f.Path, err)
	}
	defer unix.Close(fd)
	total := 0
	for _, r := range f.Runs {
		total += r.Len
	}
	b, err := unix.Mmap(-1, 0, total, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("reserve %#x bytes: %w", total, err)
	}
	at := 0
	for _, r := range f.Runs {
		// SAFETY: the range lies in b, which is ours and which nobody looks at yet.
		_, err := unix.MmapPtr(fd, int64(r.Offset), unsafe.Pointer(&b[at]), uintptr(r.Len), unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_SHARED|unix.MAP_FIXED)
		if err != nil {
			_ = unix.Munmap(b)
			return nil, fmt.Errorf("map %#x bytes of %s: %w", r.Len, f.Path, err)
		}
		at += r.Len
	}
	return b, nil
}
