// SPDX-License-Identifier: Apache-2.0

package soft_test

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
)

const (
	stormQPs     = 6
	stormRegions = 3
	stormFast    = 2
	// stormPages is how many pages a region has, stormEdge those at either end of a guest's memory that nothing names.
	stormPages = 48
	stormEdge  = 2
	stormSize  = stormPages * guestmem.PageSize
	stormStart = 0x10_0000_0000
	stormAll   = hostverbs.AccessLocalWrite | hostverbs.AccessRemoteWrite | hostverbs.AccessRemoteRead |
		hostverbs.AccessRemoteAtomic
	stormQKey = 0x1234
)

// stormRegion is what everybody may know of a region.
type stormRegion struct {
	key   uint32
	start uint64
	n     uint64
}

// stormPeer is what everybody may know of a queue pair.
type stormPeer struct {
	guest *stormGuest
	gid   hostverbs.GID
	qpn   uint32
}

// stormGuest is a guest. mu is held during its control calls, of which other guests may make some.
type stormGuest struct {
	w     *stormWorld
	n     int
	rnd   *rand.Rand
	own   hostverbs.GID
	space *guestmem.Space
	ram   []byte
	// regions and peers are known to all threads: of regions for registration, of those for fast registration.
	regions [stormRegions + stormFast]atomic.Pointer[stormRegion]
	peers   [stormQPs]atomic.Pointer[stormPeer]

	mu    sync.Mutex
	owner *stormOwner
	ctx   hostverbs.Context
	pd    hostverbs.PD
	cq    hostverbs.CQ
	srq   *stormSRQ
	qps   [stormQPs]*stormQP
	mrs   [stormRegions]hostverbs.MR
	mems  [stormRegions]*guestmem.Pages
	fast  [stormFast]*stormSource // written on the owner's thread, which reads it too
	gids  [4]hostverbs.GID
}

func newStormGuest(w *stormWorld, n int, rnd *rand.Rand) *stormGuest {
	pages := 2*stormEdge + (stormRegions+stormFast)*stormPages
	g := &stormGuest{w: w, n: n, rnd: rnd, own: hostverbs.GID{15: byte(n + 1)}}
	// Not of the heap: messages may have memory in common, and the race detector knows no guests.
	g.ram = must(unix.Mmap(-1, 0, pages*guestmem.PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE))
	for i := range g.ram {
		g.ram[i] = 0x55
	}
	g.space = w.dom.NewSpace("storm")
	g.space.SetBarrier(w.engine.Barrier)
	check(g.space.MapBytes(0, g.ram, guestmem.ProtRead|guestmem.ProtWrite))
	g.open()
	return g
}

// at is where a region's memory begins.
func (g *stormGuest) at(i int) int { return (stormEdge + i*stormPages) * guestmem.PageSize }

func (g *stormGuest) pages(i int) (list []uint64) {
	for p := range uint64(stormPages) {
		list = append(list, uint64(g.at(i))+p*guestmem.PageSize)
	}
	return list
}

// open opens the engine at any owner.
func (g *stormGuest) open() {
	g.owner = g.w.owners[g.rnd.IntN(len(g.w.owners))]
	g.ctx = must(g.owner.poller.OpenContext(hostverbs.ContextConfig{Guest: "storm", GIDTableLen: len(g.gids)}))
	g.pd, g.cq = must(g.ctx.AllocPD()), must(g.ctx.CreateCQ(16))
	g.srq = &stormSRQ{g: g, pulled: map[uint64]bool{}}
	g.srq.srq = must(g.ctx.CreateSRQ(g.pd, hostverbs.SRQAttr{MaxWR: 64, MaxSGE: 4}, g.srq))
	g.bind(0, g.own)
	for i := range g.mrs {
		g.register(i)
	}
	for i := range g.fast {
		g.allocate(i)
	}
	for i := range g.qps {
		g.create(i)
	}
}

// leave closes it.
func (g *stormGuest) leave() {
	check(g.ctx.Close())
	for i, q := range g.qps {
		g.peers[i].Store(nil)
		g.owner.Do(q.over)
	}
	for i := range g.regions {
		g.regions[i].Store(nil)
	}
	for _, m := range g.mems {
		m.Release()
	}
	for _, f := range g.fast {
		f.mem.Release()
	}
	g.gids = [len(g.gids)]hostverbs.GID{}
}

