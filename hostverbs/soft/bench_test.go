// SPDX-License-Identifier: Apache-2.0

package soft_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/hostverbs/soft"
)

// inline is an owner whose thread is the test's own.
type inline struct{}

func (inline) Do(fn func()) { fn() }

// Wake has nobody to wake: the test calls Progress.
func (inline) Wake() {}

// sink is a device that counts completions and has receives without end.
type sink struct {
	sent, received int
	bad            hostverbs.WCStatus
	recv           hostverbs.RecvWR
	none           bool
}

func (d *sink) PullRecv(wr *hostverbs.RecvWR) (bool, error) {
	*wr = d.recv
	return !d.none, nil
}

func (d *sink) CompleteSend(wc *hostverbs.WC) error {
	d.sent++
	d.bad |= wc.Status
	return nil
}

func (d *sink) CompleteRecv(wc *hostverbs.WC) error {
	d.received++
	d.bad |= wc.Status
	return nil
}

func (d *sink) SendReady()                {}
func (d *sink) Event(hostverbs.EventType) {}

// party is one guest of a bench: memory, one region over all of it, and queue pairs.
type party struct {
	ctx hostverbs.Context
	pd  hostverbs.PD
	cq  hostverbs.CQ
	mr  hostverbs.MR
	ram []byte
	gid hostverbs.GID
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// join opens a guest with n bytes.
func join(p hostverbs.Poller, dom *guestmem.Domain, id byte, n int) *party {
	g := &party{ram: make([]byte, n), gid: hostverbs.GID{15: id}}
	space := dom.NewSpace(fmt.Sprint("guest", id))
	check(space.MapBytes(0, g.ram, guestmem.ProtRead|guestmem.ProtWrite))
	var pages []uint64
	for a := 0; a < n; a += guestmem.PageSize {
		pages = append(pages, uint64(a))
	}
	mem := must(space.Pin(pages, guestmem.ProtRead|guestmem.ProtWrite))
	g.ctx = must(p.OpenContext(hostverbs.ContextConfig{Guest: fmt.Sprint("guest", id), GIDTableLen: 2}))
	check(g.ctx.BindGID(0, g.gid, hostverbs.GIDTypeRoCEv2))
	g.pd = must(g.ctx.AllocPD())
	g.cq = must(g.ctx.CreateCQ(16))
	g.mr = must(g.ctx.RegMR(g.pd, hostverbs.MRAttr{
		Memory: mem, Length: uint64(n),
		Access: hostverbs.AccessLocalWrite | hostverbs.AccessRemoteWrite | hostverbs.AccessRemoteRead,
	}))
	return g
}

// create creates an RC queue pair of the guest.
func (g *party) create(d hostverbs.QPHandler) hostverbs.QP { return g.createAs(hostverbs.QPTypeRC, d) }

// createAs creates a queue pair of a type.
func (g *party) createAs(typ hostverbs.QPType, d hostverbs.QPHandler) hostverbs.QP {
	return must(g.ctx.CreateQP(g.pd, &hostverbs.QPInitAttr{
		SendCQ: g.cq, RecvCQ: g.cq, Type: typ,
		Cap: hostverbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4},
	}, d))
}

// connect moves an RC queue pair to RTS.
func connect(q, peer hostverbs.QP, to *party) { connectAs(hostverbs.QPTypeRC, q, peer, to) }

// connectAs moves a queue pair of a type to RTS.
func connectAs(typ hostverbs.QPType, q, peer hostverbs.QP, to *party) {
	a := &hostverbs.QPAttr{
		PortNum: 1, PathMTU: hostverbs.MTU4096, DestQPNum: peer.QPN(), MaxRdAtomic: 1, MaxDestRdAtomic: 1,
		QPAccessFlags: hostverbs.AccessRemoteWrite | hostverbs.AccessRemoteRead, MinRNRTimer: 1, Timeout: 1, RNRRetry: 7,
		AHAttr: hostverbs.AHAttr{DGID: to.gid, GRH: true, PortNum: 1},
	}
	for s := hostverbs.StateInit; s <= hostverbs.StateRTS; s++ {
		required, _, _ := hostverbs.Transition(typ, s-1, s)
		a.QPState = s
		check(q.Modify(a, required|hostverbs.QPStateMask))
	}
}

// rig is two guests, one connection between them, and the poller.
type rig struct {
	p      hostverbs.Poller
	other  hostverbs.Poller // of b, nil if it is p
	a, b   *party
	qa, qb hostverbs.QP
	da, db *sink
	now    int64
	wrs    []hostverbs.SendWR
}

// newRig connects two guests with n bytes of memory each.
func newRig(n int) *rig { return newRigOf(n, 1) }

// newRigOf is newRig with an owner for each guest, if there are two. One thread is in the place of both.
func newRigOf(n, owners int) *rig {
	guestmem.PrepareGoroutine()
	e := soft.New(nil)
	r := &rig{p: must(e.NewPoller(inline{})), da: &sink{}, db: &sink{}, now: int64(time.Hour)}
	home := r.p
	if owners == 2 {
		r.other = must(e.NewPoller(inline{}))
		home = r.other
	}
	dom := guestmem.NewDomain()
	r.a, r.b = join(r.p, dom, 1, n), join(home, dom, 2, n)
	r.qa, r.qb = r.a.create(r.da), r.b.create(r.db)
	connect(r.qa, r.qb, r.b)
	connect(r.qb, r.qa, r.a)
	return r
}

