// SPDX-License-Identifier: Apache-2.0

package soft_test

import (
	"bytes"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/hostverbs/soft"
)

// Two guests do anything in any order. Whatever they do, the engine does not panic, completes every request at most
// once and in order, completes every receive exactly once and in order, and touches registered memory only.

const (
	chaosPages = 8
	// chaosFirst is where the registered memory begins; there are two pages of it.
	chaosFirst = 3 * guestmem.PageSize
	chaosBytes = 2 * guestmem.PageSize
	chaosStart = 0x10_0000
)

// posted is a request that the model waits for.
type posted struct {
	id     uint64
	silent bool // it completes only if it fails
}

// chaosQP is a queue pair, its device, and what the model knows of it.
type chaosQP struct {
	t     *rapid.T
	g     *chaosGuest
	typ   hostverbs.QPType
	q     hostverbs.QP
	rung  []hostverbs.SendWR
	rq    []hostverbs.RecvWR
	sends []posted
	recvs []uint64
	ready bool
}

type chaosGuest struct {
	*party
	mem *guestmem.Pages
	qs  [len(chaosTypes)]*chaosQP
}

// chaosTypes are the types of a guest's queue pairs. Those of datagrams send to each other.
var chaosTypes = [...]hostverbs.QPType{
	hostverbs.QPTypeRC, hostverbs.QPTypeRC, hostverbs.QPTypeRC, hostverbs.QPTypeUC, hostverbs.QPTypeUD, hostverbs.QPTypeUD,
}

type chaos struct {
	t      *rapid.T
	p      hostverbs.Poller
	now    int64
	guests [2]*chaosGuest
	id     uint64
}

func (d *chaosQP) PullRecv(wr *hostverbs.RecvWR) (bool, error) {
	if len(d.rq) == 0 {
		return false, nil
	}
	*wr = d.rq[0]
	d.rq = d.rq[1:]
	return true, nil
}

func (d *chaosQP) CompleteSend(wc *hostverbs.WC) error {
	for len(d.sends) > 0 {
		s := d.sends[0]
		d.sends = d.sends[1:]
		if s.id == wc.WRID {
			if s.silent && wc.Status == hostverbs.WCSuccess {
				d.t.Fatalf("the unsignalled request %d completed", s.id)
			}
			return nil
		}
		if !s.silent {
			d.t.Fatalf("request %d was passed over by %d (%s)", s.id, wc.WRID, wc.Status)
		}
	}
	d.t.Fatalf("nobody waits for the completion of request %d (%s)", wc.WRID, wc.Status)
	return nil
}

func (d *chaosQP) CompleteRecv(wc *hostverbs.WC) error {
	if len(d.recvs) == 0 || d.recvs[0] != wc.WRID {
		d.t.Fatalf("receive %d completed (%s), want one of %v in order", wc.WRID, wc.Status, d.recvs)
	}
	d.recvs = d.recvs[1:]
	return nil
}

func (d *chaosQP) SendReady()                { d.ready = true }
func (d *chaosQP) Event(hostverbs.EventType) {}

// newChaos opens two guests with connected queue pairs.
func newChaos(t *rapid.T) *chaos {
	c := &chaos{t: t, p: must(soft.New(nil).NewPoller(inline{})), now: int64(time.Hour)}
	dom := guestmem.NewDomain()
	for i := range c.guests {
		g := &chaosGuest{party: join(c.p, dom, byte(i+1), chaosPages*guestmem.PageSize)}
		c.guests[i] = g
		space := dom.NewSpace("chaos")
		prot := guestmem.ProtRead | guestmem.ProtWrite
		check(space.MapBytes(0, g.ram, prot))
		g.mem = must(space.Pin([]uint64{chaosFirst, chaosFirst + guestmem.PageSize}, prot))
		check(g.mr.Dereg())
		for i := range g.ram {
			g.ram[i] = 0x55
		}
		g.register()
	}
	for i := range c.guests[0].qs {
		a := &chaosQP{t: t, g: c.guests[0], typ: chaosTypes[i]}
		b := &chaosQP{t: t, g: c.guests[1], typ: chaosTypes[i]}
		a.g.qs[i], b.g.qs[i] = a, b
		a.q, b.q = a.g.createAs(a.typ, a), b.g.createAs(b.typ, b)
		a.connect(b)
		b.connect(a)
	}
	return c
}

