// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
	"golang.org/x/sys/unix"
)

// storm is requests of one endpoint that go on until one fails: several are always under way, and no two in a row carry
// the same bytes.
type storm struct {
	wg   sync.WaitGroup
	quit atomic.Bool
	// first is the status of the first completion that failed, err what else ended the storm; written by the storm.
	first uint32
	err   error
}

const (
	stormSize  = 64 << 10
	stormDepth = 16
)

// startStorm lets an endpoint write to another without a pause.
func startStorm(from *testguest.Endpoint, peer testguest.Address) *storm {
	s := &storm{}
	for i := range 4 { // four sources with different bytes
		testguest.Pattern{Seed: 3, Iteration: uint64(i)}.Fill(from.MR.Mem[i*stormSize:][:stormSize])
	}
	post := func(i int) error {
		wr := from.Op("RDMA_WRITE", peer, i%4*stormSize, stormSize)
		wr.RemoteAddr = peer.Addr + uint64(i%3*stormSize)
		return from.QP.PostSend(wr)
	}
	s.wg.Go(func() {
		for i := range stormDepth {
			if s.err = post(i); s.err != nil {
				return
			}
		}
		for i := stormDepth; ; i++ {
			wc, err := s.wait(from.SendCQ)
			if err != nil {
				s.err = err
				return
			}
			if wc.Status != 0 {
				s.first = wc.Status
				return
			}
			if s.quit.Load() {
				s.err = errors.New("nothing failed")
				return
			}
			if s.err = post(i); s.err != nil {
				return
			}
		}
	})
	return s
}

// wait waits for a completion, or until the storm is called off.
func (s *storm) wait(cq *verbs.CQ) (wc verbs.WC, err error) {
	for began := time.Now(); ; {
		wc, err = cq.Wait(verbs.Polled, settle)
		if !errors.Is(err, unix.ETIMEDOUT) || s.quit.Load() || time.Since(began) > testguest.Patience {
			return wc, err
		}
	}
}

// join waits for the storm's end, but not for ever.
func (s *storm) join() {
	timer := time.AfterFunc(testguest.Patience, func() { s.quit.Store(true) })
	defer timer.Stop()
	s.wg.Wait()
}

// ended waits for the storm's end and wants its status.
func (s *storm) ended(t *testing.T, from *testguest.Endpoint, status string) {
	t.Helper()
	s.join()
	if s.err != nil || s.first != from.P.G.Const("PVRDMA_WC_"+status) {
		t.Errorf("the storm ends with %s, error %v; want %s", from.P.G.L.ConstName("PVRDMA_WC_", s.first), s.err, status)
	}
}

// stormGuests boots both guests with little memory, so that all of it can be compared, and lets b write into a while a
// reads from b.
func (d *daemon) stormGuests() (a, b *testguest.Endpoint, s *storm) {
	d.t.Helper()
	shape := testguest.Shape{Bytes: 4 * stormSize, Depth: 32}
	o := guestOptions("a")
	o.Memory.Size = 8 << 20
	ga := testguest.Start(d.t, d.socket("a"), o)
	gb := d.guest("b")
	pa, pb := ga.Open(), gb.Open()
	a, b = pa.Endpoint(shape), pb.Endpoint(shape)
	testguest.Connect(a, b)
	s = startStorm(b, a.Address())
	d.t.Cleanup(s.join) // before the guests end whose memory it uses
	reader, source := pa.Endpoint(shape), pb.Endpoint(shape)
	testguest.Connect(reader, source)
	for i := range 32 {
		reader.Read(source.Address(), i%4*stormSize, stormSize)
	}
	return a, b, s
}

// wantMoving waits until memory changes all the time: without that, stopping it would prove nothing.
func wantMoving(t *testing.T, memory []byte) {
	t.Helper()
	const rounds = 5
	deadline := time.Now().Add(testguest.Patience)
	for moved := 0; moved < rounds; {
		before := bytes.Clone(memory)
		time.Sleep(time.Millisecond)
		if !bytes.Equal(before, memory) {
			moved++
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing moves")
		}
	}
}

// wantStill fails the test if a byte of memory changes from now on.
func wantStill(t *testing.T, what string, memory []byte) {
	t.Helper()
	before := bytes.Clone(memory)
	time.Sleep(50 * time.Millisecond)
	if pages := changedPages(before, memory); len(pages) > 0 {
		t.Errorf("after %s %d pages of memory change, the first is %d", what, len(pages), pages[0])
	}
}

