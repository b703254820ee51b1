// SPDX-License-Identifier: Apache-2.0

package guestmem_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/guestmem"
)

// longCopy is a visit that copies between two guests until somebody waits for its end.
type longCopy struct {
	src, dst *guest
	sp, dp   *guestmem.Pages
	owner    owner // of the lists
	began    chan struct{}
	asked    atomic.Bool // the barrier has been reached: somebody waits for the visit
	taken    atomic.Bool // the memory is gone, says who took it
	tooSoon  bool        // it was, while the visit went on
	err      error
}

const longRAM = 1024 * page

func newLongCopy(t *testing.T, f form) *longCopy {
	d := f.domain()
	c := &longCopy{began: make(chan struct{}), src: newGuest(t, d, "src", longRAM), dst: newGuest(t, d, "dst", longRAM)}
	list := runsApart(64, 15)
	c.sp, c.dp = c.src.pin(t, list), c.dst.pin(t, list)
	for _, g := range []*guest{c.src, c.dst} {
		g.SetBarrier(func() {
			c.asked.Store(true)
			c.owner.visit(func() {})
		})
	}
	return c
}

// run is the visit of the thread that owns the lists. It cannot end before the memory was asked for: what does not ask
// takes the memory too soon, on any machine.
func (c *longCopy) run() {
	c.owner.visit(func() {
		for first := true; !c.asked.Load() && !c.taken.Load(); first = false {
			if c.err == nil {
				c.err = guestmem.Copy(c.dp, 0, c.sp, 0, c.dp.Len())
			}
			if first {
				close(c.began)
			}
		}
		for range 20 { // who asked waits
			time.Sleep(100 * time.Microsecond)
			c.tooSoon = c.tooSoon || c.taken.Load()
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
				inBothForms(t, func(t *testing.T, f form) { takeDuringCopy(t, f, take, side == "destination") })
			})
		}
	}
}

// takeDuringCopy takes the memory of a copy away while it runs.
func takeDuringCopy(t *testing.T, f form, take func(*guest) error, dst bool) {
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
	err := take(g)
	c.taken.Store(true)
	<-done
	if c.tooSoon {
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
}
