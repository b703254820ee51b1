// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"golang.org/x/sys/unix"
)

// awaitEvent waits for an asynchronous event of an object, past others.
func awaitEvent(t *testing.T, g *testguest.Guest, event string, info uint32) {
	t.Helper()
	for {
		e, err := g.Dev.WaitAsync(testguest.Patience)
		if err != nil {
			t.Fatalf("event %s of %d: %v", event, info, err)
		}
		if e.Type == g.Const("PVRDMA_EVENT_"+event) && e.Info == info {
			return
		}
	}
}

func TestARingIndexThatIsNotValidEndsItsQueueAlone(t *testing.T) {
	const depth = 16
	for name, spoil := range map[string]func(e *testguest.Endpoint) (event string, handle uint32){
		"send producer of 2N": func(e *testguest.Endpoint) (string, uint32) {
			send, _ := e.QP.Rings()
			send.SetProd(2 * depth)
			return "QP_FATAL", e.QP.Handle
		},
		"send producer of 2^32-1": func(e *testguest.Endpoint) (string, uint32) {
			send, _ := e.QP.Rings()
			send.SetProd(1<<32 - 1)
			return "QP_FATAL", e.QP.Handle
		},
		"send producer N+1 ahead": func(e *testguest.Endpoint) (string, uint32) {
			send, _ := e.QP.Rings()
			send.SetProd((send.Cons() + depth + 1) % (2 * depth))
			return "QP_FATAL", e.QP.Handle
		},
		"send producer behind": func(e *testguest.Endpoint) (string, uint32) {
			send, _ := e.QP.Rings()
			send.SetProd((send.Cons() + 2*depth - 1) % (2 * depth))
			return "QP_FATAL", e.QP.Handle
		},
		"completion consumer of 2^31": func(e *testguest.Endpoint) (string, uint32) {
			e.SendCQ.Ring().SetCons(1 << 31)
			return "CQ_ERR", e.SendCQ.Handle
		},
		"completion consumer ahead": func(e *testguest.Endpoint) (string, uint32) {
			e.SendCQ.Ring().SetCons(e.SendCQ.Ring().Prod() + 3)
			return "CQ_ERR", e.SendCQ.Handle
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachMode(t, func(t *testing.T, d *daemon) {
				n := d.neighbour()
				p := d.guest("a").Open()
				e, other := p.Endpoint(testguest.Shape{Depth: depth}), p.Endpoint(testguest.Shape{Depth: depth})
				e.ConnectTo(e.Address())
				other.ConnectTo(other.Address())
				e.Sent(e.Write(e.Address(), 0, 8), "SUCCESS")

				event, handle := spoil(e)
				for range 3 {
					if err := e.QP.RingSend(); err != nil {
						t.Fatal(err)
					}
					if err := e.SendCQ.ReqNotify(false); err != nil {
						t.Fatal(err)
					}
				}

				awaitEvent(t, p.G, event, handle)
				e.StateIs("ERR")
				other.Sent(other.Write(other.Address(), 0, 8), "SUCCESS")
				n.check()
			})
		})
	}
}

func TestAReceiveProducerThatIsNotValidEndsTheReceiver(t *testing.T) {
	for _, bad := range []uint32{32, 17, 1<<32 - 1} {
		eachMode(t, func(t *testing.T, d *daemon) {
			a, b := d.connected(testguest.Shape{Depth: 16})
			_, recv := b.QP.Rings()
			recv.SetProd(bad)
			if err := b.QP.RingRecv(); err != nil {
				t.Fatal(err)
			}
			id := a.Send(0, 64)
			awaitEvent(t, b.P.G, "QP_FATAL", b.QP.Handle)
			b.StateIs("ERR")
			a.Sent(id, "RETRY_EXC_ERR")
		})
	}
}

