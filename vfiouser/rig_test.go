// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// recorder is an Observer that keeps what it was told.
type recorder struct {
	NopObserver
	mu       sync.Mutex
	gone     []Disconnect
	refusals []Refusal
	handled  []Handling
	panics   []Panic
	busy     []Peer
	peers    []Peer
	accepts  []error
}

func note[T any](r *recorder, list *[]T, event T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*list = append(*list, event)
}

// events returns a copy of one of the recorder's lists.
func events[T any](r *recorder, list *[]T) []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]T(nil), *list...)
}

func (r *recorder) Connected(p Peer)                        { note(r, &r.peers, p) }
func (r *recorder) Disconnected(d Disconnect)               { note(r, &r.gone, d) }
func (r *recorder) BusyRefused(p Peer)                      { note(r, &r.busy, p) }
func (r *recorder) Refused(f Refusal)                       { note(r, &r.refusals, f) }
func (r *recorder) Handled(h Handling)                      { note(r, &r.handled, h) }
func (r *recorder) Panicked(p Panic)                        { note(r, &r.panics, p) }
func (r *recorder) AcceptFailed(err error, _ time.Duration) { note(r, &r.accepts, err) }

// rig is a server of recordingDevices with its observer.
type rig struct {
	t      testing.TB
	path   string
	seen   recorder
	stop   func() // ends the server and waits for it
	config Config

	mu       sync.Mutex
	devices  []*recordingDevice
	sessions []*Session
}

// start starts a server. tune may change its configuration, and each device before it is used.
func start(t testing.TB, tune func(*Config), prepare func(*recordingDevice)) *rig {
	t.Helper()
	checkFDs(t)
	r := &rig{t: t, path: filepath.Join(t.TempDir(), "s")}
	doorbells := newMemFD(t, 4*PageSize)
	r.config = Config{Observer: &r.seen, Open: func(s *Session) (Device, error) {
		d := newRecordingDevice(doorbells)
		if prepare != nil {
			prepare(d)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.devices, r.sessions = append(r.devices, d), append(r.sessions, s)
		return d, nil
	}}
	if tune != nil {
		tune(&r.config)
	}
	l, err := Listen(r.path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	server := NewServer(l, r.config)
	go func() { done <- server.Serve(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
		case <-time.After(patience):
			t.Error("Serve does not return")
		}
	})
	t.Cleanup(r.stop)
	return r
}

// startHeld is start with devices of which the n-th call of a method waits for release, after it has closed reached.
func startHeld(t testing.TB, method string, n int32) (r *rig, reached chan struct{}, release func()) {
	var calls atomic.Int32
	reached, released := make(chan struct{}), make(chan struct{})
	r = start(t, nil, func(d *recordingDevice) {
		d.before = func(m string) error {
			if m == method && calls.Add(1) == n {
				close(reached)
				<-released
			}
			return nil
		}
	})
	return r, reached, func() { close(released) }
}

// client returns a client after its handshake.
func (r *rig) client() *client {
	r.t.Helper()
	return dial(r.t, r.path).handshake()
}

// device returns the last device that was opened.
func (r *rig) device() *recordingDevice {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.devices[len(r.devices)-1]
}

// session returns the last session.
func (r *rig) session() *Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions[len(r.sessions)-1]
}

// disconnect waits for the end of n connections and returns the last.
func (r *rig) disconnect(n int) Disconnect {
	r.t.Helper()
	eventually(r.t, "the connection is over", func() bool { return len(events(&r.seen, &r.seen.gone)) >= n })
	return events(&r.seen, &r.seen.gone)[n-1]
}

// refusals returns what was refused so far.
func (r *rig) refusals() []Refusal { return events(&r.seen, &r.seen.refusals) }
