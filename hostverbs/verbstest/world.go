// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"fmt"
	"testing"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// site is an owner thread with its poller.
type site struct {
	owner  *thread
	poller hostverbs.Poller
}

// openSites gives the engine its owners, and ends them when the test ends.
func openSites(t testing.TB, env Env) (all []*site) {
	t.Helper()
	for range max(env.Owners, 1) {
		s := &site{owner: newThread(nil)}
		t.Cleanup(s.owner.end)
		var err error
		if s.poller, err = env.Provider.NewPoller(s.owner); err != nil {
			t.Fatalf("new poller: %v", err)
		}
		all = append(all, s)
	}
	return all
}

// world is a daemon in small: owner threads, their pollers, and guests.
type world struct {
	t      testing.TB
	env    Env
	sites  []*site
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

// newWorld opens the engine on its owners' threads, and closes everything when the test ends.
func newWorld(t testing.TB, env Env) *world {
	w := &world{t: t, env: env, sites: openSites(t, env), dom: guestmem.NewDomain()}
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
	for _, s := range w.sites {
		if n := s.owner.crossed.Load(); n != 0 {
			w.t.Errorf("an owner was waited for %d times on another owner's thread", n)
		}
		if err := s.poller.Close(); err != nil {
			w.t.Errorf("close the poller: %v", err)
		}
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
	g := &guest{w: w, site: w.sites[(n-1)%len(w.sites)], name: fmt.Sprintf("guest%d", n), ram: make([]byte, ramBytes), want: make([]byte, ramBytes)}
	g.gid = hostverbs.GID{10: 0xff, 11: 0xff, 12: 10, 15: byte(n)} // 10.0.0.n
	g.space = w.dom.NewSpace(g.name)
	g.space.SetBarrier(w.env.Provider.Barrier)
	if err := g.space.MapBytes(ramBase, g.ram, guestmem.ProtRead|guestmem.ProtWrite); err != nil {
		w.t.Fatalf("map memory: %v", err)
	}
	w.guests = append(w.guests, g)
	var err error
	if g.ctx, err = g.site.poller.OpenContext(hostverbs.ContextConfig{Guest: g.name, GIDTableLen: gidTableLen, Limits: limits}); err != nil {
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

// visit lets the devices ring and the engine work once, at each owner.
func (w *world) visit() (worked bool, next int64) {
	for _, s := range w.sites {
		s.owner.Do(func() {
			for _, e := range w.ends {
				if e.g.site == s && e.dev.pump() {
					worked = true
				}
			}
		})
		did, again := s.progress(w.env.Clock.Now())
		worked, next = worked || did, earlier(next, again)
	}
	return worked, next
}

// round is as many visits as there are owners: one for a message, and one more for its answer if that comes from elsewhere.
func (w *world) round() {
	for range w.sites {
		w.visit()
	}
}

// progress calls Progress once.
func (s *site) progress(now int64) (worked bool, next int64) {
	s.owner.Do(func() { worked, next = s.poller.Progress(now) })
	return worked, next
}

// earlier returns the earlier of two times of which 0 is never.
func earlier(a, b int64) int64 {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
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
