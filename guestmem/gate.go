// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"runtime"
	"sync/atomic"
	"time"
)

// gate counts the accesses by address that are under way. A new gate is installed whenever regions are taken away, so
// that waiting for the old one ends: nobody enters it any more.
type gate struct {
	n atomic.Int64
	_ [120]byte // readers of another Space do not share the line
}

// enter returns the current version, which stays valid until leave.
func (s *Space) enter() *version {
	// Each further round means that a control call of this guest's front-end finished in between.
	for {
		if v := s.cur.Load(); s.join(v) {
			return v
		}
	}
}

// join passes the gate of v, unless it has been replaced since v was loaded: then whoever waits for the gate may have
// looked already and seen nobody.
func (s *Space) join(v *version) bool {
	v.gate.n.Add(1)
	if s.cur.Load().gate == v.gate {
		return true
	}
	v.gate.n.Add(-1)
	return false
}

func (v *version) leave() { v.gate.n.Add(-1) }

// wait returns when nobody is inside. An access takes microseconds, unless its goroutine lost the processor.
func (g *gate) wait() {
	const spins = 100
	for i := 0; g.n.Load() != 0; i++ {
		if i < spins {
			runtime.Gosched()
		} else {
			time.Sleep(20 * time.Microsecond)
		}
	}
}
