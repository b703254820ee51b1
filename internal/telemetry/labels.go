// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"errors"

	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// Results of commands other than an errno.
const (
	resultOK = "ok"
	// resultOther is an error that wraps no errno of the closed list.
	resultOther = "other"
	// commandUnknown is a command code that does not exist.
	commandUnknown = "UNKNOWN"
)

// result is the label of an error: "ok", the name of an errno that a command is known to fail with, or "other". The
// list is closed, so that the number of series is.
func result(err error) string {
	if err == nil {
		return resultOK
	}
	errno, ok := errors.AsType[unix.Errno](err)
	if !ok {
		return resultOther
	}
	switch errno {
	case unix.EACCES, unix.EADDRINUSE, unix.EAGAIN, unix.EBUSY, unix.EEXIST, unix.EFAULT, unix.EINVAL, unix.EIO, unix.ENODEV,
		unix.ENOENT, unix.ENOMEM, unix.ENOSPC, unix.EOPNOTSUPP, unix.EPERM, unix.ERANGE, unix.ETIMEDOUT:
		return unix.ErrnoName(errno)
	default:
		return resultOther
	}
}

// command is the label of a command: the header's name, or one label for all codes that are no command.
func command(c abi.Cmd) string {
	if c >= abi.CmdMax {
		return commandUnknown
	}
	return c.String()
}

// eventName is the label of an asynchronous event's type; types beyond the header's last share one.
func eventName(t abi.EventType) string {
	if t > abi.EventGIDChange {
		return resultOther
	}
	return t.String()
}
