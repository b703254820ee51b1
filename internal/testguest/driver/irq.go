// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/pvrdmad/pvrdmad/internal/testguest/vfio"
	"golang.org/x/sys/unix"
)

// numVectors is how many MSI-X vectors the driver asks for: PVRDMA_MAX_INTERRUPTS.
const numVectors = 3

// interrupts are the eventfds of the vectors; the last ends whoever waits for the others.
type interrupts struct {
	fds []int
}

func (q *interrupts) open(f *vfio.Function) error {
	if f.Vectors() < numVectors {
		return fmt.Errorf("%d interrupt vectors, want %d: %w", f.Vectors(), numVectors, unix.ENODEV)
	}
	for range numVectors + 1 {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			return fmt.Errorf("create an eventfd: %w", err)
		}
		q.fds = append(q.fds, fd)
	}
	return f.EnableMSIX(q.fds[:numVectors])
}

func (q *interrupts) stopFD() int { return q.fds[numVectors] }

// forget drops interrupts that have come.
func (q *interrupts) forget(vector int) uint64 {
	var b [8]byte
	if n, err := unix.Read(q.fds[vector], b[:]); err != nil || n != len(b) {
		return 0 // EAGAIN: none has come
	}
	return binary.NativeEndian.Uint64(b[:])
}

// wait waits for an interrupt and takes it; false if none comes in time.
func (q *interrupts) wait(vector int, timeout time.Duration) bool {
	deadline := time.Now().Add(timeout)
	for {
		if q.forget(vector) > 0 {
			return true
		}
		left := time.Until(deadline)
		if left <= 0 {
			return false
		}
		p := []unix.PollFd{{Fd: int32(q.fds[vector]), Events: unix.POLLIN}}
		_, _ = unix.Poll(p, int(left.Milliseconds())+1) // EINTR and time-out are seen above
	}
}

// raise writes an eventfd of ours.
func (q *interrupts) raise(i int) error {
	_, err := unix.Write(q.fds[i], binary.NativeEndian.AppendUint64(nil, 1))
	return err
}

func (q *interrupts) close() error {
	var err error
	for _, fd := range q.fds {
		err = errors.Join(err, unix.Close(fd))
	}
	q.fds = nil
	return err
}
