// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
)

// connectCommands is how many commands one connection takes, from the completion queue to the end of it.
const connectCommands = 7

// connectRequest describes connections for the guests' process to make and end. Bare makes as many bare round trips.
type connectRequest struct {
	Bare bool
	Time time.Duration
}

// measureConnect measures how many connections a guest can make and end in a second. Its bound is the register accesses
// that they take, against nobody.
func measureConnect(b *bench) (_ []result, err error) {
	w, err := b.open(worldOptions{Pairs: 1, Queues: 1, Depth: smallDepth, Bytes: smallSize * smallSlots, Sleeps: true})
	if err != nil {
		return nil, err
	}
	defer w.close()
	if err := w.d.pinOthers(b.guestCPU); err != nil {
		return nil, err
	}
	near, err := startProcess(roleFar, b.guestCPU)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, near.stop()) }()
	var bare answerRequest
	if err := w.guest.call("bare door", nil, &bare); err != nil {
		return nil, err
	}
	if err := near.begin("answer", bare); err != nil {
		return nil, err
	}
	perSecond := func(bare bool) func() (float64, error) {
		return func() (float64, error) {
			if bare {
				w.hold()
			} else {
				w.release()
			}
			var a flowAnswer
			err := w.guest.call("connect", connectRequest{Bare: bare, Time: b.turn}, &a)
			return 1e9 / a.PerMessage, err
		}
	}
	r, err := b.turns("connections made and ended", "/s", fmt.Sprintf("%d bare round trips", 2*connectCommands),
		perSecond(false), perSecond(true), aim{})
	if err != nil {
		return nil, err
	}
	return []result{r}, errors.Join(w.guest.call("shut", nil, nil), near.end(nil))
}

// connectStorm makes and ends connections one after the other for a while.
func connectStorm(c *child, q connectRequest) (flowAnswer, error) {
	a, b := c.guests[0].a, c.guests[0].b
	if q.Bare {
		return latencyOf(q.Time, func(int) error {
			for range connectCommands {
				if _, err := c.doors.bare.command(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return latencyOf(q.Time, func(int) error { return connectOnce(a, b) })
}

// connectOnce makes a completion queue and a queue pair, takes it to RTS, and ends both.
func connectOnce(e, peer *end) error {
	cq, err := e.ctx.CreateCQ(smallDepth)
	if err != nil {
		return err
	}
	qp, err := e.pd.CreateQP(verbs.QPInit{
		SendCQ: cq, RecvCQ: cq, Type: e.m.L.Const("PVRDMA_QPT_RC"), MaxSendWR: smallDepth, MaxRecvWR: smallDepth,
		MaxSendSGE: 1, MaxRecvSGE: 1, SignalAll: true,
	})
	if err != nil {
		return err
	}
	return errors.Join(connectQP(e, qp, peer.m, peer.qps[0].QPN), qp.Destroy(), cq.Destroy())
}
