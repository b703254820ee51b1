// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// TestAQueuePairThatEndsIsNotRememberedByItsPeer: what is remembered keeps a guest that is gone in memory.
func TestAQueuePairThatEndsIsNotRememberedByItsPeer(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(t *testing.T, near, far *qp)
	}{
		{"destroyed", func(t *testing.T, _, far *qp) { ok(t, far.Destroy()) }},
		{"reset", func(t *testing.T, _, far *qp) {
			ok(t, far.Modify(&hostverbs.QPAttr{QPState: hostverbs.StateReset}, hostverbs.QPStateMask))
		}},
		{"of a guest that is gone", func(t *testing.T, _, far *qp) { ok(t, far.ctx.Close()) }},
		{"destroyed after the peer has lost its address", func(t *testing.T, near, far *qp) {
			ok(t, near.ctx.UnbindGID(0, address(near)), far.Destroy())
		}},
		{"destroyed after the peer has another address", func(t *testing.T, near, far *qp) {
			ok(t, near.ctx.BindGID(0, hostverbs.GID{15: 99}, hostverbs.GIDTypeRoCEv2), far.Destroy())
		}},
		{"destroyed after the port of the peer went down", func(t *testing.T, near, far *qp) {
			near.ctx.SetLink(false)
			ok(t, far.Destroy())
		}},
		{"destroyed after it has taken another address for its peer's", func(t *testing.T, _, far *qp) {
			other := hostverbs.QPAttr{QPState: hostverbs.StateSQD}
			ok(t, far.Modify(&other, hostverbs.QPStateMask))
			far.pl.Progress(2)
			other.AHAttr = far.attr.AHAttr
			other.AHAttr.DGID[14]++
			ok(t, far.Modify(&other, hostverbs.QPStateMask|hostverbs.QPAV), far.Destroy())
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			near, far := strangers(t)
			wr := hostverbs.SendWR{Opcode: hostverbs.OpSend, Flags: hostverbs.SendSignaled}
			near.PostSend([]hostverbs.SendWR{wr})
			near.pl.Progress(1)
			if near.sq.to != far {
				t.Fatal("the peer was not found")
			}

			c.end(t, near, far)

			if near.sq.to != nil {
				t.Error("it is remembered")
			}
		})
	}
}

// address is the address of the guest of a queue pair.
func address(q *qp) hostverbs.GID { return q.ctx.gids[0].gid }

// strangers are queue pairs of two guests in RTS, connected to each other. They have one number.
func strangers(t *testing.T) (near, far *qp) {
	t.Helper()
	pl, err := New(nil).NewPoller(inline{})
	ok(t, err)
	return strangersAt(t, pl, pl)
}

// strangersAt are strangers at two pollers.
func strangersAt(t *testing.T, pollers ...hostverbs.Poller) (near, far *qp) {
	t.Helper()
	return strangersOf(t, hostverbs.QPTypeRC, pollers...)
}

// strangersOf are strangers of a type.
func strangersOf(t *testing.T, typ hostverbs.QPType, pollers ...hostverbs.Poller) (near, far *qp) {
	t.Helper()
	var qps [2]*qp
	for i, pl := range pollers {
		ctx, err := pl.OpenContext(hostverbs.ContextConfig{Guest: string(rune('a' + i)), GIDTableLen: 2})
		ok(t, err, ctx.BindGID(0, hostverbs.GID{15: byte(i + 1)}, hostverbs.GIDTypeRoCEv2))
		pd, err := ctx.AllocPD()
		ok(t, err)
		cq, err := ctx.CreateCQ(16)
		ok(t, err)
		made, err := ctx.CreateQP(pd, &hostverbs.QPInitAttr{
			SendCQ: cq, RecvCQ: cq, Type: typ, QPN: 5,
			Cap: hostverbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1},
		}, &deaf{})
		ok(t, err)
		qps[i] = made.(*qp)
	}
	near, far = qps[0], qps[1]
	join(t, near, far)
	join(t, far, near)
	return near, far
}

// join moves a queue pair to RTS, with another one as its peer.
func join(t *testing.T, q, peer *qp) {
	t.Helper()
	for _, to := range []hostverbs.QPState{hostverbs.StateInit, hostverbs.StateRTR, hostverbs.StateRTS} {
		required, _, _ := hostverbs.Transition(q.typ, q.attr.QPState, to)
		attr := goodAttr(q.attr.QPState, to)
		attr.DestQPNum, attr.AHAttr.DGID, attr.SQPSN, attr.RQPSN = peer.num, address(peer), 1, 1
		ok(t, q.Modify(&attr, required|hostverbs.QPStateMask))
	}
}

// TestNoTwoQueuePairsHaveOneIncarnation: a message that one has let in must mean nothing to another, also not to one with the
// same number at another owner, to which its address has moved.
func TestNoTwoQueuePairsHaveOneIncarnation(t *testing.T) {
	e := New(nil)
	var pollers []hostverbs.Poller
	for range 2 {
		pl, err := e.NewPoller(inline{})
		ok(t, err)
		pollers = append(pollers, pl)
	}

	near, far := strangersAt(t, pollers...)

	seen := map[uint64]bool{}
	for range 3 {
		for _, q := range []*qp{near, far} {
			if seen[q.incarnation] || q.incarnation == 0 {
				t.Errorf("incarnation %d of a queue pair is 0, or was there before", q.incarnation)
			}
			seen[q.incarnation] = true
			ok(t, q.Modify(&hostverbs.QPAttr{QPState: hostverbs.StateReset}, hostverbs.QPStateMask))
		}
	}
}
