// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"slices"
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/driver"
)

// ending is a way in which queue pair b of a pool goes to ERR, and what the guest's kernel hears of it before it hears that the
// queue pair takes no more receives of the shared queue.
type ending struct {
	name  string
	first []string // the ends of PVRDMA_EVENT_<first>, of the queue pair or, if they begin with SRQ, of the shared queue
	end   func(t *testing.T, a, b *testguest.Endpoint)
	// lasting says that the queue pair cannot be used again.
	lasting bool
}

func endings() []ending {
	return []ending{
		{name: "a command", end: func(t *testing.T, _, b *testguest.Endpoint) {
			if err := b.QP.ToErr(); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "a message for a key that is none", first: []string{"QP_ACCESS_ERR"}, end: func(_ *testing.T, a, b *testguest.Endpoint) {
			to := b.Address()
			to.RKey ^= 0x100
			a.Sent(a.Write(to, 0, 8), "REM_ACCESS_ERR")
		}},
		{name: "a request of its own that fails", end: func(_ *testing.T, a, b *testguest.Endpoint) {
			to := a.Address()
			to.RKey ^= 0x100
			b.Sent(b.Write(to, 0, 8), "REM_ACCESS_ERR")
		}},
		{name: "an index of its send ring", first: []string{"QP_FATAL"}, end: func(t *testing.T, _, b *testguest.Endpoint) {
			send, _ := b.QP.Rings()
			send.SetProd(1<<32 - 1)
			if err := b.QP.RingSend(); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "an index of the shared queue", first: []string{"SRQ_ERR"}, lasting: true, end: func(t *testing.T, _, b *testguest.Endpoint) {
			b.Shape.SRQ.Ring().SetProd(1<<32 - 1)
			if err := b.Shape.SRQ.RingRecv(); err != nil {
				t.Fatal(err)
			}
		}},
	}
}

// hears expects some events of a guest, in any order, each once, and no other.
func hears(t *testing.T, g *testguest.Guest, want []driver.AsyncEvent) {
	t.Helper()
	for len(want) > 0 {
		e, err := g.Dev.WaitAsync(testguest.Patience)
		i := slices.Index(want, e)
		if err != nil || i < 0 {
			t.Fatalf("event %s of %d, error %v; want one of %+v", g.L.ConstName("PVRDMA_EVENT_", e.Type), e.Info, err, want)
		}
		want = slices.Delete(want, i, i+1)
	}
	if e, err := g.Dev.WaitAsync(settle); err == nil {
		t.Errorf("another event: %s of %d", g.L.ConstName("PVRDMA_EVENT_", e.Type), e.Info)
	}
}

// TestAQueuePairInErrorSaysOnceThatItTakesNoMoreOfASharedQueue: the kernel of a guest waits for it when it drains one, and would
// do so for ever.
func TestAQueuePairInErrorSaysOnceThatItTakesNoMoreOfASharedQueue(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		ga, gb := d.guest("a"), d.guest("b")
		for _, e := range endings() {
			t.Run(e.name, func(t *testing.T) {
				p := newPool(t, ga, gb, 1)
				p.post(0, 1)
				a, b := p.a[0], p.b[0]
				rounds := 2
				if e.lasting {
					rounds = 1
				}
				for round := range rounds {
					e.end(t, a, b)
					want := []driver.AsyncEvent{{Type: gb.Const("PVRDMA_EVENT_QP_LAST_WQE_REACHED"), Info: b.QP.Handle}}
					for _, name := range e.first {
						of := b.QP.Handle
						if name == "SRQ_ERR" {
							of = p.srq.Handle
						}
						want = append(want, driver.AsyncEvent{Type: gb.Const("PVRDMA_EVENT_" + name), Info: of})
					}
					hears(t, gb, want)
					b.StateIs("ERR")
					b.Quiet()
					if round+1 < rounds {
						for _, x := range []*testguest.Endpoint{a, b} {
							if err := x.QP.Reset(); err != nil {
								t.Fatal(err)
							}
						}
						testguest.Connect(a, b)
					}
				}
			})
		}
	})
}
