// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"fmt"
	"testing"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// world is a daemon in small: one owner thread, its poller, and guests.
type world struct {
	t      testing.TB
	env    Env
	owner  *thread
	poller hostverbs.Poller
	dom    *guestmem.Domain
	guests []*guest
	// opened counts the guests that there ever were.
	opened int
	// ends are pumped; devices are all that there ever were.
	ends    []*end
	devices []*device
}

// gidTableLen is how many addresses a guest of the tests can have.
const gidTableLen = 4

// newWorld opens the engine on one owner thread, and closes everything when the test ends.
func newWorld(t testing.TB, env Env) *world {
	w := &world{t: t, env: env, owner: newThread(nil), dom: guestmem.NewDomain()}
	t.Cleanup(w.owner.end)
	var err error
	if w.poller, err = env.Provider.NewPoller(w.owner); err != nil {
		t.Fatalf("new poller: %v", err)
	}
	t.Cleanup(w.close)
	return w
}

// close ends the world from the top down.
func (w *world) close() {
	w.t.Helper()
	for _, d := range w.devices {
		if n := d.strayed.Load(); n != 0 {
			w.t.Errorf("%d callbacks of a queue pair came on another thread than the owner's, or during PostSend", n)
		}
	}
	for _, g := range w.guests {
		if g.ctx != nil {
			if err := g.ctx.Close(); err != nil {
				w.t.Errorf("close the context of %s: %v", g.name, err)
			}
		}
		if err := g.space.Close(); err != nil {
			w.t.Errorf("close the memory of %s: %v", g.name, err)
		}
	}
	if err := w.poller.Close(); err != nil {
		w.t.Errorf("close the poller: %v", err)
	}
	if err := w.env.Provider.Close(); err != nil {
		w.t.Errorf("close the engine: %v", err)
	}
}

// guest adds a guest with memory, a context, a protection domain and one address.
func (w *world) guest() *guest {
	w.t.Helper()
	return w.guestWith(hostverbs.Limits{})
}

// guestWith adds a guest with limits.
func (w *world) guestWith(limits hostverbs.Limits) *guest {
	w.t.Helper()
	w.opened++
	n := w.opened
	g := &guest{w: w, name: fmt.Sprintf("guest%d", n), ram: make([]byte, ramBytes), want: make([]byte, ramBytes)}
	g.gid = hostverbs.GID{10: 0xff, 11: 0xff, 12: 10, 15: byte(n)} // 10.0.0.n
	g.space = w.dom.NewSpace(g.name)
	g.space.SetBarrier(func() { w.owner.Do(func() {}) })
	if err := g.space.MapBytes(ramBase, g.ram, guestmem.ProtRead|guestmem.ProtWrite); err != nil {
		w.t.Fatalf("map memory: %v", err)
	}
	w.guests = append(w.guests, g)
	var err error
	if g.ctx, err = w.poller.OpenContext(hostverbs.ContextConfig{Guest: g.name, GIDTableLen: gidTableLen, Limits: limits}); err != nil {
		w.t.Fatalf("open a context for %s: %v", g.name, err)
	}
	if g.pd, err = g.ctx.AllocPD(); err != nil {
		w.t.Fatalf("allocate a PD for %s: %v", g.name, err)
	}
	if err = g.ctx.BindGID(0, g.gid, hostverbs.GIDTypeRoCEv2); err != nil {
		w.t.Fatalf("bind the address of %s: %v", g.name, err)
	}
	return g
}

// visit lets the devices ring and the engine work once.
func (w *world) visit() (worked bool, next int64) {
	w.owner.Do(func() {
		for _, e := range w.ends {
			if e.dev.pump() {
				worked = true
			}
		}
		var did bool
		did, next = w.poller.Progress(w.env.Clock.Now())
		worked = worked || did
	})
	return worked, next
}

// maxVisits ends a test whose engine never comes to rest.
const maxVisits = 50_000

// spin lets the engine work until it has nothing to do at this time. It returns when it wants to be called again.
func (w *world) spin() int64 {
	w.t.Helper()
	for range maxVisits {
		worked, next := w.visit()
		if !worked && (next == 0 || next > w.env.Clock.Now()) {
			return next
		}
	}
	w.t.Fatalf("the engine does not come to rest")
	return 0
}

// settle lets time pass until the engine has nothing to wait for.
func (w *world) settle() {
	w.t.Helper()
	for range maxVisits {
		next := w.spin()
		if next == 0 {
			return
		}
		w.env.Clock.Until(next)
	}
	w.t.Fatalf("the engine waits for ever")
}

// elapse lets d nanoseconds pass.
func (w *world) elapse(d int64) {
	w.t.Helper()
	end := w.env.Clock.Now() + d
	for {
		next := w.spin()
		if next == 0 || next > end {
			break
		}
		w.env.Clock.Until(next)
	}
	w.env.Clock.Until(end)
	w.spin()
}

// verify compares the memory of all guests with what it should be.
func (w *world) verify(what string) {
	w.t.Helper()
	for _, g := range w.guests {
		g.verify(what)
	}
}
