// SPDX-License-Identifier: Apache-2.0

package soft_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/hostverbs/soft"
)

// nomads are two guests of which one at a time has an address, each with a queue pair of the same number, and a third guest
// whose queue pair is connected to whoever has the address.
type nomads struct {
	t       *testing.T
	p       hostverbs.Poller
	now     int64
	address hostverbs.GID
	guests  [2]*party
	qs      [2]hostverbs.QP
	devices [2]*sink
	to      *party
	device  *sink
}

const (
	nomadBytes = 1 << 20
	// nomadNumber is the number of both queue pairs, as of guests whose driver takes it for the handle.
	nomadNumber = 2
	// nomadTimeout is a timeout code, nomadPatience the time in ns, and a bit more.
	nomadTimeout  = 18
	nomadPatience = int64(1200 * time.Millisecond)
)

func newNomads(t *testing.T) *nomads {
	guestmem.PrepareGoroutine()
	n := &nomads{t: t, p: must(soft.New(nil).NewPoller(inline{})), now: int64(time.Hour), address: hostverbs.GID{15: 99}}
	dom := guestmem.NewDomain()
	n.to, n.device = join(n.p, dom, 9, nomadBytes), &sink{}
	q := n.to.create(n.device)
	for i := range n.guests {
		g := join(n.p, dom, byte(i+1), nomadBytes)
		n.guests[i], n.devices[i] = g, &sink{none: true}
		copy(g.ram, bytes.Repeat([]byte{byte(i + 1)}, nomadBytes))
		n.qs[i] = must(g.ctx.CreateQP(g.pd, &hostverbs.QPInitAttr{
			QPN: nomadNumber, SendCQ: g.cq, RecvCQ: g.cq, Type: hostverbs.QPTypeRC,
			Cap: hostverbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1},
		}, n.devices[i]))
		n.connect(n.qs[i], q.QPN(), n.to.gid)
	}
	n.connect(q, nomadNumber, n.address)
	n.device.recv = hostverbs.RecvWR{NumSGE: 1}
	n.device.recv.SGE[0] = hostverbs.SGE{Length: nomadBytes, LKey: n.to.mr.LKey()}
	return n
}

func (n *nomads) connect(q hostverbs.QP, number uint32, address hostverbs.GID) {
	a := &hostverbs.QPAttr{
		PortNum: 1, PathMTU: hostverbs.MTU4096, DestQPNum: number, Timeout: nomadTimeout, RetryCnt: 7, MinRNRTimer: 1,
		QPAccessFlags: hostverbs.AccessRemoteWrite, AHAttr: hostverbs.AHAttr{DGID: address, GRH: true, PortNum: 1},
	}
	for s := hostverbs.StateInit; s <= hostverbs.StateRTS; s++ {
		required, _, _ := hostverbs.Transition(hostverbs.QPTypeRC, s-1, s)
		a.QPState = s
		check(q.Modify(a, required|hostverbs.QPStateMask))
	}
}

// settle gives the address to one of the two guests.
func (n *nomads) settle(i int) {
	_ = n.guests[1-i].ctx.UnbindGID(1, n.address) // neither has it at first
	check(n.guests[i].ctx.BindGID(1, n.address, hostverbs.GIDTypeRoCEv2))
}

// post has one of the two send a message that fills the receive.
func (n *nomads) post(i int) {
	wr := hostverbs.SendWR{Opcode: hostverbs.OpSend, Flags: hostverbs.SendSignaled, NumSGE: 1}
	wr.SGE[0] = hostverbs.SGE{Length: nomadBytes, LKey: n.guests[i].mr.LKey()}
	if n.qs[i].PostSend([]hostverbs.SendWR{wr}) != 1 {
		n.t.Fatal("a message was not taken")
	}
}

// work lets the engine make some visits.
func (n *nomads) work(visits int) {
	for range visits {
		n.now += 1000
		n.p.Progress(n.now)
	}
}

// TestTheRestOfAMessageMeansNothingOnceAnotherHasBegun: who has the address again goes on with a message, after somebody else
// had the address, and the receive.
func TestTheRestOfAMessageMeansNothingOnceAnotherHasBegun(t *testing.T) {
	// Arrange: a message is under way, another takes its place and comes further.
	n := newNomads(t)
	n.settle(0)
	n.post(0)
	n.settle(1)
	n.post(1)
	n.work(2)
	if n.device.received != 0 {
		t.Fatal("the second message is not under way any more")
	}

	// Act: the first one's sender has the address back, and tries until it gives up.
	n.settle(0)
	for range 20 {
		n.now += nomadPatience
		n.work(8)
	}

	// Assert
	if d := n.devices[0]; d.sent != 1 || d.bad != hostverbs.WCRetryExcErr {
		t.Errorf("the message that was passed over completed %d times, with %v", d.sent, d.bad)
	}
	if n.device.received != 0 || n.device.bad != hostverbs.WCSuccess {
		t.Errorf("%d receives of messages that have not come to their ends, with %v", n.device.received, n.device.bad)
	}
}
