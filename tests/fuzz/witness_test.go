// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/pvrdma"
)

// witness is a test that notes errors instead of failing by them.
type witness struct {
	testing.TB
	errors int
}

func (w *witness) Errorf(string, ...any) { w.errors++ }
func (w *witness) Error(...any)          { w.errors++ }

// TestTheOracleNoticesEachFault plants what a hostile guest must not achieve.
func TestTheOracleNoticesEachFault(t *testing.T) {
	for name, plant := range map[string]func(t *testing.T, w *world){
		"nothing": func(*testing.T, *world) {},
		"a byte of the neighbour's memory": func(_ *testing.T, w *world) {
			w.n.Bytes(w.n.CmdSlot, 1)[0] ^= 1
		},
		"a secret in the guest's memory": func(_ *testing.T, w *world) { fillSecret(w.Bytes(w.mr.Pages[0], 8)) },
		"a file that stays open": func(t *testing.T, _ *world) {
			f, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Close() })
		},
		"a goroutine that stays": func(t *testing.T, _ *world) {
			before, stop := runtime.NumGoroutine(), make(chan struct{})
			go func() { <-stop }()
			t.Cleanup(func() {
				close(stop)
				for runtime.NumGoroutine() > before { // or the next world would count it among its own
					runtime.Gosched()
				}
			})
		},
		"a rejection that moves no counter": func(_ *testing.T, w *world) {
			w.verdict(func() { w.SetReg("CTL", 77); w.Seen.Take() })
		},
		"a rejection that moves two": func(_ *testing.T, w *world) {
			w.verdict(func() { w.SetReg("CTL", 77); w.Seen.Observe(pvrdma.GuestError{}) })
		},
		"a success that moves one": func(_ *testing.T, w *world) {
			w.verdict(func() { w.SetReg("CTL", 1); w.Seen.Observe(pvrdma.GuestError{}) })
		},
		"a neighbour that is not served": func(_ *testing.T, w *world) { w.n.Control("RESET") },
	} {
		t.Run(name, func(t *testing.T) {
			seen := &witness{TB: t}
			calm()
			w := newWorld(t, true)
			w.t = seen
			if name != "nothing" {
				w.patience = 20 * time.Millisecond // what is planted stays
			}
			plant(t, w)
			w.finish()
			if (seen.errors != 0) != (name != "nothing") {
				t.Errorf("%d errors were reported", seen.errors)
			}
		})
	}
}

// calm returns when no goroutine of a world that has ended is ending any more: the next one would count it among what was
// there before, and one that stays would make up for it.
func calm() {
	const long = 20 // milliseconds
	for n, same := runtime.NumGoroutine(), 0; same < long; same++ {
		time.Sleep(time.Millisecond)
		if now := runtime.NumGoroutine(); now != n {
			n, same = now, 0
		}
	}
}
