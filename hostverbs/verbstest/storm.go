// SPDX-License-Identifier: Apache-2.0

package verbstest

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// stormCases are about control calls while the data path runs.
func stormCases() []Case {
	return []Case{
		{"control calls of several guests and traffic do not disturb each other", storm},
	}
}

// stormTime is how long the storm lasts.
const stormTime = 300 * time.Millisecond

// stormGuest is a guest that creates and destroys as fast as it can.
type stormGuest struct {
	ctx   hostverbs.Context
	pd    hostverbs.PD
	mem   *guestmem.Pages
	gid   hostverbs.GID
	space *guestmem.Space
}

// stormDevice posts a request whenever it may. It belongs to the owner's thread.
type stormDevice struct {
	qp    hostverbs.QP
	wr    [1]hostverbs.SendWR
	done  atomic.Int64
	posts bool
}

func (d *stormDevice) PullRecv(wr *hostverbs.RecvWR) (bool, error) {
	*wr = hostverbs.RecvWR{}
	return d.posts, nil
}
func (d *stormDevice) CompleteSend(*hostverbs.WC) error { d.done.Add(1); return nil }
func (d *stormDevice) CompleteRecv(*hostverbs.WC) error { return nil }
func (d *stormDevice) SendReady()                       {}
func (d *stormDevice) Event(hostverbs.EventType)        {}

func storm(t testing.TB, env Env) {
	var poller hostverbs.Poller
	var busy [2]stormDevice
	clock := env.Clock
	// idle runs on the owner's thread all the time, but only once there is something to run.
	idle := func() {
		if poller == nil {
			return
		}
		for i := range busy {
			if busy[i].qp != nil {
				busy[i].qp.PostSend(busy[i].wr[:])
			}
		}
		_, _ = poller.Progress(clock.Now())
		clock.Until(clock.Now() + int64(10*time.Microsecond))
	}
	owner := newThread(idle)
	defer owner.end()
	p, err := env.Provider.NewPoller(owner)
	if err != nil {
		t.Fatalf("new poller: %v", err)
	}
	owner.Do(func() { poller = p })
	dom := guestmem.NewDomain()
	guests := make([]*stormGuest, 3)
	for i := range guests {
		guests[i] = openStorm(t, p, dom, owner, byte(i+1))
	}
	guests[0].traffic(t, owner, &busy[0])
	guests[1].traffic(t, owner, &busy[1])

	var wait sync.WaitGroup
	end := time.Now().Add(stormTime)
	for _, g := range guests {
		wait.Go(func() {
			for time.Now().Before(end) {
				g.churn(t)
			}
		})
	}
	wait.Wait()
	for i := range busy {
		if busy[i].done.Load() == 0 {
			t.Errorf("the connection of guest %d moved nothing during the storm", i)
		}
	}
	owner.Do(func() {
		for i := range busy {
			busy[i].qp = nil
		}
	})
	for _, g := range guests {
		if err := g.ctx.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := g.space.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	owner.Do(func() { poller = nil })
	if err := p.Close(); err != nil {
		t.Errorf("close the poller: %v", err)
	}
}

// openStorm opens a guest with 16 pages.
func openStorm(t testing.TB, p hostverbs.Poller, dom *guestmem.Domain, owner *thread, n byte) *stormGuest {
	t.Helper()
	g := &stormGuest{space: dom.NewSpace("storm"), gid: hostverbs.GID{15: n}}
	g.space.SetBarrier(func() { owner.Do(func() {}) })
	prot := guestmem.ProtRead | guestmem.ProtWrite
	if err := g.space.MapBytes(0, make([]byte, 16*page), prot); err != nil {
		t.Fatalf("map: %v", err)
	}
	list := make([]uint64, 16)
	for i := range list {
		list[i] = uint64(i) * page
	}
	var err error
	if g.mem, err = g.space.Pin(list, prot); err != nil {
		t.Fatalf("pin: %v", err)
	}
	if g.ctx, err = p.OpenContext(hostverbs.ContextConfig{Guest: "storm", GIDTableLen: 4}); err != nil {
		t.Fatalf("open: %v", err)
	}
	if g.pd, err = g.ctx.AllocPD(); err != nil {
		t.Fatalf("PD: %v", err)
	}
	if err = g.ctx.BindGID(0, g.gid, v2); err != nil {
		t.Fatalf("bind: %v", err)
	}
	return g
}

// rc creates a queue pair that is its own peer.
func (g *stormGuest) rc(t testing.TB, d *stormDevice) (hostverbs.QP, hostverbs.CQ) {
	cq, err := g.ctx.CreateCQ(16)
	if err != nil {
		t.Errorf("CQ: %v", err)
		return nil, nil
	}
	q, err := g.ctx.CreateQP(g.pd, initAttr(cq), d)
	if err != nil {
		t.Errorf("QP: %v", err)
		return nil, nil
	}
	l := link{
		access: everything, mtu: hostverbs.MTU4096, timeout: 1, retry: 1, rnrRetry: 7, minRNR: 1,
		rdAtomic: 1, destRdAtomic: 1, dgid: g.gid, dest: q.QPN(),
	}
	for _, s := range []struct {
		state hostverbs.QPState
		mask  hostverbs.AttrMask
	}{{hostverbs.StateInit, maskInit}, {hostverbs.StateRTR, maskRTR}, {hostverbs.StateRTS, maskRTS}} {
		if err := q.Modify(l.attr(s.state), s.mask); err != nil {
			t.Errorf("modify: %v", err)
		}
	}
	return q, cq
}

// traffic starts a connection that sends to itself for ever.
func (g *stormGuest) traffic(t testing.TB, owner *thread, d *stormDevice) {
	q, _ := g.rc(t, d)
	m, err := g.ctx.RegMR(g.pd, hostverbs.MRAttr{Memory: g.mem, Length: 16 * page, Access: everything})
	if err != nil {
		t.Fatalf("register: %v", err)
	}
	d.posts = true
	d.wr[0] = wr(1, hostverbs.OpSendWithImm, hostverbs.SGE{Length: 0})
	d.wr[0].Opcode, d.wr[0].RKey = hostverbs.OpRDMAWriteWithImm, m.RKey()
	d.wr[0].SGE[0] = hostverbs.SGE{Length: 8 * page, LKey: m.LKey()}
	d.wr[0].RemoteAddr = 8 * page
	owner.Do(func() { d.qp = q })
}

// churn creates, changes and destroys one of everything, with a request under way.
func (g *stormGuest) churn(t testing.TB) {
	d := &stormDevice{}
	q, cq := g.rc(t, d)
	m, err := g.ctx.RegMR(g.pd, hostverbs.MRAttr{Memory: g.mem, Length: 16 * page, Access: everything})
	if err != nil {
		t.Errorf("register: %v", err)
		return
	}
	other := g.gid
	other[0] = 1
	for _, err := range []error{
		g.ctx.BindGID(1, other, v2),
		q.Modify(&hostverbs.QPAttr{QPState: hostverbs.StateErr}, hostverbs.QPStateMask),
		g.ctx.UnbindGID(1, other),
		m.Dereg(), q.Destroy(), cq.Destroy(),
	} {
		if err != nil {
			t.Errorf("churn: %v", err)
		}
	}
}
