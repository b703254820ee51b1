// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"fmt"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// TestADoorbellOfAnothersObjectDoesNothingAndMovesOneCounter rings through one program's page for the objects of another
// program, of the kernel, of nobody.
func TestADoorbellOfAnothersObjectDoesNothingAndMovesOneCounter(t *testing.T) {
	const page = 1
	objects := []struct {
		name string
		off  uint32
		bits []uint32
	}{
		{"queue pair", abi.UARQPOffset, []uint32{abi.UARQPSend, abi.UARQPRecv, abi.UARQPSend | abi.UARQPRecv}},
		{"completion queue", abi.UARCQOffset, []uint32{abi.UARCQArm, abi.UARCQArmSol}},
		{"shared receive queue", abi.UARSRQOffset, []uint32{abi.UARSRQRecv}},
	}
	for mode, polled := range map[string]bool{"polled": true, "trapped": false} {
		for _, o := range objects {
			for _, owner := range []string{"another program", "the kernel", "nobody"} {
				for _, bits := range o.bits {
					t.Run(fmt.Sprintf("%s, a %s of %s, %#x", mode, o.name, owner, bits), func(t *testing.T) {
						r := newRig(t)
						g := r.idleGuest(defaultConfig(), polled)
						g.activate()
						g.user(page)
						_, pd := g.user(2)
						victims := map[string]*victim{"another program": g.victim(pd), "the kernel": g.victim(g.createPD(0))}
						handle := uint32(0xffffff)
						if v := victims[owner]; v != nil {
							handle = map[uint32]uint32{
								abi.UARQPOffset: v.q.handle, abi.UARCQOffset: v.c.handle, abi.UARSRQOffset: v.s.handle,
							}[o.off]
						}
						before := g.dev.Counters()

						g.ring(page, o.off, bits|handle)
						r.settle()
						r.after(time.Second)
						r.settle()

						for name, v := range victims {
							v.untouched(name)
						}
						if v := g.seen.violations(); v[BadDoorbell] != 1 || len(v) != 1 {
							t.Errorf("violations %v, want one bad_doorbell", v)
						}
						if after := g.dev.Counters(); after != before {
							t.Errorf("counters %+v, before %+v", after, before)
						}
					})
				}
			}
		}
	}
}

// victim is somebody with a send and a receive posted, an entry to be notified of, and an index that would end its shared
// receive queue if it was looked at.
type victim struct {
	g    *guest
	q    *guestQP
	c    *guestCQ
	s    *guestSRQ
	told int // what the engine was told of receives
}

func (g *guest) victim(pd uint32) *victim {
	g.t.Helper()
	v := &victim{g: g, c: g.createCQ(g.dev.pds.get(pd).ctx.handle, 8)}
	v.q, v.s = g.createQP(pd, v.c, v.c), g.createSRQ(pd, 8)
	v.q.modify(hostverbs.StateRTS)
	_ = v.q.complete(hostverbs.WC{})
	v.q.postSends(1)
	v.q.postRecv(2)
	v.s.store32(v.s.at(rxProdTail), 99)
	g.notifier.events()
	v.told = v.q.engine.rings()
	return v
}

func (v *victim) untouched(name string) {
	v.g.t.Helper()
	if n := len(v.q.engine.taken()); n != 0 {
		v.g.t.Errorf("%s: %d requests were served", name, n)
	}
	if n := v.q.engine.rings() - v.told; n != 0 {
		v.g.t.Errorf("%s: the engine was told of receives %d times", name, n)
	}
	if e := v.g.notifier.events(); len(e) != 0 {
		v.g.t.Errorf("%s: events of %v", name, e)
	}
	if v.c.dev().armed != notArmed {
		v.g.t.Errorf("%s: the completion queue is armed", name)
	}
	if v.s.dev().dead || len(v.g.notifier.asyncs()) != 0 {
		v.g.t.Errorf("%s: the shared receive queue was looked at", name)
	}
}

// TestAForeignWordMayHideOneThatIsGood: a program's own objects are served all the same.
func TestAForeignWordMayHideOneThatIsGood(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	q, c := g.rcQP(userPage, 8)
	q.postSends(7)
	q.ring(userPage, abi.UARQPSend)
	g.ring(userPage, abi.UARQPOffset, abi.UARQPSend|0xffffff)
	c.ring(userPage, abi.UARCQArm)
	g.ring(userPage, abi.UARCQOffset, abi.UARCQPoll|0xffffff)
	r.settle()
	if got := ids(q.engine.taken()); len(got) != 1 {
		t.Errorf("the engine took %v", got)
	}
	_ = q.complete(hostverbs.WC{})
	r.settle()
	r.after(DefaultCQGrace)
	r.settle()
	if e := g.notifier.events(); len(e) != 1 {
		t.Errorf("events %v, want one", e)
	}
	if n := g.seen.violations()[BadDoorbell]; n != 2 {
		t.Errorf("%d violations, want 2", n)
	}
}