// reopen closes the engine under whatever is going on, and opens it again.
func (g *stormGuest) reopen() {
	g.leave()
	g.left(0, len(g.ram)/guestmem.PageSize)
	g.open()
}

// left writes into memory that the engine must not reach any more, and looks whether it does.
func (g *stormGuest) left(first, n int) {
	b := g.ram[first*guestmem.PageSize : (first+n)*guestmem.PageSize]
	edge := stormEdge * guestmem.PageSize
	if first == 0 {
		b = b[edge : len(b)-edge]
	}
	v := byte(g.rnd.Uint32())
	for i := range b {
		b[i] = v
	}
	time.Sleep(time.Duration(g.rnd.IntN(300)) * time.Microsecond)
	if bytes.Count(b, []byte{v}) != len(b) {
		g.w.fault("memory of guest %d was reached after it was given up", g.n)
	}
}

func (g *stormGuest) edges() {
	n := stormEdge * guestmem.PageSize
	if bytes.Count(g.ram[:n], []byte{0x55}) != n || bytes.Count(g.ram[len(g.ram)-n:], []byte{0x55}) != n {
		g.w.fault("memory of guest %d that nothing names was reached", g.n)
	}
}

func (g *stormGuest) register(i int) {
	g.mems[i] = must(g.space.Pin(g.pages(i), guestmem.ProtRead|guestmem.ProtWrite))
	start := stormStart + uint64(g.rnd.IntN(64))*8
	g.mrs[i] = must(g.ctx.RegMR(g.pd, hostverbs.MRAttr{Memory: g.mems[i], Start: start, Length: stormSize, Access: stormAll}))
	g.regions[i].Store(&stormRegion{g.mrs[i].LKey(), start, stormSize})
}

func (g *stormGuest) reregister() {
	i := g.rnd.IntN(len(g.mrs))
	check(g.mrs[i].Dereg())
	g.mems[i].Release()
	g.left(stormEdge+i*stormPages, stormPages)
	g.register(i)
}

func (g *stormGuest) allocate(i int) {
	f := &stormSource{
		pages: g.pages(stormRegions + i), mem: must(g.space.NewList(stormPages)), known: &g.regions[stormRegions+i],
	}
	f.mr = must(g.ctx.AllocMR(g.pd, stormPages, f))
	f.key = f.mr.LKey()
	g.owner.Do(func() { g.fast[i] = f })
}

func (g *stormGuest) reallocate() {
	i := g.rnd.IntN(len(g.fast))
	f := g.fast[i]
	check(f.mr.Dereg())
	f.mem.Release()
	g.left(stormEdge+(stormRegions+i)*stormPages, stormPages)
	g.allocate(i)
}

// create makes a queue pair of any type; the last one is always the GSI's.
func (g *stormGuest) create(i int) {
	types := []hostverbs.QPType{
		hostverbs.QPTypeRC, hostverbs.QPTypeRC, hostverbs.QPTypeRC, hostverbs.QPTypeUC, hostverbs.QPTypeUD,
	}
	d := &stormQP{g: g, typ: types[g.rnd.IntN(len(types))]}
	init := &hostverbs.QPInitAttr{
		SendCQ: g.cq, RecvCQ: g.cq, Cap: hostverbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4},
	}
	if i == stormQPs-1 {
		d.typ = hostverbs.QPTypeGSI
	} else if g.rnd.IntN(2) == 0 {
		init.QPN = uint32(2 + i)
	}
	if g.rnd.IntN(3) == 0 {
		d.srq, init.SRQ = g.srq, g.srq.srq
	}
	init.Type = d.typ
	d.qp = must(g.ctx.CreateQP(g.pd, init, d))
	g.qps[i] = d
	g.peers[i].Store(&stormPeer{g, g.own, d.qp.QPN()})
	g.owner.Do(func() { g.owner.devices = append(g.owner.devices, d) })
}

func (g *stormGuest) replace() {
	i := g.rnd.IntN(len(g.qps))
	check(g.qps[i].qp.Destroy())
	g.owner.Do(g.qps[i].over)
	g.create(i)
}

// bind takes an address, if nobody has it.
func (g *stormGuest) bind(i int, gid hostverbs.GID) {
	if g.ctx.BindGID(i, gid, hostverbs.GIDTypeRoCEv2) == nil {
		g.gids[i] = gid
	}
}