func TestACountOfPiecesBeyondTheQueuesIsOneFailedRequest(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		n := d.neighbour()
		pa := d.guest("a").Open()
		for _, count := range []uint64{3, 17, 255, 256, 1 << 16, 1 << 31, 1<<32 - 1} {
			a, b := pa.Endpoint(testguest.Shape{SGE: 2}), pa.Endpoint(testguest.Shape{SGE: 2})
			testguest.Connect(a, b)
			send, _ := a.QP.Rings()
			wr := a.Op("RDMA_WRITE", b.Address(), 0, 8)
			slot := a.QP.SendSlot(send.Prod())
			forge(pa.G, slot, wr.WRID, 0, count)
			send.SetProd(send.Prod() + 1)
			if err := a.QP.RingSend(); err != nil {
				t.Fatal(err)
			}
			a.Sent(wr.WRID, "LOC_QP_OP_ERR")
			a.Quiet()
			a.StateIs("ERR")
			a.Destroy()
			b.Destroy()
		}
		n.check()
	})
}

// forge writes the header of a send element.
func forge(g *testguest.Guest, slot []byte, id uint64, opcode uint32, numSGE uint64) {
	g.L.View("pvrdma_sq_wqe_hdr", slot).Set("wr_id", id).Set("opcode", uint64(opcode)).Set("num_sge", numSGE).
		Set("send_flags", uint64(g.Const("PVRDMA_SEND_SIGNALED")))
}

func TestACountOfPiecesBeyondTheQueuesIsOneFailedReceive(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		for _, count := range []uint64{3, 1 << 31, 1<<32 - 1} {
			pa := d.guest("a").Open()
			a, b := pa.Endpoint(testguest.Shape{SGE: 2}), pa.Endpoint(testguest.Shape{SGE: 2})
			testguest.Connect(a, b)
			_, recv := b.QP.Rings()
			pa.G.L.View("pvrdma_rq_wqe_hdr", b.QP.RecvSlot(0)).Set("wr_id", 99).Set("num_sge", count)
			recv.SetProd(1)
			if err := b.QP.RingRecv(); err != nil {
				t.Fatal(err)
			}
			a.Sent(a.Send(0, 8), "REM_OP_ERR")
			b.Received(99, "LOC_QP_OP_ERR")
			b.StateIs("ERR")
			pa.G.Stop()
		}
	})
}

func TestPiecesWhoseSumDoesNotFitAreRefused(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		a, b := d.connected(testguest.Shape{SGE: 16})
		wr := a.Op("RDMA_WRITE", b.Address(), 0, 8)
		wr.SGE = nil
		for range 16 { // 2^32 and 16 bytes in all: 16 in 32 bits
			s := a.MR.SGE(0, 0)
			s.Length = 1<<28 + 1
			wr.SGE = append(wr.SGE, s)
		}
		a.Sent(a.Post(wr), "LOC_LEN_ERR")
	})
}

// A program may ring any handle through its own page, and any word as often as it likes.
func TestDoorbellsOfOtherProgramsObjectsDoNothing(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		n := d.neighbour()
		g := d.guest("a")
		victim, attacker := g.Open().Endpoint(testguest.Shape{}), g.Open()
		victim.ConnectTo(victim.Address())
		send, _ := victim.QP.Rings()
		before := send.Cons()
		wr := victim.Op("RDMA_WRITE", victim.Address(), 0, 8)
		forge(g, victim.QP.SendSlot(before), wr.WRID, 99, 0) // a request that would end the queue pair
		send.SetProd(before + 1)
		for _, handle := range []uint32{victim.QP.Handle, g.GSI.QP.Handle, 0, 0xffffff} {
			for range 20 {
				for off, cmd := range map[uint32]uint32{0: 0xc0000000, 4: 0xe0000000, 8: 0x40000000} {
					if err := attacker.Ring(off, handle|cmd); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if d.mode == "trap" {
			time.Sleep(settle)
			if send.Cons() != before {
				t.Error("a request was taken for a doorbell on another program's page")
			}
		}
		if err := victim.QP.RingSend(); err != nil {
			t.Fatal(err)
		}
		victim.Sent(wr.WRID, "LOC_QP_OP_ERR")
		n.check()
	})
}

func TestAStormOfDoorbellsDoesNotDisturbTheOtherGuest(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		n := d.neighbour()
		g := d.guest("a")
		var programs []*testguest.Program
		for range 8 {
			programs = append(programs, g.Open())
		}
		rng := rand.New(rand.NewPCG(5, 6))
		for began := time.Now(); time.Since(began) < 300*time.Millisecond; {
			for _, p := range programs {
				off := []uint32{0, 4, 8, 12, ram.PageSize - 4}[rng.IntN(5)]
				if err := p.Ring(off, rng.Uint32()); err != nil {
					t.Fatal(err)
				}
			}
			if d.mode == "poll" {
				time.Sleep(20 * time.Microsecond) // leave the worker a processor
			}
		}
		e := programs[3].Endpoint(testguest.Shape{})
		e.ConnectTo(e.Address())
		e.Sent(e.Write(e.Address(), 0, 100), "SUCCESS")
		n.check()
	})
}

