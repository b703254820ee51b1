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

// stormTime is how long the storm lasts, stormBytes the memory of a guest in it.
const (
	stormTime  = 300 * time.Millisecond
	stormBytes = 64 * page
)

// stormGuest is a guest that creates and destroys as fast as it can.
type stormGuest struct {
	r     *runner
	ram   []byte
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

// runner is an owner that never rests: it lets its devices post, and calls Progress.
type runner struct {
	site
	// busy belongs to the owner's thread.
	busy []*stormDevice
}

// openRunners gives the engine owners that run all the time, and ends them when the test ends.
func openRunners(t testing.TB, env Env) (all []*runner) {
	t.Helper()
	for range max(env.Owners, 1) {
		r := &runner{}
		var poller hostverbs.Poller // only once there is something to run
		r.owner = newThread(func() {
			for _, d := range r.busy {
				d.qp.PostSend(d.wr[:])
			}
			if poller != nil {
				_, _ = poller.Progress(env.Clock.Now())
				env.Clock.Until(env.Clock.Now() + int64(10*time.Microsecond))
			}
		})
		t.Cleanup(r.owner.end)
		var err error
		if r.poller, err = env.Provider.NewPoller(r.owner); err != nil {
			t.Fatalf("new poller: %v", err)
		}
		r.owner.Do(func() { poller = r.poller })
		all = append(all, r)
	}
	return all
}

// close ends the engine's part of an owner.
func (r *runner) close(t testing.TB) {
	t.Helper()
	if err := r.poller.Close(); err != nil {
		t.Errorf("close the poller: %v", err)
	}
}

func storm(t testing.TB, env Env) {
	runners := openRunners(t, env)
	dom := guestmem.NewDomain()
	guests := make([]*stormGuest, 3)
	for i := range guests {
		guests[i] = openStorm(t, env, runners[i%len(runners)], dom, byte(i+1))
	}
	busy := connectStorm(t, guests[0], guests[1])

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
	for i, d := range busy {
		if d.done.Load() == 0 {
			t.Errorf("the connection of guest %d moved nothing during the storm", i)
		}
	}
	for _, r := range runners {
		r.owner.Do(func() { r.busy = nil })
	}
	for _, g := range guests {
		g.close(t)
	}
	closeRunners(t, runners)
}

// closeRunners closes all pollers. Nothing calls Progress any more.
func closeRunners(t testing.TB, runners []*runner) {
	t.Helper()
	for _, r := range runners {
		r.owner.rest()
		r.close(t)
	}
}

// close closes what the guest has.
func (g *stormGuest) close(t testing.TB) {
	t.Helper()
	if err := g.ctx.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := g.space.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// openStorm opens a guest with 16 pages.
func openStorm(t testing.TB, env Env, r *runner, dom *guestmem.Domain, n byte) *stormGuest {
	t.Helper()
	g := &stormGuest{r: r, space: dom.NewSpace("storm"), gid: hostverbs.GID{15: n}, ram: make([]byte, stormBytes)}
	g.space.SetBarrier(env.Provider.Barrier)
	if err := g.space.MapBytes(0, g.ram, guestmem.ProtRead|guestmem.ProtWrite); err != nil {
		t.Fatalf("map: %v", err)
	}
	g.pin(t)
	var err error
	if g.ctx, err = r.poller.OpenContext(hostverbs.ContextConfig{Guest: "storm", GIDTableLen: 4}); err != nil {
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

// pin makes the list of all of the guest's pages.
func (g *stormGuest) pin(t testing.TB) {
	t.Helper()
	list := make([]uint64, stormBytes/page)
	for i := range list {
		list[i] = uint64(i) * page
	}
	var err error
	if g.mem, err = g.space.Pin(list, guestmem.ProtRead|guestmem.ProtWrite); err != nil {
		t.Fatalf("pin: %v", err)
	}
}

// create creates a queue pair.
func (g *stormGuest) create(t testing.TB, d *stormDevice) (hostverbs.QP, hostverbs.CQ) {
	t.Helper()
	cq, err := g.ctx.CreateCQ(16)
	if err != nil {
		t.Fatalf("CQ: %v", err)
	}
	q, err := g.ctx.CreateQP(g.pd, initAttr(cq), d)
	if err != nil {
		t.Fatalf("QP: %v", err)
	}
	return q, cq
}

// connect moves a queue pair to RTS.
func connect(t testing.TB, q, peer hostverbs.QP, to *stormGuest) {
	t.Helper()
	l := link{
		access: everything, mtu: hostverbs.MTU4096, timeout: 1, retry: 1, rnrRetry: 7, minRNR: 1,
		rdAtomic: 1, destRdAtomic: 1, dgid: to.gid, dest: peer.QPN(),
	}
	for _, s := range []struct {
		state hostverbs.QPState
		mask  hostverbs.AttrMask
	}{{hostverbs.StateInit, maskInit}, {hostverbs.StateRTR, maskRTR}, {hostverbs.StateRTS, maskRTS}} {
		if err := q.Modify(l.attr(s.state), s.mask); err != nil {
			t.Errorf("modify: %v", err)
		}
	}
}

// register registers all of the guest's memory.
func (g *stormGuest) register(t testing.TB) hostverbs.MR {
	t.Helper()
	m, err := g.ctx.RegMR(g.pd, hostverbs.MRAttr{Memory: g.mem, Length: stormBytes, Access: everything})
	if err != nil {
		t.Fatalf("register: %v", err)
	}
	return m
}

// connectStorm has two guests send to each other for ever.
func connectStorm(t testing.TB, a, b *stormGuest) [2]*stormDevice {
	t.Helper()
	da, db := &stormDevice{posts: true}, &stormDevice{posts: true}
	qa, _ := a.create(t, da)
	qb, _ := b.create(t, db)
	connect(t, qa, qb, b)
	connect(t, qb, qa, a)
	ma, mb := a.register(t), b.register(t)
	a.start(da, qa, hostverbs.OpRDMAWriteWithImm, ma, mb)
	b.start(db, qb, hostverbs.OpRDMAWriteWithImm, mb, ma)
	return [2]*stormDevice{da, db}
}

// start has a device post one request again and again: the first half of the near memory and the second of the far.
func (g *stormGuest) start(d *stormDevice, q hostverbs.QP, op hostverbs.WROpcode, near, far hostverbs.MR) {
	d.qp = q
	d.wr[0] = wr(1, op, hostverbs.SGE{Length: stormBytes / 2, LKey: near.LKey()})
	d.wr[0].RKey, d.wr[0].RemoteAddr = far.RKey(), stormBytes/2
	g.r.owner.Do(func() { g.r.busy = append(g.r.busy, d) })
}

// churn creates, changes and destroys one of everything, with a request under way.
func (g *stormGuest) churn(t testing.TB) {
	q, cq := g.create(t, &stormDevice{})
	connect(t, q, q, g)
	m := g.register(t)
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
