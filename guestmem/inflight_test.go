// SPDX-License-Identifier: Apache-2.0

package guestmem_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/guestmem"
)

// longCopy is a visit of milliseconds that copies between two guests.
type longCopy struct {
	src, dst *guest
	sp, dp   *guestmem.Pages
	owner    owner // of the lists
	began    chan struct{}
	running  atomic.Bool
	err      error
}

const longRAM = 1024 * page

func newLongCopy(t *testing.T, f form) *longCopy {
	d := f.domain()
	c := &longCopy{began: make(chan struct{}), src: newGuest(t, d, "src", longRAM), dst: newGuest(t, d, "dst", longRAM)}
	var list []uint64
	for range 4 {
		list = append(list, runsApart(64, 15)...) // the file again and again
	}
	c.sp, c.dp = c.src.pin(t, list), c.dst.pin(t, list)
	for _, g := range []*guest{c.src, c.dst} {
		g.SetBarrier(func() { c.owner.visit(func() {}) })
	}
	return c
}

// run is the visit of the thread that owns the lists.
func (c *longCopy) run() {
	c.owner.visit(func() {
		c.running.Store(true)
		defer c.running.Store(false)
		close(c.began)
		for range 4 {
			if c.err = guestmem.Copy(c.dp, 0, c.sp, 0, c.dp.Len()); c.err != nil {
				return
			}
		}
	})
}

// takeAway are the ways in which memory goes.
var takeAway = map[string]func(*guest) error{
	"Unmap":      func(g *guest) error { return g.Unmap(0, longRAM) },
	"UnmapAll":   func(g *guest) error { g.UnmapAll(); return nil },
	"SetEnabled": func(g *guest) error { g.SetEnabled(false); return nil },
	"Close":      func(g *guest) error { return g.Close() },
}

// What the front-end does after its answer, free the memory for example, must not meet a copy that is still going on.
func TestMemoryIsTakenAwayOnlyAfterTheLastCopyHasEnded(t *testing.T) {
	for name, take := range takeAway {
		for _, side := range []string{"source", "destination"} {
			t.Run(name+" of the "+side, func(t *testing.T) {
				inBothForms(t, func(t *testing.T, f form) {
					const tries = 20 // the copy may have ended before the memory is asked for
					for range tries {
						if takenDuringCopy(t, f, take, side == "destination") {
							return
						}
					}
					t.Fatalf("the copy was over before the memory was asked for, %d times", tries)
				})
			})
		}
	}
}

// takenDuringCopy takes the memory of a copy away while it runs. It returns false if it came too late.
func takenDuringCopy(t *testing.T, f form, take func(*guest) error, dst bool) bool {
	c := newLongCopy(t, f)
	g := c.src
	if dst {
		g = c.dst
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.run()
	}()
	<-c.began
	asked := time.Now()
	err := take(g)
	inFlight, waited := c.running.Load(), time.Since(asked)
	<-done
	if inFlight {
		t.Fatal("the memory was given back while a copy was going on")
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := guestmem.Copy(c.dp, 0, c.sp, 0, page); err == nil {
		t.Fatal("the memory can be reached after it was given back")
	}
	// A visit that was under way is refused what it begins after, and nothing worse.
	if c.err != nil && !errors.Is(c.err, guestmem.ErrRevoked) && !errors.Is(c.err, guestmem.ErrDisabled) {
		t.Fatalf("the copy ended with %v", c.err)
	}
	return waited > time.Millisecond
}
