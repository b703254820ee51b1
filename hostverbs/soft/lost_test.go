// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// TestAMessageThatNobodyReceivesMovesOneCounter: its sender learns nothing, so that nothing else tells.
func TestAMessageThatNobodyReceivesMovesOneCounter(t *testing.T) {
	for name, c := range map[string]struct {
		typ  hostverbs.QPType
		lose func(near, far *qp) error
		want DropReason
	}{
		"a datagram, the sender's port is down":   {hostverbs.QPTypeUD, portDown, DropPortDown},
		"a message, the sender's port is down":    {hostverbs.QPTypeUC, portDown, DropPortDown},
		"a datagram, the receiver's port is down": {hostverbs.QPTypeUD, func(_, far *qp) error { return portDown(far, nil) }, DropNoAddress},
		"a message, the receiver's port is down":  {hostverbs.QPTypeUC, func(_, far *qp) error { return portDown(far, nil) }, DropNoAddress},
		"a message without an address": {hostverbs.QPTypeUC, func(near, _ *qp) error {
			return near.ctx.UnbindGID(0, address(near))
		}, DropNoAddress},
		"a datagram to nobody": {hostverbs.QPTypeUD, func(_, far *qp) error { return far.Destroy() }, DropNoQP},
		"a message to nobody":  {hostverbs.QPTypeUC, func(_, far *qp) error { return far.Destroy() }, DropNoQP},
		"a message to one that is connected with another": {hostverbs.QPTypeUC, func(_, far *qp) error {
			far.attr.DestQPNum++
			far.epoch++
			return nil
		}, DropNoQP},
		"a datagram without a receive": {hostverbs.QPTypeUD, func(_, _ *qp) error { return nil }, DropNoReceive},
		"a message without a receive":  {hostverbs.QPTypeUC, func(_, _ *qp) error { return nil }, DropNoReceive},
	} {
		for owners, several := range map[string]bool{"one owner": false, "two owners": true} {
			t.Run(name+", "+owners, func(t *testing.T) {
				near, far := lonely(t, c.typ, several)
				wr := hostverbs.SendWR{Opcode: hostverbs.OpSend, RemoteQPN: far.num, RemoteQKey: 1}
				wr.AH = hostverbs.AHAttr{DGID: address(far), GRH: true, PortNum: 1}
				ok(t, c.lose(near, far))

				if near.PostSend([]hostverbs.SendWR{wr}) != 1 {
					t.Fatal("the message was not taken")
				}
				for now := range int64(3) {
					far.pl.Progress(now + 1)
					near.pl.Progress(now + 1)
				}

				var want [dropReasons]uint64
				want[c.want] = 1
				var got [dropReasons]uint64
				for i := range got {
					got[i] = near.pl.count.live[cntDrops+i]
					if several {
						got[i] += far.pl.count.live[cntDrops+i]
					}
				}
				if got != want || near.sq.busy {
					t.Errorf("drops %v, want %v; busy %t", got, want, near.sq.busy)
				}
			})
		}
	}
}

// portDown takes the port of a queue pair's guest down.
func portDown(q, _ *qp) error { q.ctx.SetLink(false); return nil }

// lonely are two queue pairs of a type in RTS that mean each other, and have no receives.
func lonely(t *testing.T, typ hostverbs.QPType, several bool) (near, far *qp) {
	t.Helper()
	e := New(nil)
	first, err := e.NewPoller(inline{})
	ok(t, err)
	second := first
	if several {
		second, err = e.NewPoller(inline{})
		ok(t, err)
	}
	near, far = strangersOf(t, typ, first, second)
	return near, far
}
