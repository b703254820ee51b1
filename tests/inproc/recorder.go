// SPDX-License-Identifier: Apache-2.0

package inproc

import (
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/pvrdmad/pvrdmad/pvrdma"
	"golang.org/x/sys/unix"
)

// Recorder counts a guest's events as the daemon's metrics do: one counter for each event, by the labels that the metric
// has.
type Recorder struct {
	mu     sync.Mutex
	counts map[string]int
	last   error
}

// Observe implements pvrdma.Observer.
func (r *Recorder) Observe(e pvrdma.Event) {
	if _, ok := e.(pvrdma.ErrorStateChanged); ok {
		return // a gauge, which says what the device is like and not how often
	}
	name, err := counterOf(e)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = map[string]int{}
	}
	r.counts[name]++
	if err != nil {
		r.last = err
	}
}

// counterOf returns the counter that an event moves, and the error it tells of.
func counterOf(e pvrdma.Event) (string, error) {
	switch e := e.(type) {
	case pvrdma.CommandDone:
		return CommandCounter(e.Cmd.String(), e.Err), e.Err
	case pvrdma.GuestError:
		return ProtocolCounter(e.Reason), e.Err
	case pvrdma.WasReset:
		return "guest_resets_total{" + e.Cause.String() + "}", e.Err
	case pvrdma.AsyncEventSent:
		return fmt.Sprintf("async_events_total{%v,lost=%v}", e.Type, e.Lost), nil
	case pvrdma.QPStateChanged:
		return fmt.Sprintf("qp_state_changes_total{%v}", e.To), nil
	}
	return fmt.Sprintf("%T", e), nil
}

// CommandCounter names the counter of commands with an outcome; err is nil or wraps an errno.
func CommandCounter(command string, err error) string {
	result := "ok"
	if err != nil {
		result = "other"
		if errno, ok := errors.AsType[unix.Errno](err); ok {
			result = unix.ErrnoName(errno)
		}
	}
	return "commands_total{" + command + "," + result + "}"
}

// ProtocolCounter names the counter of breaches of a rule.
func ProtocolCounter(r pvrdma.GuestErrorReason) string {
	return "guest_protocol_errors_total{" + r.String() + "}"
}

// Take returns the counters that have moved since the last call, and forgets them.
func (r *Recorder) Take() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	moved := r.counts
	r.counts = nil
	return moved
}

// Counts returns the counters that have moved since the last Take.
func (r *Recorder) Counts() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.counts)
}

// Last returns the last error that was reported.
func (r *Recorder) Last() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}