// connect brings the queue pair to RTS.
func (d *chaosQP) connect(peer *chaosQP) { connectAs(d.typ, d.q, peer.q, peer.g.party) }

// register registers the two pages in the middle of the guest's memory.
func (g *chaosGuest) register() {
	g.mr = must(g.ctx.RegMR(g.pd, hostverbs.MRAttr{
		Memory: g.mem, Start: chaosStart, Length: chaosBytes,
		Access: hostverbs.AccessLocalWrite | hostverbs.AccessRemoteWrite | hostverbs.AccessRemoteRead,
	}))
}

// pick draws one of the queue pairs, and the one it is connected with.
func (c *chaos) pick() (d, peer *chaosQP) {
	g, i := rapid.IntRange(0, 1).Draw(c.t, "guest"), rapid.IntRange(0, len(chaosTypes)-1).Draw(c.t, "QP")
	return c.guests[g].qs[i], c.guests[1-g].qs[i]
}

// sges draws a list that is good most of the time.
func (c *chaos) sges(g *chaosGuest, to *[hostverbs.MaxSGE]hostverbs.SGE) uint8 {
	n := rapid.IntRange(0, 5).Draw(c.t, "entries")
	for i := range n {
		to[i] = hostverbs.SGE{
			Addr:   chaosStart + rapid.Uint64Range(0, chaosBytes).Draw(c.t, "offset"),
			Length: rapid.Uint32Range(0, 3000).Draw(c.t, "length"),
			LKey:   g.mr.LKey(),
		}
		if rapid.IntRange(0, 20).Draw(c.t, "spoil") == 0 {
			to[i].Addr, to[i].LKey = rapid.Uint64().Draw(c.t, "address"), rapid.Uint32().Draw(c.t, "key")
		}
	}
	return uint8(n)
}

func (c *chaos) postSend() {
	d, peer := c.pick()
	c.id++
	wr := hostverbs.SendWR{
		WRID:       c.id,
		Opcode:     hostverbs.WROpcode(rapid.SampledFrom([]int{1, 1, 2, 4, 4, 5, 6, 6, 0, 3, 7, 9, 200}).Draw(c.t, "opcode")),
		Flags:      hostverbs.SendFlags(rapid.Uint8Range(0, 7).Draw(c.t, "flags")),
		RemoteAddr: chaosStart + rapid.Uint64Range(0, chaosBytes/2).Draw(c.t, "remote offset"),
		RKey:       peer.g.mr.RKey(),
	}
	wr.NumSGE = c.sges(d.g, &wr.SGE)
	if d.typ == hostverbs.QPTypeUD {
		c.address(&wr, peer)
	}
	d.sends = append(d.sends, posted{c.id, wr.Flags&hostverbs.SendSignaled == 0})
	d.rung = append(d.rung, wr)
	d.ready = true
}

// address draws where a datagram goes: mostly to the peer.
func (c *chaos) address(wr *hostverbs.SendWR, peer *chaosQP) {
	wr.RemoteQPN, wr.AH = peer.q.QPN(), hostverbs.AHAttr{DGID: peer.g.gid, GRH: true, PortNum: 1}
	switch rapid.IntRange(0, 12).Draw(c.t, "address") {
	case 0:
		wr.RemoteQPN = rapid.Uint32().Draw(c.t, "QP number")
	case 1:
		wr.AH.DGID[15] = rapid.Byte().Draw(c.t, "GID")
	case 2:
		wr.AH.SGIDIndex = rapid.Byte().Draw(c.t, "SGID index")
	case 3:
		wr.RemoteQKey = rapid.Uint32().Draw(c.t, "Q_Key")
	}
}

func (c *chaos) postRecv() {
	d, _ := c.pick()
	c.id++
	wr := hostverbs.RecvWR{WRID: c.id}
	wr.NumSGE = c.sges(d.g, &wr.SGE)
	d.recvs = append(d.recvs, c.id)
	d.rq = append(d.rq, wr)
	d.q.RecvPosted()
}