func TestNothingOfAGuestsMemoryChangesAfterItsDeviceWasStopped(t *testing.T) {
	for name, stop := range map[string]func(*testguest.Guest) error{
		"RESET by the driver": func(g *testguest.Guest) error {
			return g.Dev.WriteReg("PVRDMA_REG_CTL", g.Const("PVRDMA_DEVICE_CTL_RESET"))
		},
		"DEVICE_RESET by the VMM": func(g *testguest.Guest) error { return g.Func.Reset() },
		"a shared region anew":    func(g *testguest.Guest) error { return g.Dev.WriteDSR(g.Dev.DSRAddr()) },
		"bus mastering off":       func(g *testguest.Guest) error { return g.Func.SetBusMaster(false) },
		"all memory unmapped":     func(g *testguest.Guest) error { return g.Func.UnmapAllDMA() },
		"high memory unmapped": func(g *testguest.Guest) error {
			r := g.RAM.Regions()[1]
			return g.Func.UnmapDMA(r.Addr, r.Size)
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachLane(t, func(t *testing.T, d *daemon) {
				a, b, s := d.stormGuests()
				wantMoving(t, a.MR.Mem)
				memory := a.P.G.RAM.All()
				if name == "high memory unmapped" {
					memory = memory[len(memory)/2:]
				}

				if err := stop(a.P.G); err != nil {
					t.Fatal(err)
				}
				wantStill(t, name, memory)

				s.join() // b's requests fail: how depends on what was stopped
				if s.err != nil {
					t.Errorf("the peer: %v", s.err)
				}
				d.restore(a.P.G, name)
				d.exchangeAfter(a.P.G, b.P.G)
			})
		})
	}
}

// restore takes a guest from wherever a stop left it to a bound device.
func (d *daemon) restore(g *testguest.Guest, stop string) {
	d.t.Helper()
	if stop == "all memory unmapped" || stop == "high memory unmapped" {
		for i, m := range g.DMAMaps() {
			if stop == "high memory unmapped" && i == 0 {
				continue
			}
			if err := g.Func.MapDMA(m); err != nil {
				d.t.Fatal(err)
			}
		}
	}
	g.Reboot()
}

// exchangeAfter is messages between two guests after one of them was stopped.
func (d *daemon) exchangeAfter(ga, gb *testguest.Guest) {
	d.t.Helper()
	x, y := ga.Open().Endpoint(testguest.Shape{}), gb.Open().Endpoint(testguest.Shape{})
	testguest.Connect(x, y)
	for _, pair := range [][2]*testguest.Endpoint{{x, y}, {y, x}} {
		f := testguest.StartFlow(pair[0], pair[1], 1000, 0)
		time.Sleep(20 * time.Millisecond)
		if n, err := f.Stop(); err != nil || n == 0 {
			d.t.Errorf("%d messages afterwards, error %v", n, err)
		}
	}
	x.P.Exit()
	y.P.Exit()
}

func TestNothingOfAnObjectsMemoryChangesAfterItWasDestroyed(t *testing.T) {
	for name, c := range map[string]struct {
		destroy func(a *testguest.Endpoint) error
		memory  func(a *testguest.Endpoint) []byte
		status  string
	}{
		"memory region": {
			destroy: func(a *testguest.Endpoint) error { return a.P.Dev.DestroyMR(a.MR.Handle) },
			memory:  func(a *testguest.Endpoint) []byte { return a.MR.Mem }, status: "REM_ACCESS_ERR",
		},
		"queue pair": {
			destroy: func(a *testguest.Endpoint) error { return a.P.Dev.DestroyQP(a.QP.Handle) },
			memory:  func(a *testguest.Endpoint) []byte { return a.MR.Mem }, status: "RETRY_EXC_ERR",
		},
		"queue pair in ERR": {
			destroy: func(a *testguest.Endpoint) error { return a.QP.ToErr() },
			memory:  func(a *testguest.Endpoint) []byte { return a.MR.Mem }, status: "RETRY_EXC_ERR",
		},
		"queue pair in RESET": {
			destroy: func(a *testguest.Endpoint) error { return a.QP.Reset() },
			memory:  func(a *testguest.Endpoint) []byte { return a.MR.Mem }, status: "RETRY_EXC_ERR",
		},
		"context": {
			destroy: func(a *testguest.Endpoint) error { return a.P.Dev.DestroyUC(a.P.Handle) },
			memory:  func(a *testguest.Endpoint) []byte { return a.MR.Mem }, status: "RETRY_EXC_ERR",
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachMode(t, func(t *testing.T, d *daemon) {
				a, b, s := d.stormGuests()
				wantMoving(t, a.MR.Mem)
				if err := c.destroy(a); err != nil {
					t.Fatal(err)
				}
				wantStill(t, name, c.memory(a))
				s.ended(t, b, c.status)
				a.P.G.Reboot() // what is left of the program is dropped
				d.exchangeAfter(a.P.G, b.P.G)
			})
		})
	}
}

func TestACompletionQueueIsNotWrittenAfterItWasDestroyed(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		a, b, s := d.stormGuests()
		peer := b.Address()
		for range 8 {
			a.Write(peer, 0, stormSize)
		}
		state := a.SendCQ.Memory()
		if err := a.P.Dev.DestroyCQ(a.SendCQ.Handle); err != nil && !errors.Is(err, unix.EFAULT) {
			t.Fatal(err)
		}
		wantStill(t, "DESTROY_CQ", state)
		a.P.G.Reboot()
		s.join()
		d.exchangeAfter(a.P.G, b.P.G)
	})
}
