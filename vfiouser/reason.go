// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Reason is why a connection ended: a closed list, fit for a metric's label.
type Reason uint8

// Why a connection ended.
const (
	// ReasonClientClosed: the client closed its end between two messages, or died.
	ReasonClientClosed Reason = iota
	// ReasonShutdown: Serve's context ended.
	ReasonShutdown
	// ReasonProtocol: the client broke the protocol beyond repair, see Fault.
	ReasonProtocol
	// ReasonHandshake: no VERSION within the handshake timeout.
	ReasonHandshake
	// ReasonOpen: Config.Open failed, or the device describes itself wrongly.
	ReasonOpen
	// ReasonPanic: the Device panicked.
	ReasonPanic
	// ReasonSlow: the client did not read its answers within the write timeout.
	ReasonSlow
	// ReasonBlockingEventFD: the client made one of its eventfds block a Trigger.
	ReasonBlockingEventFD
	// ReasonIO: the socket failed, or was closed in the middle of a message.
	ReasonIO
	numReasons
)

// String returns a word for logs and metric labels.
func (r Reason) String() string {
	names := [numReasons]string{
		"client_closed", "shutdown", "protocol", "handshake", "open", "panic", "slow", "blocking_eventfd", "io",
	}
	if r >= numReasons {
		return fmt.Sprintf("reason_%d", uint8(r))
	}
	return names[r]
}

// ending is the end of a session.
type ending struct {
	reason Reason
	err    error // nil if there is nothing to add
}

// readEnding says what a failed read means. shook is whether a VERSION has come.
func readEnding(err error, shook bool) *ending {
	switch {
	case errors.Is(err, io.EOF):
		return &ending{ReasonClientClosed, nil}
	case errors.Is(err, unix.ECONNRESET):
		return &ending{ReasonClientClosed, err}
	case errors.Is(err, os.ErrDeadlineExceeded) && !shook:
		return &ending{ReasonHandshake, err}
	case faultOf(err) != FaultDevice:
		return &ending{ReasonProtocol, err}
	default:
		return &ending{ReasonIO, err}
	}
}

// writeEnding says what a failed write means.
func writeEnding(err error) *ending {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &ending{ReasonSlow, err}
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET):
		return &ending{ReasonClientClosed, err}
	default:
		return &ending{ReasonIO, err}
	}
}
