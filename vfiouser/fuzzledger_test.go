// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"runtime"
	"testing"
	"time"
)

// ledger is an Observer that checks what has to be true of the events whatever a client sends: every message that is
// refused is told once and only once, and has not reached the device.
type ledger struct {
	NopObserver
	t       testing.TB
	device  *recordingDevice
	pending []Refusal // since the last Handled
	calls   int       // of the device, at the last Handled
	ended   []Disconnect
	panics  []Panic
}

func (l *ledger) deviceCalls() int {
	l.device.mu.Lock()
	defer l.device.mu.Unlock()
	return len(l.device.calls)
}

func (l *ledger) Refused(r Refusal) { l.pending = append(l.pending, r) }
func (l *ledger) Panicked(p Panic)  { l.panics = append(l.panics, p) }

func (l *ledger) Handled(h Handling) {
	calls := l.deviceCalls()
	switch n := len(l.pending); {
	case h.Errno == 0 && n == 0:
	case h.Errno == 0 && n == 1 && h.Command == CommandRegionWriteMulti && !l.pending[0].Fatal:
	case h.Errno == 0 || n != 1:
		l.t.Errorf("%s with errno %d was refused %d times: %+v", h.Command, h.Errno, n, l.pending)
	case l.pending[0].Errno != h.Errno || l.pending[0].Command != h.Command || l.pending[0].Fatal:
		l.t.Errorf("%+v was told as %+v", h, l.pending[0])
	case l.pending[0].Fault != FaultDevice && calls != l.calls:
		l.t.Errorf("%+v was refused after %d calls of the device", h, calls-l.calls)
	}
	l.pending, l.calls = nil, calls
}

func (l *ledger) Disconnected(d Disconnect) {
	l.ended = append(l.ended, d)
	due := 0
	if d.Reason == ReasonProtocol || d.Reason == ReasonOpen {
		due = 1 // the message that ended it
	}
	if len(l.pending) != due {
		l.t.Errorf("the end by %s came with refusals %+v, want %d", d.Reason, l.pending, due)
	}
}

// check is called after the end of the session.
func (l *ledger) check() {
	l.t.Helper()
	for _, p := range l.panics {
		l.t.Errorf("panic: %v\n%s", p.Value, p.Stack)
	}
	if len(l.ended) != 1 {
		l.t.Errorf("the end was told %d times: %+v", len(l.ended), l.ended)
	}
}

// census counts what a test must not leave behind.
type census struct{ fds, goroutines int }

func takeCensus(t testing.TB) census {
	t.Helper()
	return census{countFDs(t), runtime.NumGoroutine()}
}

// check waits until no more is there than was counted.
func (c census) check(t testing.TB) {
	t.Helper()
	var now census
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Microsecond) {
		if now = takeCensus(t); now.fds == c.fds && now.goroutines <= c.goroutines {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("file descriptors and goroutines: %+v, %+v before", now, c)
		}
	}
}
