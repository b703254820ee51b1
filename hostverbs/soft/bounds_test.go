// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// watched is an owner that calls after when it has done something.
type watched struct{ after func() }

func (w *watched) Do(fn func()) {
	fn()
	if w.after != nil {
		w.after()
	}
}

func (*watched) Wake() {}

func TestAGuestWithManyQueuePairsHoldsNobodyUpWhenItsAddressOrItsPortGoes(t *testing.T) {
	const many = 3*controlBatch + 1
	for name, take := range map[string]func(c hostverbs.Context) error{
		"the address": func(c hostverbs.Context) error { return c.UnbindGID(0, hostverbs.GID{15: 1}) },
		"the port":    func(c hostverbs.Context) error { c.SetLink(false); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			// Arrange
			owner := &watched{}
			pl, err := New(nil).NewPoller(owner)
			ok(t, err)
			near, far := strangersAt(t, pl, pl)
			c := near.ctx
			var qps []*qp
			for range many {
				made, err := c.CreateQP(near.pd, &hostverbs.QPInitAttr{Type: hostverbs.QPTypeRC, SendCQ: near.sendCQ, RecvCQ: near.recvCQ}, &deaf{})
				ok(t, err)
				qps = append(qps, made.(*qp))
			}
			know := func() (n int) {
				for _, q := range qps {
					if q.sq.to != nil {
						n++
					}
				}
				return n
			}
			for _, q := range qps {
				q.sq.to = far
			}

			// Act, assert
			left := many
			owner.after = func() {
				if n := left - know(); n > controlBatch {
					t.Errorf("%d queue pairs between two visits, want %d at most", n, controlBatch)
				}
				left = know()
			}
			ok(t, take(c))
			if left != 0 {
				t.Errorf("%d queue pairs remember their peer", left)
			}
		})
	}
}

func TestAnswersThatFoundNoRoomAreSentSomeInEachVisit(t *testing.T) {
	const many = maxCollect + 1
	e := New(nil)
	a, err := e.NewPoller(inline{})
	ok(t, err)
	b, err := e.NewPoller(inline{})
	ok(t, err)
	home, pl := a.(*poller), b.(*poller)
	for range many {
		pl.outbox.push(&parcel{home: home})
	}

	pl.dispatch()

	if n := many - pl.outbox.n; n != maxCollect {
		t.Errorf("%d answers in a visit, want %d", n, maxCollect)
	}
}
