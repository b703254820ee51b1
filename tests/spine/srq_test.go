// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"errors"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/driver"
	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
	"golang.org/x/sys/unix"
)

// sharedQueue makes a shared receive queue that lives as long as the test.
func sharedQueue(t *testing.T, pd *verbs.PD, maxWR uint32) *verbs.SRQ {
	t.Helper()
	s, err := pd.CreateSRQ(maxWR, 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// pool is a shared receive queue of a program with queue pairs that receive from it, each connected with one of another guest.
type pool struct {
	t    *testing.T
	srq  *verbs.SRQ
	mr   *verbs.MR
	a, b []*testguest.Endpoint
}

const (
	poolWR   = 32
	poolSlot = 512 // bytes of a receive
)

func newPool(t *testing.T, ga, gb *testguest.Guest, pairs int) *pool {
	t.Helper()
	pa, pb := ga.Open(), gb.Open()
	pd, err := pb.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	p := &pool{t: t, srq: sharedQueue(t, pd, poolWR)}
	if p.mr, err = pd.Register(poolWR*poolSlot, 0, gb.RemoteAccess()); err != nil {
		t.Fatal(err)
	}
	for range pairs {
		a, b := pa.Endpoint(testguest.Shape{}), pb.Endpoint(testguest.Shape{SRQ: p.srq})
		testguest.Connect(a, b)
		p.a, p.b = append(p.a, a), append(p.b, b)
	}
	return p
}

// post posts the receives of some slots.
func (p *pool) post(slots ...int) {
	p.t.Helper()
	for _, i := range slots {
		sge := []verbs.SGE{p.mr.SGE(i*poolSlot, 100), p.mr.SGE(i*poolSlot+100, poolSlot-100)}
		if err := p.srq.PostRecv(verbs.RecvWR{WRID: uint64(i), SGE: sge}); err != nil {
			p.t.Fatal(err)
		}
	}
}

// none expects no asynchronous event within the settling time.
func (p *pool) none(what string) {
	p.t.Helper()
	if e, err := p.b[0].P.G.Dev.WaitAsync(settle); err == nil {
		p.t.Errorf("%s: event %d of %d", what, e.Type, e.Info)
	}
}

// one expects one asynchronous event of the shared queue, the end of PVRDMA_EVENT_<name>, and no other.
func (p *pool) one(what, name string) {
	p.t.Helper()
	g := p.b[0].P.G
	e, err := g.Dev.WaitAsync(testguest.Patience)
	if err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
	if want := (driver.AsyncEvent{Type: g.Const("PVRDMA_EVENT_" + name), Info: p.srq.Handle}); e != want {
		p.t.Errorf("%s: event %+v, want %+v", what, e, want)
	}
	p.none(what)
}

func TestQueuePairsOfASharedQueueTakeItsReceivesInOrder(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		p := newPool(t, d.guest("a"), d.guest("b"), 3)
		for slot := range poolWR {
			p.post(slot)
		}
		n := 0
		for round := range 20 * poolWR {
			i := round % 3
			want := p.a[i].MR.Mem[:poolSlot]
			for k := range want {
				want[k] = byte(round + k*7)
			}
			id := p.a[i].Send(0, poolSlot)
			wc := p.b[i].Received(uint64(n), "SUCCESS")
			p.a[i].Sent(id, "SUCCESS")
			got := p.mr.Mem[n*poolSlot : (n+1)*poolSlot]
			if wc.ByteLen != poolSlot || string(got) != string(want) {
				t.Fatalf("message %d: %d bytes, or not those that were sent", round, wc.ByteLen)
			}
			p.post(n)
			n = (n + 1) % poolWR
		}
		if n := p.srq.Ring().Cons(); n != 20*poolWR%(2*poolWR) {
			t.Errorf("the device's index is %d after %d receives", n, 20*poolWR)
		}
		p.none("no limit was armed")
	})
}

