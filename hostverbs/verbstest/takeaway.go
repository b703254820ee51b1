// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// takeawayCases are about what is taken away while the engine is at work on it.
func takeawayCases() []Case {
	return []Case{
		{"memory that was taken away while its bytes moved is left alone from then on", takenAway},
		{"who takes memory away waits for every owner that is at work on it", waitsForOwners},
		{"what is taken away together is waited for once", takenTogether},
	}
}

// user is what uses a guest's memory.
type user struct {
	owner hostverbs.Owner
	qp    hostverbs.QP
	mr    hostverbs.MR
	ctx   hostverbs.Context
	space *guestmem.Space
	// base and size are where the guest's memory lies.
	base, size uint64
}

// takeaways are the ways to take a requester's memory away from a message that is under way.
var takeaways = []struct {
	name string
	take func(u *user) error
}{
	{"deregistered", func(u *user) error { return u.mr.Dereg() }},
	{"in ERR", func(u *user) error {
		return u.qp.Modify(&hostverbs.QPAttr{QPState: hostverbs.StateErr}, hostverbs.QPStateMask)
	}},
	{"in RESET", func(u *user) error {
		return u.qp.Modify(&hostverbs.QPAttr{QPState: hostverbs.StateReset}, hostverbs.QPStateMask)
	}},
	{"destroyed", func(u *user) error { return u.qp.Destroy() }},
	{"deregistered together with the queue pair's end", func(u *user) (err error) {
		u.ctx.Together(func() { u.owner.Do(func() { err = errors.Join(u.qp.Destroy(), u.mr.Dereg()) }) })
		return err
	}},
	{"unmapped", func(u *user) error { return u.space.Unmap(u.base, u.size) }},
	{"closed", func(u *user) error { return u.ctx.Close() }},
}

// waitsForOwners stops the responder's device in the middle of a message.
func waitsForOwners(t testing.TB, env Env) {
	w := newWorld(t, env)
	for _, way := range takeaways {
		a, b := w.guest(), w.guest()
		near := a.buffer(100)
		ea, eb := w.pair(a, b, nil)
		entered, release := make(chan struct{}), make(chan struct{})
		eb.dev.onPull = func() { close(entered); <-release; eb.dev.onPull = nil }
		eb.recv(rwr(1))
		ea.send(wr(1, hostverbs.OpSend, near.sge(0, 100)))
		visited, taken := make(chan struct{}), make(chan error)
		go func() { w.visit(); close(visited) }()
		<-entered

		go func() { taken <- way.take(&user{a.site.owner, ea.qp, near.mr, a.ctx, a.space, ramBase, ramBytes}) }()

		select {
		case <-taken:
			t.Errorf("%s: the call returned while the responder was at work on the message", way.name)
			close(release)
		case <-time.After(50 * time.Millisecond):
			close(release)
			if err := <-taken; err != nil {
				t.Errorf("%s: %v", way.name, err)
			}
		}
		<-visited
		if way.name == "closed" {
			a.ctx = nil
		}
		w.settle()
		a.depart()
		b.depart()
	}
}

func takenAway(t testing.TB, env Env) {
	runners := openRunners(t, env)
	dom := guestmem.NewDomain()
	b := openStorm(t, env, runners[len(runners)-1], dom, 2)
	far := b.register(t)
	for i := range 5 * len(takeaways) {
		way := takeaways[i%len(takeaways)]
		a := openStorm(t, env, runners[0], dom, 1)
		da, db := &stormDevice{}, &stormDevice{posts: true}
		qa, _ := a.create(t, da)
		qb, _ := b.create(t, db)
		connect(t, qa, qb, b)
		connect(t, qb, qa, a)
		near := a.register(t)
		a.start(da, qa, hostverbs.OpRDMARead, near, far)
		for end := time.Now().Add(10 * time.Second); da.done.Load() < 3; {
			if time.Now().After(end) {
				t.Fatal("nothing moves")
			}
		}

		if err := way.take(&user{a.r.owner, qa, near, a.ctx, a.space, 0, stormBytes}); err != nil {
			t.Fatalf("%s: %v", way.name, err)
		}

		// A late copy is also a data race, which the race detector sees.
		mine := pattern(uint64(i), 1, stormBytes)
		copy(a.ram, mine)
		time.Sleep(2 * time.Millisecond)
		a.r.owner.Do(func() { a.r.busy = nil })
		if !bytes.Equal(a.ram, mine) {
			t.Fatalf("%s: memory was written to afterwards", way.name)
		}
		if way.name != "closed" {
			a.close(t)
		}
		if err := qb.Destroy(); err != nil {
			t.Fatalf("destroy: %v", err)
		}
	}
	b.close(t)
	closeRunners(t, runners)
}

// takenTogether deregisters many regions while a message that uses one of them is under way, and may be with another owner.
func takenTogether(t testing.TB, env Env) {
	const many = 100
	w := newWorld(t, env)
	a, b := w.guest(), w.guest()
	near, far := a.buffer(1<<20), b.buffer(1<<20)
	ea, _ := w.pair(a, b, nil)
	regions := []*region{near}
	for range many {
		regions = append(regions, a.buffer(1))
	}
	ea.send(rdma(1, hostverbs.OpRDMAWrite, far, 0, near.sge(0, 1<<20)))
	w.visit()
	var before []int32
	for _, s := range w.sites {
		before = append(before, s.owner.told.Load())
	}

	a.ctx.Together(func() {
		a.site.owner.Do(func() {
			for _, r := range regions {
				w.want("deregister", r.mr.Dereg(), nil)
			}
		})
	})

	for i, s := range w.sites {
		if n := s.owner.told.Load() - before[i]; s != a.site && n > 1 {
			t.Errorf("another owner was waited for %d times, want once", n)
		}
	}
	w.believe()
	w.settle()
	w.verify("after all")
}