func (g *stormGuest) rebind() {
	i := g.rnd.IntN(len(g.gids))
	if i == 0 && g.rnd.IntN(4) != 0 { // its own
		i = 1
	}
	if old := g.gids[i]; old != (hostverbs.GID{}) && g.rnd.IntN(2) == 0 {
		check(g.ctx.UnbindGID(i, old))
		g.gids[i] = hostverbs.GID{}
		return
	}
	gid := g.own
	if i != 0 {
		gid = g.w.moving[g.rnd.IntN(len(g.w.moving))]
	}
	g.bind(i, gid)
}

// act does one thing.
func (g *stormGuest) act() {
	time.Sleep(time.Duration(g.rnd.IntN(1000)) * time.Microsecond)
	if g.rnd.IntN(2) == 0 {
		g.pair()
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.alone()
}

// alone does something for which no other guest is needed.
func (g *stormGuest) alone() {
	q := g.qps[g.rnd.IntN(len(g.qps))]
	switch g.rnd.IntN(16) {
	case 0:
		g.replace()
	case 1:
		g.reregister()
	case 2:
		// let it work for a while
		time.Sleep(2 * time.Millisecond)
	case 3:
		g.reallocate()
	case 4, 5:
		g.rebind()
	case 6:
		g.ctx.SetLink(false)
		time.Sleep(time.Duration(g.rnd.IntN(300)) * time.Microsecond)
		g.ctx.SetLink(true)
	case 7:
		_ = g.srq.srq.Modify(&hostverbs.SRQAttr{Limit: uint32(g.rnd.IntN(70))}, hostverbs.SRQLimit)
		_ = must(g.srq.srq.Query())
	case 8:
		_ = must(q.qp.Query())
	case 9, 10:
		_ = q.to(hostverbs.StateErr)
	case 11, 12:
		_ = q.to(hostverbs.StateSQD)
	case 13:
		_ = q.to(hostverbs.StateRTS)
	case 14:
		q.renew(g.rnd, g.w.anybody(g.rnd))
	case 15:
		if g.rnd.IntN(4) == 0 {
			g.reopen()
		}
	}
}

// anybody returns a queue pair of anybody's, and an address at which it may be found.
func (w *stormWorld) anybody(rnd *rand.Rand) stormPeer {
	p := w.guests[rnd.IntN(len(w.guests))].peers[rnd.IntN(stormQPs)].Load()
	if p == nil {
		return stormPeer{w.guests[0], w.moving[0], 2}
	}
	if rnd.IntN(3) == 0 {
		return stormPeer{p.guest, w.moving[rnd.IntN(len(w.moving))], p.qpn}
	}
	return *p
}

// pair connects a queue pair with one of another guest, or of the same.
func (g *stormGuest) pair() {
	other := g.w.guests[g.rnd.IntN(len(g.w.guests))]
	i, k := g.rnd.IntN(stormQPs), g.rnd.IntN(stormQPs)
	first, second := g, other
	if other.n < g.n {
		first, second = other, g
	}
	first.mu.Lock()
	defer first.mu.Unlock()
	if second != first {
		second.mu.Lock()
		defer second.mu.Unlock()
	}
	a, b := g.qps[i], other.qps[k]
	for _, q := range other.qps {
		if b.typ != a.typ {
			b = q
		}
	}
	to := func(x *stormQP) stormPeer {
		p := stormPeer{x.g, x.g.own, x.qp.QPN()}
		if m := x.g.gids[1+g.rnd.IntN(3)]; m != (hostverbs.GID{}) && g.rnd.IntN(2) == 0 {
			p.gid = m
		}
		return p
	}
	a.renew(g.rnd, to(b))
	if b != a {
		b.renew(g.rnd, to(a))
	}
}

// rest moves all queue pairs to ERR.
func (g *stormGuest) rest() {
	for _, q := range g.qps {
		_ = q.to(hostverbs.StateErr)
		g.owner.Do(q.last)
	}
}

// owed fails unless all that was posted completes.
func (g *stormGuest) owed() {
	for i, q := range g.qps {
		for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Microsecond) {
			n := 0
			g.owner.Do(func() { n = q.owes() })
			if n == 0 || g.w.failed.Load() {
				break
			}
			if time.Now().After(end) {
				g.w.fault("queue pair %d (%s) of guest %d in ERR owes %d completions: %s", i, q.typ, g.n, n, q.describe())
			}
		}
	}
}
