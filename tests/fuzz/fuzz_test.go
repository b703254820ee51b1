// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"strings"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/pvrdma"
	"go.uber.org/goleak"
)

const (
	badWQE     = pvrdma.BadWQE
	cqOverflow = pvrdma.CQOverflow
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// play runs an input twice: by itself, with all that can be said about it, and while another processor of the guest
// writes into its memory. A fuzzer runs it one of the two ways, as the input's first byte says.
func play(t *testing.T, data []byte, trap bool, run func(w *world, s *script)) {
	var mode byte
	if len(data) > 0 {
		mode, data = data[0], data[1:]
	}
	for _, rewritten := range []bool{false, true} {
		if fuzzing() && rewritten != (mode%2 == 1) {
			continue
		}
		w := newWorld(t, trap)
		if rewritten {
			w.rewrite(uint64(mode))
		}
		run(w, &script{data})
		w.finish()
	}
}

// TestNothingLeadsToAGuestThatIsGone: queue pairs remember whom they have talked to.
// Names of places that nobody has any more would find nothing, for ever.
func TestEveryPlaceThatIsLookedAtAfterAResetIsInTheStateOfGuestsAtWork(t *testing.T) {
	w := newWorld(t, true)

	state := w.State()

	for _, place := range kept {
		if name := place[strings.LastIndex(place, "."):]; state.Find(name) == "" {
			t.Errorf("nothing is named %s", name)
		}
	}
	w.finish()
}

func TestNothingLeadsToAGuestThatIsGone(t *testing.T) {
	w := newWorld(t, true)
	for range 3 {
		send(w, &script{})
		peerSend(w, &script{})
		w.Settle()
	}
	if c := w.Engine.Counters(); w.Fn.Counters().SendWQEs != 3 || w.n.Fn.Counters().SendWQEs != 3 {
		t.Errorf("the guests have not talked: %+v", c)
	}
	w.finish()
}

// datagrams is a script of two requests that are honest: a datagram, and a management datagram.
var datagrams = []byte{
	2 /* the queue pair */, 1, 1, 2, 2, 0, 0, 100, 0, 0, 0, 0, 0, 0 /* no element, */, 0 /* no field changed */, 0,
	0 /* send */, 3, 1, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 /* a management datagram */, 0, 0,
}

func TestHonestDatagramsReachTheNeighbour(t *testing.T) {
	w := newWorld(t, true)
	s := &script{datagrams}
	send(w, s)
	s.u8()
	send(w, s)
	if !s.done() {
		t.Errorf("%d bytes are left of the script", len(s.b))
	}
	c := w.Engine.Counters()
	arrived := func() bool { return c.Sends == 2 && c.SendBytes == 100+256 && c.Completions[0] == 4 }
	for deadline := time.Now().Add(w.patience); !arrived() && time.Now().Before(deadline); c = w.Engine.Counters() {
		w.Settle() // each worker publishes its own now and then
	}
	if !arrived() {
		t.Errorf("not all has arrived: %+v", c)
	}
	w.finish()
}

// FuzzSharedRegion changes the shared region, the directories and the event rings, and has the device load them.
func FuzzSharedRegion(f *testing.F) {
	f.Add([]byte{0, 1, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		play(t, data, false, func(w *world, s *script) {
			w.run(s, patchDSR, load, patchDirectory, patch, load, arm, control, mastering)
		})
	})
}

// FuzzCommands executes commands in any order, honest but for some fields or not at all.
func FuzzCommands(f *testing.F) {
	f.Add([]byte{0, 1, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		play(t, data, false, func(w *world, s *script) {
			w.run(s, command, command, command, command, command, command, anyCommand, patchDirectory, unmap, control, reset, load)
		})
	})
}

// FuzzWorkRequests posts requests to queue pairs of which one is connected with the neighbour's, and the others send datagrams.
func FuzzWorkRequests(f *testing.F) {
	f.Add([]byte{0, 1, 0})
	f.Add(append([]byte{0, 0}, datagrams...))
	f.Add(append([]byte{1, 1}, datagrams...))
	f.Fuzz(func(t *testing.T, data []byte) {
		trap := len(data) > 1 && data[1]%2 == 1
		play(t, data, trap, func(w *world, s *script) {
			w.run(s, send, send, recv, peerSend, consume, arm, wait, command, sharedRecv, sharedSend, kernelSend)
			w.checkRequests()
		})
	})
}

// FuzzDoorbells stores anything at any place of the doorbell pages.
func FuzzDoorbells(f *testing.F) {
	f.Add([]byte{0, 1, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		trap := len(data) > 1 && data[1]%2 == 1
		play(t, data, trap, func(w *world, s *script) {
			w.run(s, doorbell, doorbell, doorbell, send, recv, wait, command, storm, sharedRecv)
		})
	})
}

// FuzzRegisters reads and writes the regions at any offset in any size.
func FuzzRegisters(f *testing.F) {
	f.Add([]byte{0, 1, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		play(t, data, true, func(w *world, s *script) {
			w.run(s, write, write, read, patchDSR, load, reset)
		})
	})
}
