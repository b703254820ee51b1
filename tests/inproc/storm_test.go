// SPDX-License-Identifier: Apache-2.0

package inproc

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"github.com/pvrdmad/pvrdmad/pvrdma"
)

var (
	stormSeed   = flag.Uint64("storm.seed", 1, "the first seed of storms")
	stormRounds = flag.Int("storm.rounds", 1, "how many storms")
	stormSteps  = flag.Int("storm.steps", 1500, "how many things each guest does in a storm")
)

// couple are two guests that keep to the rules, each at a worker of its own if there are several. They exchange messages, and
// mind nobody.
type couple struct {
	a, b   *Guest
	qa, qb QP
	ca, cb CQ
	ma, mb MR
	sent   uint32
}

// coupleBytes is the length of their messages, more than a visit moves while others send.
const coupleBytes = 40 * PageSize

func newCouple(h *Host) *couple {
	c := &couple{a: h.Guest(Options{Name: "a", Memory: 4 << 20}), b: h.Guest(Options{Name: "b", Memory: 4 << 20})}
	boot := func(g *Guest) (q QP, cq CQ, m MR) {
		g.Probe()
		g.Bind(0)
		pd := g.PD(0)
		cq, m = g.CQ(0, 64), g.MR(pd, 15, coupleBytes/PageSize)
		return g.QP(pd, cq.Handle, cq.Handle, "RC"), cq, m
	}
	c.qa, c.ca, c.ma = boot(c.a)
	c.qb, c.cb, c.mb = boot(c.b)
	patient := func(g *Guest, q QP, p Peer) {
		g.Must(g.ToInit(q.Handle), "", "")
		g.Must(g.ToRTR(q.Handle, p), "", "")
		g.Must(g.ToRTS(q.Handle).Set("attrs.timeout", 20).Set("attrs.retry_cnt", 7).Set("attrs.rnr_retry", 7), "", "")
	}
	patient(c.a, c.qa, Peer{GID: c.b.GID(0), QPN: c.qb.QPN})
	patient(c.b, c.qb, Peer{GID: c.a.GID(0), QPN: c.qa.QPN})
	return c
}

// exchange sends one message from a to b, and looks at every byte of it.
func (c *couple) exchange(s *storm) {
	want := bytes.Repeat([]byte{byte(c.sent + 1)}, PageSize)
	for _, p := range c.ma.Pages {
		copy(c.a.Bytes(p, PageSize), want)
	}
	slot := uint64(c.sent % QPDepth)
	recv := c.b.Bytes(c.qb.Pages[2]+slot*recvStride, recvStride)
	c.b.L.View("pvrdma_rq_wqe_hdr", recv).Set("wr_id", uint64(c.sent)).Set("num_sge", 1)
	c.b.L.View("pvrdma_sge", recv[c.b.L.Size("pvrdma_rq_wqe_hdr"):]).Set("addr", c.mb.Start).Set("length", c.mb.Len).
		Set("lkey", uint64(c.mb.LKey))
	next := (c.sent + 1) % (2 * QPDepth)
	ram.Store32(c.b.Bytes(c.qb.Pages[0], 16), 8, next)
	send := c.a.Bytes(c.qa.Pages[1]+slot*sendStride, sendStride)
	c.a.L.View("pvrdma_sq_wqe_hdr", send).Set("wr_id", uint64(c.sent)).Set("num_sge", 1).
		Set("opcode", uint64(c.a.Const("PVRDMA_WR_SEND")))
	c.a.L.View("pvrdma_sge", send[c.a.L.Size("pvrdma_sq_wqe_hdr"):]).Set("addr", c.ma.Start).Set("length", c.ma.Len).
		Set("lkey", uint64(c.ma.LKey))
	ram.Store32(c.a.Bytes(c.qa.Pages[0], 16), 0, next)
	c.a.Doorbell(0, 0, c.a.Const("PVRDMA_UAR_QP_SEND")|c.qa.Handle)
	ok := c.completes(s, c.a, c.ca, "send") && c.completes(s, c.b, c.cb, "receive")
	c.sent++
	if !ok {
		return
	}
	for i, p := range c.mb.Pages {
		if !bytes.Equal(c.b.Bytes(p, PageSize), want) {
			s.fault("page %d of message %d has not arrived", i, c.sent)
			return
		}
	}
}

// completes waits for the next entry of a completion queue, which is a success.
func (c *couple) completes(s *storm, g *Guest, cq CQ, what string) bool {
	ring, next := g.Bytes(cq.Pages[0], 16), (c.sent+1)%128
	for end := time.Now().Add(2 * time.Minute); ram.Load32(ring, 8) != next; runtime.Gosched() {
		if time.Now().After(end) || s.failed.Load() {
			s.fault("the %s %d does not complete: %v", what, c.sent, g.Seen.Counts())
			return false
		}
	}
	e := g.L.View("pvrdma_cqe", g.Bytes(cq.Pages[1]+uint64(c.sent%64)*64, 64))
	if e.Get("status") != 0 || e.Get("wr_id") != uint64(c.sent) {
		s.fault("the %s %d completed as %d with status %d: %v", what, c.sent, e.Get("wr_id"), e.Get("status"), g.Seen.Counts())
		return false
	}
	ram.Store32(ring, 12, next)
	return true
}

