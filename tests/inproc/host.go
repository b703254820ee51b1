// SPDX-License-Identifier: Apache-2.0

// Package inproc is a host with its device functions and guests in one process: every register access is a call, guest
// memory is a real mapping, and the worker and the engine are those of the daemon. A command takes microseconds, so that
// tests can try thousands.
//
// The guests take every offset from the headers' layout. It may not be used by anything but tests.
package inproc

import (
	"sync"
	"testing"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs/soft"
	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"github.com/pvrdmad/pvrdmad/pvrdma"
)

// loadLayout reads the layout once: a fuzz target makes thousands of hosts.
var loadLayout = sync.OnceValues(layout.Load)

// Host is what the guests of one worker share.
type Host struct {
	T      testing.TB
	L      *layout.Layout
	Engine *soft.Engine
	Domain *guestmem.Domain
	Worker *pvrdma.Worker

	guests []*Guest
}

// NewHost starts a worker over the software engine. Close ends it.
func NewHost(t testing.TB) *Host {
	t.Helper()
	l, err := loadLayout()
	if err != nil {
		t.Fatal(err)
	}
	h := &Host{T: t, L: l, Engine: soft.New(nil), Domain: guestmem.NewDomain()}
	h.Worker, err = pvrdma.NewWorker(pvrdma.WorkerConfig{Provider: h.Engine, Domain: h.Domain})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Close disconnects all guests and ends the worker. What the engine still holds then fails the test.
func (h *Host) Close() {
	h.T.Helper()
	for _, g := range h.guests {
		g.Close()
	}
	if err := h.Worker.Close(); err != nil { // refused while a guest's context is open
		h.T.Errorf("end the worker: %v", err)
	}
	if err := h.Engine.Close(); err != nil {
		h.T.Errorf("end the engine: %v", err)
	}
}

// Settle returns when the worker has made a whole pass since the call, so that all doorbells that were rung before have
// been looked at.
func (h *Host) Settle() {
	for range 2 {
		h.Worker.Do(func() {})
	}
}

// Const is a constant of the headers.
func (h *Host) Const(name string) uint32 { return h.L.Const(name) }