func TestTheLimitOfASharedQueueIsOneEventForEachArm(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		p := newPool(t, d.guest("a"), d.guest("b"), 2)
		send := func(i, slot int) {
			t.Helper()
			id := p.a[i].Send(0, 8)
			p.b[i].Received(uint64(slot), "SUCCESS")
			p.a[i].Sent(id, "SUCCESS")
		}
		limit := func(want uint32) {
			t.Helper()
			if n, err := p.srq.Limit(); err != nil || n != want {
				t.Errorf("the limit is %d, %v, want %d", n, err, want)
			}
		}
		p.post(0, 1, 2, 3, 4, 5)
		if err := p.srq.Arm(4); err != nil {
			t.Fatal(err)
		}
		limit(4)
		send(0, 0)
		send(1, 1)
		p.none("as many receives as the limit")
		send(0, 2)
		p.one("one less", "SRQ_LIMIT_REACHED")
		limit(0)
		send(1, 3)
		p.none("not armed any more")
		if err := p.srq.Arm(3); err != nil {
			t.Fatal(err)
		}
		p.one("fewer than the limit when it was armed", "SRQ_LIMIT_REACHED")
		limit(0)
		if err := p.srq.Arm(2); err != nil {
			t.Fatal(err)
		}
		if err := p.srq.Arm(poolWR + 1); !errors.Is(err, unix.EINVAL) {
			t.Errorf("a limit above the queue's length: %v, want EINVAL", err)
		}
		limit(2)
		if err := p.srq.Arm(0); err != nil {
			t.Fatal(err)
		}
		send(0, 4)
		p.none("disarmed")
	})
}

func TestAQueuePairInErrorLeavesTheReceivesOfASharedQueueToOthers(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		p := newPool(t, d.guest("a"), d.guest("b"), 2)
		p.post(0, 1)
		if err := p.b[0].QP.ToErr(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(settle)
		p.b[0].Quiet()
		id := p.a[1].Send(0, 8)
		p.b[1].Received(0, "SUCCESS")
		p.a[1].Sent(id, "SUCCESS")
	})
}

func TestASharedQueueWithABadIndexEndsWithItsQueuePairs(t *testing.T) {
	for _, index := range []uint32{2 * poolWR, 1<<32 - 1, poolWR + 1} {
		eachMode(t, func(t *testing.T, d *daemon) {
			n := d.neighbour()
			a := d.guest("a")
			p := newPool(t, a, a, 2)
			p.srq.Ring().SetProd(index)
			if err := p.srq.RingRecv(); err != nil {
				t.Fatal(err)
			}
			g := p.b[0].P.G
			e, err := g.Dev.WaitAsync(testguest.Patience)
			if want := (driver.AsyncEvent{Type: g.Const("PVRDMA_EVENT_SRQ_ERR"), Info: p.srq.Handle}); err != nil || e != want {
				t.Fatalf("event %+v, %v, want %+v", e, err, want)
			}
			for i, b := range p.b {
				b.StateIs("ERR")
				p.a[i].Sent(p.a[i].Send(0, 8), "RETRY_EXC_ERR")
			}
			n.check()
		})
	}
}

func TestASharedQueueThatLiesIsRefused(t *testing.T) {
	d := startDaemon(t, "poll")
	n := d.neighbour()
	r := newGround(t, d)
	type P = driver.SRQParams
	honest := func() P { return P{PDir: r.dir.Addr(), PD: r.e.PD.Handle, Chunks: 3, MaxWR: 16, MaxSGE: 2} }
	over := 2 * r.g.Dev.Caps().Get32("max_srq_wr")
	lies := map[string]lie[P]{
		"no requests":             {func(p *P) { p.MaxWR = 0 }, unix.EINVAL},
		"requests not a power":    {func(p *P) { p.MaxWR = 15 }, unix.EINVAL},
		"2^31 requests":           {func(p *P) { p.MaxWR = 1 << 31 }, unix.EINVAL},
		"requests beyond the cap": {func(p *P) { p.MaxWR, p.Chunks = over, 1<<18 }, unix.EINVAL},
		"2^28 pieces":             {func(p *P) { p.MaxSGE = 1 << 28 }, unix.EINVAL},
		"255 pieces":              {func(p *P) { p.MaxSGE = 255 }, unix.EINVAL},
		"no pages":                {func(p *P) { p.Chunks = 0 }, unix.EINVAL},
		"a page of indices alone": {func(p *P) { p.Chunks = 1 }, unix.EINVAL},
		"too few pages":           {func(p *P) { p.MaxWR = 256 }, unix.EINVAL},
		"2^32-1 pages":            {func(p *P) { p.Chunks = 1<<32 - 1 }, unix.EINVAL},
		"no such PD":              {func(p *P) { p.PD = 77777 }, unix.EINVAL},
		"a limit, which is none":  {func(p *P) { p.Limit = 1<<32 - 1 }, 0},
	}
	addDirLies(r, lies, func(p *P, dir uint64) { p.PDir, p.MaxWR = dir, 64 })
	testLies(r, honest, lies, func(p P) error {
		h, err := r.g.Dev.CreateSRQ(p)
		if err != nil {
			return err
		}
		return r.g.Dev.DestroySRQ(h)
	})
	n.check()
}