// work rings the doorbells and lets some time pass.
func (c *chaos) work() {
	for range rapid.IntRange(1, 4).Draw(c.t, "passes") {
		c.pass()
		c.now += rapid.Int64Range(0, 50_000).Draw(c.t, "time")
	}
}

func (c *chaos) pass() {
	for _, g := range c.guests {
		for _, d := range g.qs {
			if d.ready {
				d.ready = false
				d.rung = d.rung[d.q.PostSend(d.rung):]
			}
		}
	}
	c.p.Progress(c.now)
}

func (c *chaos) fail() {
	d, _ := c.pick()
	// RESET cannot go to ERR; everything else can.
	_ = d.q.Modify(&hostverbs.QPAttr{QPState: hostverbs.StateErr}, hostverbs.QPStateMask)
}

func (c *chaos) drain() {
	d, _ := c.pick()
	next := rapid.SampledFrom([]hostverbs.QPState{hostverbs.StateSQD, hostverbs.StateRTS}).Draw(c.t, "state")
	_ = d.q.Modify(&hostverbs.QPAttr{QPState: next}, hostverbs.QPStateMask)
}

// renew resets a queue pair, and perhaps its peer, and connects it again.
func (c *chaos) renew() {
	d, peer := c.pick()
	both := []*chaosQP{d, peer}
	for _, e := range both[:rapid.IntRange(1, 2).Draw(c.t, "sides")] {
		other := d
		if e == d {
			other = peer
		}
		check(e.q.Modify(&hostverbs.QPAttr{QPState: hostverbs.StateReset}, hostverbs.QPStateMask))
		e.forget()
		e.connect(other)
	}
}

// forget is what a device does after a RESET.
func (d *chaosQP) forget() { d.rung, d.rq, d.sends, d.recvs = nil, nil, nil, nil }

// replace destroys a queue pair, of whose requests nobody must hear any more, and creates another one.
func (c *chaos) replace() {
	d, peer := c.pick()
	check(d.q.Destroy())
	d.forget()
	d.q = d.g.createAs(d.typ, d)
	d.connect(peer)
}

func (c *chaos) reregister() {
	d, _ := c.pick()
	check(d.g.mr.Dereg())
	d.g.register()
}

func (c *chaos) rebind() {
	d, _ := c.pick()
	check(d.g.ctx.UnbindGID(0, d.g.gid))
	c.work()
	check(d.g.ctx.BindGID(0, d.g.gid, hostverbs.GIDTypeRoCEv2))
}

// end moves everything to ERR and expects that nothing is owed to anybody.
func (c *chaos) end() {
	for _, g := range c.guests {
		for _, d := range g.qs {
			check(d.q.Modify(&hostverbs.QPAttr{QPState: hostverbs.StateErr}, hostverbs.QPStateMask))
			c.id++
			d.rung = append(d.rung, hostverbs.SendWR{WRID: c.id})
			d.sends = append(d.sends, posted{c.id, true})
			d.ready = true
		}
	}
	for range 100 {
		c.pass()
	}
	edge := bytes.Repeat([]byte{0x55}, chaosFirst)
	for _, g := range c.guests {
		for i, d := range g.qs {
			if len(d.sends)+len(d.recvs) != 0 {
				c.t.Fatalf("QP %d in ERR owes completions of %d requests and %d receives", i, len(d.sends), len(d.recvs))
			}
		}
		if !bytes.HasPrefix(g.ram, edge) || !bytes.HasSuffix(g.ram, edge) {
			c.t.Fatal("memory that is not registered has changed")
		}
		check(g.ctx.Close())
	}
	check(c.p.Close())
}

func TestWhateverGuestsDoEveryRequestCompletesOnceAndInOrder(t *testing.T) {
	guestmem.PrepareGoroutine()
	rapid.Check(t, func(t *rapid.T) {
		c := newChaos(t)
		steps := []func(){
			c.postSend, c.postSend, c.postSend, c.postSend, c.postRecv, c.postRecv, c.postRecv, c.work, c.work,
			c.fail, c.drain, c.renew, c.replace, c.reregister, c.rebind,
		}
		for range rapid.IntRange(10, 120).Draw(t, "steps") {
			rapid.SampledFrom(steps).Draw(t, "step")()
		}
		c.end()
	})
}
