// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Fault is what was wrong with a message: a closed list, fit for a metric's label.
type Fault uint8

// What can be wrong with a message. The package documentation has a table of what the client is told, and
// which of them end the session.
const (
	// FaultDevice: the message was well-formed; the Device refused it.
	FaultDevice Fault = iota
	// FaultSize: the header names a size below the header's own.
	FaultSize
	// FaultTooLong: the header names a size above MaxFrame.
	FaultTooLong
	// FaultType: neither a command nor a reply.
	FaultType
	// FaultReply: a reply, but the server had asked nothing.
	FaultReply
	// FaultHandshake: the first message is not a VERSION.
	FaultHandshake
	// FaultVersion: a VERSION that cannot be accepted.
	FaultVersion
	// FaultRepeatedVersion: another VERSION.
	FaultRepeatedVersion
	// FaultFlags: header flags that a command must not have.
	FaultFlags
	// FaultCommand: a command that does not exist.
	FaultCommand
	// FaultAbsent: a command, or a part of one, that the package does not have.
	FaultAbsent
	// FaultDirection: a command that only servers send.
	FaultDirection
	// FaultBody: the payload is not as long as the command asks.
	FaultBody
	// FaultArgs: a field of the payload is out of its range.
	FaultArgs
	// FaultFDs: too many or too few file descriptors for the command, of a wrong kind, in a wrong place, or lost on the way.
	FaultFDs
	// FaultTooManyFDs: more file descriptors than MaxMessageFDs, which the client was told in the VERSION.
	FaultTooManyFDs
	// FaultMapping: the memory mapping exists already, or does not exist.
	FaultMapping
	// FaultLimit: MaxTransfer or MaxDMAMaps is exceeded.
	FaultLimit
	numFaults
)

// String returns a word for logs and metric labels.
func (f Fault) String() string {
	names := [numFaults]string{
		"device", "size", "too_long", "type", "reply", "handshake", "version", "repeated_version", "flags", "command",
		"absent", "direction", "body", "args", "fds", "too_many_fds", "mapping", "limit",
	}
	if f >= numFaults {
		return fmt.Sprintf("fault_%d", uint8(f))
	}
	return names[f]
}

// Ends says whether a fault ends the session whenever it happens. The first four lose the message boundaries, or
// show that they are lost, so the client is not answered either; after a failed handshake nothing is agreed on; and of
// more file descriptors than were agreed on, the kernel has thrown some away, so nobody knows any more which are which.
// (Before the VERSION was accepted, every fault ends the session.)
func (f Fault) Ends() bool {
	switch f {
	case FaultSize, FaultTooLong, FaultType, FaultReply, FaultHandshake, FaultVersion, FaultTooManyFDs:
		return true
	default:
		return false
	}
}

// violation is a message that breaks a rule.
type violation struct {
	fault Fault
	errno unix.Errno
	text  string
}

func (v *violation) Error() string { return v.text + ": " + v.errno.Error() }

// Unwrap returns the errno that the client is told.
func (v *violation) Unwrap() error { return v.errno }

// refuse makes a violation.
func refuse(f Fault, errno unix.Errno, format string, args ...any) error {
	return &violation{fault: f, errno: errno, text: fmt.Sprintf(format, args...)}
}

// faultOf returns the fault that an error stands for: FaultDevice for everything that is not a violation.
func faultOf(err error) Fault {
	if v, ok := errors.AsType[*violation](err); ok {
		return v.fault
	}
	return FaultDevice
}

// errnoOf returns the errno that an error wraps, EIO if there is none.
func errnoOf(err error) unix.Errno {
	if errno, ok := errors.AsType[unix.Errno](err); ok && errno != 0 {
		return errno
	}
	return unix.EIO
}
