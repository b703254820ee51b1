// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Causes that callers tell apart. All wrap EFAULT, except ErrClosed and ErrMapCount.
var (
	// ErrRevoked: the page list lies in a region that was unmapped after it was pinned.
	ErrRevoked = fmt.Errorf("page list was revoked: %w", unix.EFAULT)
	// ErrDisabled: the guest has switched DMA off (bus mastering in the PCI command register).
	ErrDisabled = fmt.Errorf("dma is disabled: %w", unix.EFAULT)
	// ErrClosed: the Space was closed. It wraps ENODEV.
	ErrClosed = fmt.Errorf("address space is closed: %w", unix.ENODEV)
	// ErrMapCount: the guest, or all together, have as many of this process's memory mappings as they may. It wraps
	// ENOMEM.
	ErrMapCount = fmt.Errorf("limit of mappings, which follows from the sysctl vm.max_map_count: %w", unix.ENOMEM)
)

// ErrScattered says that a page list has no window because none is possible or it would not pay.
var ErrScattered = errors.New("page list has no window")

// Details of refusals; each wraps the errno the API promises.
var (
	errHole      = fmt.Errorf("no memory there: %w", unix.EFAULT)
	errNoFile    = fmt.Errorf("region has no file descriptor, start the VM with shared memory (share=on): %w", unix.EFAULT)
	errProt      = fmt.Errorf("region does not allow it: %w", unix.EFAULT)
	errReadOnly  = fmt.Errorf("page list was pinned without write access: %w", unix.EFAULT)
	errUnaligned = fmt.Errorf("not aligned to a page: %w", unix.EFAULT)
	errOverflow  = fmt.Errorf("range wraps around: %w", unix.EINVAL)
	errBounds    = fmt.Errorf("beyond the end: %w", unix.EFAULT)
	errWord      = fmt.Errorf("word is not aligned to its size: %w", unix.EINVAL)
	errNilMemory = fmt.Errorf("no memory given: %w", unix.EINVAL)
)

// errCannotWrite: the file descriptor does not allow a writable mapping.
var errCannotWrite = errors.New("file is not open for writing or is sealed against it")

// FaultError says that guest memory disappeared while it was accessed: its file was truncated, or the host has no
// page for it. It names the guest that owns the memory, which is the one to reset.
type FaultError struct {
	// Space is the address space that the memory belongs to.
	Space *Space
	// Owner is that Space's name.
	Owner string
	// Region says in words which region and file failed.
	Region string
	// Addr is the guest address of the fault, 0 if the region has been unmapped meanwhile.
	Addr uint64
	// Offset is the offset in the region's file, in bytes.
	Offset uint64

	host uintptr // the faulting address
}

// Error names the guest, the guest address and the region.
func (e *FaultError) Error() string {
	return fmt.Sprintf("guest %q: memory fault at guest address %#x (%s, file offset %#x): the file was truncated or the host is out of memory: %v",
		e.Owner, e.Addr, e.Region, e.Offset, unix.EFAULT)
}

// Unwrap returns EFAULT.
func (e *FaultError) Unwrap() error { return unix.EFAULT }

// CopyError says which side of a Copy failed. It wraps the cause, for example a *FaultError.
type CopyError struct {
	// Dst is true if the destination failed, false if the source did.
	Dst bool
	// Err is the cause.
	Err error
}

// Error names the side and the cause.
func (e *CopyError) Error() string {
	if e.Dst {
		return "copy destination: " + e.Err.Error()
	}
	return "copy source: " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *CopyError) Unwrap() error { return e.Err }
