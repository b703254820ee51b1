// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"sync"

	"github.com/pvrdmad/pvrdmad/vfiouser"
)

// state is a status line.
type state struct {
	// FDs and Goroutines are how many the process has.
	FDs        int `json:"fds"`
	Goroutines int `json:"goroutines"`
	// Connected counts the clients whose VERSION was accepted, Busy those that came while another one was attached.
	Connected int `json:"connected"`
	Busy      int `json:"busy"`
	// Disconnected counts the connections that ended, by the reason.
	Disconnected map[string]int `json:"disconnected"`
	// Refused counts the messages that were not served, by the fault.
	Refused map[string]int `json:"refused"`
	// Panics counts the panics of the device.
	Panics int `json:"panics"`
}

// counters counts what happens to the server.
type counters struct {
	vfiouser.NopObserver
	mu  sync.Mutex
	now state // guarded by mu
}

// state returns a copy of the counters.
func (c *counters) state() state {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.now
	s.Disconnected, s.Refused = map[string]int{}, map[string]int{}
	maps.Copy(s.Disconnected, c.now.Disconnected)
	maps.Copy(s.Refused, c.now.Refused)
	return s
}

// Connected implements vfiouser.Observer.
func (c *counters) Connected(vfiouser.Peer) { c.count(func(s *state) { s.Connected++ }) }

// BusyRefused implements vfiouser.Observer.
func (c *counters) BusyRefused(vfiouser.Peer) { c.count(func(s *state) { s.Busy++ }) }

// Panicked implements vfiouser.Observer.
func (c *counters) Panicked(vfiouser.Panic) { c.count(func(s *state) { s.Panics++ }) }

// Disconnected implements vfiouser.Observer.
func (c *counters) Disconnected(d vfiouser.Disconnect) {
	c.count(func(s *state) { s.Disconnected = plusOne(s.Disconnected, d.Reason.String()) })
}

// Refused implements vfiouser.Observer.
func (c *counters) Refused(r vfiouser.Refusal) {
	c.count(func(s *state) { s.Refused = plusOne(s.Refused, r.Fault.String()) })
}

func (c *counters) count(change func(*state)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.now)
}

// plusOne counts one more of a word.
func plusOne(m map[string]int, word string) map[string]int {
	if m == nil {
		m = map[string]int{}
	}
	m[word]++
	return m
}
