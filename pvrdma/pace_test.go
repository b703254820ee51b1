// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/hostverbs/gsi"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// startQP1 brings up queue pair 1 as a kernel does.
func (g *guest) startQP1() (*guestQP, *guestCQ) {
	g.t.Helper()
	c := g.createCQ(0, 1024)
	q := g.createQP(g.createPD(0), c, c, func(r *abi.CmdCreateQPReq) { r.QPType, r.MaxSendWR = abi.QPTypeGSI, 256 })
	for to := hostverbs.StateInit; to <= hostverbs.StateRTS; to++ {
		mask, _, _ := hostverbs.Transition(hostverbs.QPTypeGSI, to-1, to)
		g.must(&abi.CmdModifyQPReq{
			Hdr: hdr(abi.CmdModifyQP), QPHandle: q.handle, Attrs: goodAttrs(to-1, to),
			AttrMask: abi.QPAttrMask(mask | hostverbs.QPStateMask),
		}, nil)
	}
	return q, c
}

// flood posts n management datagrams to nobody and returns how many are sent without any time going by.
func (q *guestQP) flood(c *guestCQ, n int) int {
	q.t.Helper()
	q.g.rig.settle() // the engine learns the time
	for range n {
		to := q.address()
		to.AV.DGID = abi.GID{0: 0xfe, 1: 0x80, 15: 9}
		q.putSend(sendWQE(abi.SendWQEHdr{Opcode: abi.WRSend, SendFlags: abi.SendSignaled}, to))
	}
	q.publishSends()
	q.ring(0, abi.UARQPSend)
	q.g.rig.settle()
	return len(c.poll())
}

func TestAGuestGetsNoSecondBurstOfManagementDatagramsByAReset(t *testing.T) {
	r, g := softGuest(t)
	q, c := g.startQP1()
	if n := q.flood(c, gsi.Burst+9); n != gsi.Burst {
		t.Fatalf("%d are sent at once, want a burst of %d", n, gsi.Burst)
	}
	for _, how := range []string{"a reset", "another one"} {
		if err := g.dev.Reset(); err != nil {
			t.Fatal(err)
		}
		g.next = guestBase
		g.restart()
		q, c = g.startQP1()
		if n := q.flood(c, 9); n != 0 {
			t.Errorf("%d are sent at once after %s", n, how)
		}
	}
	r.after(20 * gsi.Interval)
	r.settle()
	if n := len(c.poll()); n != 9 {
		t.Errorf("%d are sent after 20 intervals, want all 9", n)
	}
}
