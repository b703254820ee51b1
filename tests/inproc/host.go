// SPDX-License-Identifier: Apache-2.0

// Package inproc is a host with its device functions and guests in one process: every register access is a call, guest
// memory is a real mapping, and the worker and the engine are those of the daemon. A command takes microseconds, so that
// tests can try thousands.
//
// The guests take every offset from the headers' layout. It may not be used by anything but tests.
package inproc

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/hostverbs/soft"
	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"github.com/pvrdmad/pvrdmad/pvrdma"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// loadLayout reads the layout once: a fuzz target makes thousands of hosts.
var loadLayout = sync.OnceValues(layout.Load)

// Host is what the guests of one worker share.
type Host struct {
	T      testing.TB
	L      *layout.Layout
	Engine *soft.Engine
	Domain *guestmem.Domain
	// Workers serve the guests, one after the other; a guest's own is Guest.Worker.
	Workers []*pvrdma.Worker

	guests []*Guest
}

// workersVariable is the environment variable that says how many workers a host has, 1 without it: every test that uses
// hosts passes with several.
const workersVariable = "PVRDMAD_WORKERS"

// workers is how many workers a host has.
func workers(t testing.TB) int {
	t.Helper()
	text := os.Getenv(workersVariable)
	if text == "" {
		return 1
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q is no number of workers", workersVariable, text)
	}
	return n
}

// versionVariable is the environment variable that says which version the devices have, the newest without it: the matrix of
// commands passes with each.
const versionVariable = "PVRDMAD_DEVICE_VERSION"

// DeviceVersion is the version of the devices.
func DeviceVersion() uint32 {
	text := os.Getenv(versionVariable)
	if text == "" {
		return abi.VersionMax
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		panic(fmt.Sprintf("%s=%q is no version", versionVariable, text))
	}
	return uint32(n)
}

// GIDType is the version of RoCE that devices of that version have: the newest that they know.
func GIDType() hostverbs.GIDType {
	if DeviceVersion() < abi.VersionRoCEv2 {
		return hostverbs.GIDTypeRoCEv1
	}
	return hostverbs.GIDTypeRoCEv2
}

// NewHost starts the workers over the software engine. Close ends it.
func NewHost(t testing.TB) *Host {
	t.Helper()
	l, err := loadLayout()
	if err != nil {
		t.Fatal(err)
	}
	h := &Host{T: t, L: l, Engine: soft.New(nil), Domain: guestmem.NewDomain()}
	n := workers(t)
	for range n {
		w, err := pvrdma.NewWorker(pvrdma.WorkerConfig{Provider: h.Engine, Domain: h.Domain, Index: len(h.Workers)})
		if err != nil {
			t.Fatal(err)
		}
		h.Workers = append(h.Workers, w)
	}
	return h
}

// Close disconnects all guests and ends the worker. What the engine still holds then fails the test.
func (h *Host) Close() {
	h.T.Helper()
	for _, g := range h.guests {
		g.Close()
	}
	for _, w := range h.Workers {
		if err := w.Close(); err != nil { // refused while a guest's context is open
			h.T.Errorf("end the worker: %v", err)
		}
	}
	if err := h.Engine.Close(); err != nil {
		h.T.Errorf("end the engine: %v", err)
	}
}

// Settle returns when each worker has made a whole pass since the call, so that all doorbells that were rung before have
// been looked at, and what that sent to another worker has come back.
func (h *Host) Settle() {
	for range 2 * len(h.Workers) {
		h.Engine.Barrier()
	}
}

// still runs fn while no worker is in a pass.
func (h *Host) still(fn func()) {
	for _, w := range h.Workers {
		inner := fn
		fn = func() { w.Do(inner) } // each waits in the other's
	}
	fn()
}

// Const is a constant of the headers.
func (h *Host) Const(name string) uint32 { return h.L.Const(name) }