// storm is a couple among guests that do anything.
type storm struct {
	*Host
	couple  *couple
	hostile []*hostile
	failed  atomic.Bool
	mu      sync.Mutex
	// peers are where queue pairs are, or were, keys what regions have, or had.
	peers []Peer     // guarded by mu
	keys  [64]uint64 // guarded by mu
	// slots are the queue pairs that the hostile guests have now, regions the keys of their regions.
	slots   [rioters][few]Peer   // guarded by mu
	regions [rioters][few]uint32 // guarded by mu
	// wanted says that the partner of a queue pair has begun anew.
	wanted [rioters][few]bool // guarded by mu
}

func (s *storm) fault(format string, args ...any) {
	s.T.Helper()
	if !s.failed.Swap(true) {
		s.T.Errorf(format, args...)
	}
}

// meet notes where a queue pair is.
func (s *storm) meet(p Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	const most = 64
	if len(s.peers) >= most {
		s.peers = s.peers[1:]
	}
	s.peers = append(s.peers, p)
}

func (s *storm) anybody(rnd *rand.Rand) Peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peers[rnd.IntN(len(s.peers))]
}

func (s *storm) learn(rnd *rand.Rand, key uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[rnd.IntN(len(s.keys))] = uint64(key)
}

func (s *storm) anyKey(rnd *rand.Rand) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[rnd.IntN(len(s.keys))]
}

// rioters is how many guests do anything.
const rioters = 3

// partner is whom a queue pair mostly talks to: itself, one of the guest after it, or one of the guest before it.
func partner(guest, slot int) (int, int) {
	switch slot % 3 {
	case 1:
		return (guest + 1) % rioters, slot + 1
	case 2:
		return (guest + rioters - 1) % rioters, slot - 1
	}
	return guest, slot
}

// now returns where the partner of a queue pair is.
func (s *storm) now(guest, slot int) Peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, i := partner(guest, slot)
	return s.slots[g][i]
}

// invite has the partner of a queue pair begin anew, too.
func (s *storm) invite(guest, slot int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g, i := partner(guest, slot); g != guest {
		s.wanted[g][i] = true
	}
}

// invited returns a queue pair of a guest whose partner has begun anew, or -1.
func (s *storm) invited(guest int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, w := range s.wanted[guest] {
		if w {
			s.wanted[guest][i] = false
			return i
		}
	}
	return -1
}

// key returns the key of a region of the partner of a queue pair.
func (s *storm) key(guest, slot, i int) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, _ := partner(guest, slot)
	return uint64(s.regions[g][i])
}

// TestGuestsThatDoAnythingDisturbNobody: three guests do what they like with all that a guest has, with their memory, and
// with their links. Two others, at workers of their own if there are several, exchange messages meanwhile, none of which is lost.
// In the end nothing is left.
func TestGuestsThatDoAnythingDisturbNobody(t *testing.T) {
	for i := range uint64(*stormRounds) {
		seed := *stormSeed + i
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			h := NewHost(t)
			s := &storm{Host: h, couple: newCouple(h)}
			s.meet(Peer{GID: s.couple.a.GID(0), QPN: s.couple.qa.QPN})
			s.meet(Peer{GID: s.couple.b.GID(0), QPN: s.couple.qb.QPN})
			for n := range rioters {
				s.hostile = append(s.hostile, newHostile(s, n, rand.New(rand.NewPCG(seed, uint64(n)))))
			}
			s.rage()
			for _, x := range s.hostile {
				x.end()
			}
			s.couple.exchange(s)
			for _, g := range []*Guest{s.couple.a, s.couple.b} {
				g.undisturbed()
			}
			h.Close()
		})
		if t.Failed() {
			return
		}
	}
}

// rage has all guests do what they do until the hostile ones have done it all.
func (s *storm) rage() {
	var busy, idle sync.WaitGroup
	var over atomic.Bool
	for _, x := range s.hostile {
		busy.Go(func() { x.run() })
		idle.Go(func() { x.scribble(&over) })
	}
	idle.Go(func() {
		for !over.Load() && !s.failed.Load() {
			s.couple.exchange(s)
		}
	})
	busy.Wait()
	over.Store(true)
	idle.Wait()
}

// undisturbed fails if anything has happened to a guest that keeps to the rules.
func (g *Guest) undisturbed() {
	g.T.Helper()
	moved := g.Seen.Counts()
	for name, n := range moved {
		if rejected(name) {
			g.T.Errorf("guest %s keeps to the rules, and %s has moved by %d: %v", g.o.Name, name, n, g.Seen.Last())
		}
	}
	if o := g.Fn.Objects(); o != (pvrdma.Objects{PDs: 1, MRs: 1, CQs: 1, QPs: 1}) {
		g.T.Errorf("guest %s has %+v", g.o.Name, o)
	}
}