// prepare makes k requests of n bytes.
func (r *rig) prepare(op hostverbs.WROpcode, n uint32, k int) {
	w := hostverbs.SendWR{Opcode: op, Flags: hostverbs.SendSignaled, NumSGE: 1, RKey: r.b.mr.RKey()}
	w.SGE[0] = hostverbs.SGE{Length: n, LKey: r.a.mr.LKey()}
	r.db.recv = hostverbs.RecvWR{NumSGE: 1}
	r.db.recv.SGE[0] = hostverbs.SGE{Length: n, LKey: r.b.mr.LKey()}
	r.wrs = nil
	for range k {
		r.wrs = append(r.wrs, w)
	}
}

// run posts the prepared requests and waits until they are complete.
func (r *rig) run() {
	want := r.da.sent + len(r.wrs)
	wrs := r.wrs
	for r.da.sent < want {
		wrs = wrs[r.qa.PostSend(wrs):]
		r.now += 1000
		if r.other != nil {
			r.other.Progress(r.now)
		}
		r.p.Progress(r.now)
	}
}

func benchmark(b *testing.B, op hostverbs.WROpcode, size, batch int) {
	benchmarkOf(b, 1, op, size, batch)
}

func benchmarkOf(b *testing.B, owners int, op hostverbs.WROpcode, size, batch int) {
	r := newRigOf(max(size, guestmem.PageSize), owners)
	r.prepare(op, uint32(size), batch)
	b.SetBytes(int64(size * batch))
	b.ReportAllocs()
	for b.Loop() {
		r.run()
	}
	message, plain := r.compare(size)
	if r.da.bad|r.db.bad != 0 {
		b.Fatalf("a completion failed: %s, %s", r.da.bad, r.db.bad)
	}
	b.ReportMetric(message, "ns/message")
	b.ReportMetric(plain, "ns/copy")
	b.ReportMetric(plain/message, "of-copy")
}

// compare takes turns between messages and plain copies of their size, so that both meet the same neighbours on the
// machine, and returns the medians in ns.
func (r *rig) compare(size int) (message, plain float64) {
	const rounds = 51
	n := max(1, 200_000/(size+100)/len(r.wrs)) // batches in a round: some 100 us
	var messages, copies []float64
	for range rounds {
		start := time.Now()
		for range n {
			r.run()
		}
		middle := time.Now()
		for range n * len(r.wrs) {
			copy(r.b.ram[:size], r.a.ram[:size])
		}
		each := float64(n * len(r.wrs))
		messages = append(messages, float64(middle.Sub(start).Nanoseconds())/each)
		copies = append(copies, float64(time.Since(middle).Nanoseconds())/each)
	}
	slices.Sort(messages)
	slices.Sort(copies)
	return messages[rounds/2], copies[rounds/2]
}

func BenchmarkWrite64B(b *testing.B)        { benchmark(b, hostverbs.OpRDMAWrite, 64, 1) }
func BenchmarkWrite64BBatched(b *testing.B) { benchmark(b, hostverbs.OpRDMAWrite, 64, 32) }
func BenchmarkSend64B(b *testing.B)         { benchmark(b, hostverbs.OpSend, 64, 1) }
func BenchmarkSend64BBatched(b *testing.B)  { benchmark(b, hostverbs.OpSend, 64, 32) }
func BenchmarkWrite4KiB(b *testing.B)       { benchmark(b, hostverbs.OpRDMAWrite, 4096, 32) }
func BenchmarkWrite1MiB(b *testing.B)       { benchmark(b, hostverbs.OpRDMAWrite, 1<<20, 1) }
func BenchmarkRead1MiB(b *testing.B)        { benchmark(b, hostverbs.OpRDMARead, 1<<20, 1) }

func TestTheDataPathAllocatesNothing(t *testing.T) {
	r := newRig(1 << 20)
	for name, fn := range map[string]func(){
		"64 B write": func() { r.prepare2(hostverbs.OpRDMAWrite, 64) },
		"64 B send":  func() { r.prepare2(hostverbs.OpSend, 64) },
		"1 MiB read": func() { r.prepare2(hostverbs.OpRDMARead, 1<<20) },
	} {
		r.prepare(hostverbs.OpRDMAWrite, 64, 1)
		if n := testing.AllocsPerRun(100, func() { fn(); r.run() }); n != 0 {
			t.Errorf("%s: %v allocations for one message", name, n)
		}
	}
	// Waiting for a receive, with its timer, and an empty Progress.
	r.db.none = true
	r.prepare2(hostverbs.OpSend, 64)
	if n := r.qa.PostSend(r.wrs); n != 1 {
		t.Fatalf("PostSend took %d requests", n)
	}
	if n := testing.AllocsPerRun(100, func() { r.now += 20_000; r.p.Progress(r.now) }); n != 0 {
		t.Errorf("an RNR retry allocates %v times", n)
	}
	if r.da.bad|r.db.bad != 0 {
		t.Errorf("a completion failed: %s, %s", r.da.bad, r.db.bad)
	}
}

// prepare2 is prepare for one request, without allocating.
func (r *rig) prepare2(op hostverbs.WROpcode, n uint32) {
	r.wrs[0].Opcode, r.wrs[0].SGE[0].Length, r.db.recv.SGE[0].Length = op, n, n
}

// What a message between two owners costs both of them together, without the way between their processors.
func BenchmarkWrite64BBetweenOwners(b *testing.B) { benchmarkOf(b, 2, hostverbs.OpRDMAWrite, 64, 1) }

func BenchmarkWrite1MiBBetweenOwners(b *testing.B) {
	benchmarkOf(b, 2, hostverbs.OpRDMAWrite, 1<<20, 1)
}
