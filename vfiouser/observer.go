// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"time"

	"golang.org/x/sys/unix"
)

// Observer is told what happens; the package itself logs and counts nothing. The calls come from the accept
// loop, from the session's goroutine and from a timer, possibly at the same time; they must not block, and must
// not call the server. Embed NopObserver to stay source compatible when a method is added.
type Observer interface {
	// Connected: a client's VERSION was accepted and its device is open.
	Connected(p Peer)
	// Disconnected: a connection is over, also one that was never Connected.
	Disconnected(d Disconnect)
	// BusyRefused: a client came while another one was attached, and was closed.
	BusyRefused(p Peer)
	// Refused: a message was answered with an error, or ended the session.
	Refused(r Refusal)
	// Handled: a message is done with, also one that was Refused but not Fatal. It is called for every message,
	// so it must be cheap.
	Handled(h Handling)
	// Panicked: a method of the Device panicked. Disconnected follows.
	Panicked(p Panic)
	// AcceptFailed: accepting a connection failed, and is tried again after the given pause.
	AcceptFailed(err error, pause time.Duration)
}

// NopObserver is an Observer that does nothing.
type NopObserver struct{}

// Connected does nothing.
func (NopObserver) Connected(Peer) {}

// Disconnected does nothing.
func (NopObserver) Disconnected(Disconnect) {}

// BusyRefused does nothing.
func (NopObserver) BusyRefused(Peer) {}

// Refused does nothing.
func (NopObserver) Refused(Refusal) {}

// Handled does nothing.
func (NopObserver) Handled(Handling) {}

// Panicked does nothing.
func (NopObserver) Panicked(Panic) {}

// AcceptFailed does nothing.
func (NopObserver) AcceptFailed(error, time.Duration) {}

// Disconnect says why a connection ended.
type Disconnect struct {
	Peer   Peer
	Reason Reason
	// Err is the cause, nil if the client just closed its end or Serve's context ended.
	Err error
	// Opened says whether a Device was opened for it (and is closed now).
	Opened bool
}

// Refusal is a message that was not served.
type Refusal struct {
	Peer    Peer
	Command Command
	// Fault says what was wrong with it; FaultDevice if it was well-formed and the Device refused.
	Fault Fault
	// Errno is what the client was told; it was told nothing if it had asked for no reply or if Fatal.
	Errno unix.Errno
	// Err is the whole story.
	Err error
	// Fatal says that the session ended for it.
	Fatal bool
}

// Handling is a message that was answered, or would have been if the client had wanted it.
type Handling struct {
	Command Command
	// Answer is how long the client waited: from the message's arrival until its answer was written, or until
	// the Device returned if it wanted none.
	Answer time.Duration
	// Total adds the time in Device.Replied.
	Total time.Duration
	// Errno is 0, or what the client was told.
	Errno unix.Errno
}

// Panic is a panic of a Device.
type Panic struct {
	Peer    Peer
	Command Command
	// Value is what was given to panic, Stack where.
	Value any
	Stack []byte
}