// The guest rewrites its own rings, requests and completions while the device reads them.
func TestMemoryThatChangesWhileTheDeviceReadsItDoesNoHarm(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		n := d.neighbour()
		g := d.guest("a")
		for round := range 4 {
			p := g.Open()
			e := p.Endpoint(testguest.Shape{SGE: 4, Depth: 16})
			e.ConnectTo(e.Address())
			var stop atomic.Bool
			var wg sync.WaitGroup
			wg.Go(func() { scribble(e, uint64(round), &stop) })
			send, recv := e.QP.Rings()
			for i := range uint32(400) {
				wr := e.Op("RDMA_WRITE", e.Address(), 0, 64)
				forge(g, e.QP.SendSlot(i%16), wr.WRID, i%5, 1)
				send.SetProd(i % 32)
				recv.SetProd(i * 3 % 32)
				if e.QP.RingSend() != nil || e.QP.RingRecv() != nil || e.SendCQ.ReqNotify(false) != nil {
					t.Fatal("the device does not answer")
				}
			}
			stop.Store(true)
			wg.Wait()
			if _, err := g.Dev.QueryPort(1); err != nil {
				t.Fatalf("round %d: a command: %v", round, err)
			}
			e.Destroy()
			p.Exit()
		}
		g.Reboot()
		d.exchangeAfter(g, n.flow.From.P.G)
		n.check()
	})
}

// scribble writes random words into the endpoint's queues.
func scribble(e *testguest.Endpoint, seed uint64, stop *atomic.Bool) {
	rng := rand.New(rand.NewPCG(seed, 7))
	areas := [][]byte{e.SendCQ.Memory(), e.RecvCQ.Memory(), e.QP.SendSlot(0), e.QP.SendSlot(7), e.QP.RecvSlot(3)}
	for !stop.Load() {
		area := areas[rng.IntN(len(areas))]
		ram.Store32(area, rng.IntN(len(area)/4)*4, rng.Uint32()>>(rng.IntN(4)*8))
		if rng.IntN(64) == 0 {
			time.Sleep(10 * time.Microsecond)
		}
	}
}

// truncate pulls the guest's memory away. Nobody here touches it afterwards, so the handlers of its events end first.
func truncate(t *testing.T, g *testguest.Guest) {
	t.Helper()
	if err := g.Dev.Abandon(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(g.RAM.FD(), 0); err != nil {
		t.Fatal(err)
	}
}

// Memory that is pulled away under the device is the fault of the guest that owned it, and of nobody else.
func TestMemoryThatIsTruncatedResetsItsGuestAlone(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		n := d.neighbour()
		o := guestOptions("a")
		o.Memory.Unsealed = true
		m, err := testguest.Boot(d.socket("a"), o)
		if err != nil {
			t.Fatal(err)
		}
		a := testguest.Adopt(t, m)
		p := n.flow.From.P
		shape := testguest.Shape{Bytes: 4 * stormSize, Depth: 32}
		x, y := a.Open().Endpoint(shape), p.Endpoint(shape)
		testguest.Connect(x, y)
		s := startStorm(y, x.Address())
		wantMoving(t, x.MR.Mem)

		truncate(t, a)

		s.join()
		if s.err != nil || s.first == 0 {
			t.Errorf("the peer's requests end with %s, error %v", a.L.ConstName("PVRDMA_WC_", s.first), s.err)
		}
		n.check()
		a.Kill()
		d.exchangeAfter(d.guest("a"), p.G)
	})
}
