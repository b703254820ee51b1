// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"bytes"
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/driver"
	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
)

// failure is a request of a to b that must fail, and how both sides learn of it.
type failure struct {
	name string
	// shape of b and of a; tune changes how both connect.
	a, b testguest.Shape
	tune func(g *testguest.Guest, t *verbs.Tuning)
	// request makes the request. It may post receives and break things before.
	request requester
	// status is a's, stateB is where b's queue pair is afterwards.
	status, stateB string
	// recv is the status of b's receive, event is b's asynchronous event, "" if there is none.
	recv, event string
}

// requester makes a request of a to b.
type requester func(t *testing.T, a, b *testguest.Endpoint) verbs.SendWR

func write(off int, change func(*verbs.SendWR)) requester {
	return request("RDMA_WRITE", off, change)
}

func request(op string, off int, change func(*verbs.SendWR)) requester {
	return func(_ *testing.T, a, b *testguest.Endpoint) verbs.SendWR {
		wr := a.Op(op, b.Address(), off, 256)
		change(&wr)
		return wr
	}
}

// otherKey registers memory in another protection domain of a program and returns its registration.
func otherKey(t *testing.T, e *testguest.Endpoint) *verbs.MR {
	t.Helper()
	pd, err := e.P.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	mr, err := pd.Register(4096, 0, e.P.G.RemoteAccess())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mr.Deregister(); err != nil {
			t.Error(err)
		}
		if err := pd.Free(); err != nil {
			t.Error(err)
		}
	})
	return mr
}

// atZero registers a page of a program under the addresses from 0 on, as any guest kernel may.
func atZero(t *testing.T, e *testguest.Endpoint) driver.MR {
	t.Helper()
	pages, err := e.P.G.RAM.Pages(1)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := driver.NewPageDir(e.P.G.L, e.P.G.RAM, pages)
	if err != nil {
		t.Fatal(err)
	}
	m, err := e.P.Dev.CreateMR(driver.MRParams{
		Length: 4096, PDir: dir.Addr(), PD: e.PD.Handle, Access: e.P.G.RemoteAccess(), Chunks: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.P.Dev.DestroyMR(m.Handle); err != nil {
			t.Error(err)
		}
	})
	return m
}

func remoteFailures() []failure {
	list := []failure{
		{name: "a remote key that nobody has", request: write(0, func(wr *verbs.SendWR) { wr.RKey ^= 0x5a5a5a00 })},
		{name: "a remote key of another generation", request: write(0, func(wr *verbs.SendWR) { wr.RKey ^= 1 })},
		{name: "remote key 0", request: write(0, func(wr *verbs.SendWR) { wr.RKey = 0 })},
		{name: "a write before the region", request: write(0, func(wr *verbs.SendWR) { wr.RemoteAddr-- })},
		{name: "a write beyond the region", request: write(64<<10-255, func(wr *verbs.SendWR) {
			wr.SGE[0].Addr--
		})},
		{name: "an address that wraps", request: write(0, func(wr *verbs.SendWR) { wr.RemoteAddr = ^uint64(0) - 100 })},
		{name: "a read beyond the region", request: request("RDMA_READ", 64<<10-255, func(wr *verbs.SendWR) {
			wr.SGE[0].Addr--
		})},
	}
	list = append(list, foreignKeys()...)
	for i := range list {
		list[i].status, list[i].stateB, list[i].event = "REM_ACCESS_ERR", "ERR", "QP_ACCESS_ERR"
	}
	return list
}

// foreignKeys are remote keys that are there, and not for this.
func foreignKeys() []failure {
	return []failure{
		{
			name: "a key of another protection domain", request: func(t *testing.T, a, b *testguest.Endpoint) verbs.SendWR {
				mr := otherKey(t, b)
				wr := a.Op("RDMA_READ", b.Address(), 0, 256)
				wr.RemoteAddr, wr.RKey = mr.Addr, mr.RKey
				return wr
			},
		},
		{
			name: "the key of the guest kernel's whole memory",
			request: func(_ *testing.T, a, b *testguest.Endpoint) verbs.SendWR {
				wr := a.Op("RDMA_READ", b.Address(), 0, 256)
				wr.RemoteAddr, wr.RKey = b.P.G.RAM.Regions()[0].Addr, b.P.G.GSI.PD.DMA.RKey
				return wr
			},
		},
		{
			name: "an address that wraps in a region at 0",
			request: func(t *testing.T, a, b *testguest.Endpoint) verbs.SendWR {
				m := atZero(t, b)
				wr := a.Op("RDMA_WRITE", b.Address(), 0, 256)
				wr.RemoteAddr, wr.RKey = 1<<64-100, m.RKey
				return wr
			},
		},
		{
			name: "a registration that was taken back", request: func(t *testing.T, a, b *testguest.Endpoint) verbs.SendWR {
				mr, err := b.PD.Register(4096, 0, b.P.G.RemoteAccess())
				if err != nil {
					t.Fatal(err)
				}
				wr := a.Op("RDMA_WRITE", b.Address(), 0, 256)
				wr.RemoteAddr, wr.RKey = mr.Addr, mr.RKey
				if err := mr.Deregister(); err != nil {
					t.Fatal(err)
				}
				return wr
			},
		},
		{
			name: "a write to memory that allows reads", b: testguest.Shape{Access: 1 | 4},
			request: write(0, func(*verbs.SendWR) {}),
		},
		{
			name: "a read of memory that allows writes", b: testguest.Shape{Access: 1 | 2},
			request: request("RDMA_READ", 0, func(*verbs.SendWR) {}),
		},
	}
}

func attributeFailures() []failure {
	return []failure{
		{
			name: "a write to a queue pair that allows none", request: write(0, func(*verbs.SendWR) {}),
			tune:   func(g *testguest.Guest, t *verbs.Tuning) { t.Access = g.Const("PVRDMA_ACCESS_REMOTE_READ") },
			status: "REM_INV_REQ_ERR", stateB: "ERR", event: "QP_REQ_ERR",
		},
		{
			name: "a read of a queue pair that answers none", request: request("RDMA_READ", 0, func(*verbs.SendWR) {}),
			tune:   func(_ *testguest.Guest, t *verbs.Tuning) { t.DestRDAtomic = 0 },
			status: "REM_INV_REQ_ERR", stateB: "ERR", event: "QP_REQ_ERR",
		},
		{
			name: "a read by a queue pair that asks none", request: request("RDMA_READ", 0, func(*verbs.SendWR) {}),
			tune:   func(_ *testguest.Guest, t *verbs.Tuning) { t.RDAtomic = 0 },
			status: "LOC_QP_OP_ERR", stateB: "RTS",
		},
		{
			name: "no receive and no patience", request: request("SEND", 0, func(*verbs.SendWR) {}),
			tune:   func(_ *testguest.Guest, t *verbs.Tuning) { t.RNRRetry = 0 },
			status: "RNR_RETRY_EXC_ERR", stateB: "RTS",
		},
		{
			name: "no receive in three tries", request: request("RDMA_WRITE_WITH_IMM", 0, func(*verbs.SendWR) {}),
			tune:   func(_ *testguest.Guest, t *verbs.Tuning) { t.RNRRetry, t.MinRNRTimer = 3, 14 },
			status: "RNR_RETRY_EXC_ERR", stateB: "RTS",
		},
	}
}

func localFailures() []failure {
	list := []failure{
		{name: "a local key that nobody has", request: write(0, func(wr *verbs.SendWR) { wr.SGE[0].LKey ^= 0x5a5a5a00 })},
		{name: "local key 0", request: write(0, func(wr *verbs.SendWR) { wr.SGE[0].LKey = 0 })},
		{name: "memory beyond the region", request: write(0, func(wr *verbs.SendWR) { wr.SGE[0].Addr += 64<<10 - 255 })},
		{name: "a local address that wraps", request: write(0, func(wr *verbs.SendWR) { wr.SGE[0].Addr = ^uint64(0) - 10 })},
		{name: "an inline flag and no key", request: write(0, func(wr *verbs.SendWR) { wr.Flags |= 8; wr.SGE[0].LKey = 0 })},
		{
			name: "a local key of another protection domain",
			request: func(t *testing.T, a, b *testguest.Endpoint) verbs.SendWR {
				mr := otherKey(t, a)
				wr := a.Op("RDMA_WRITE", b.Address(), 0, 256)
				wr.SGE = []verbs.SGE{mr.SGE(0, 256)}
				return wr
			},
		},
		{
			name: "the guest kernel's key in a program", request: func(_ *testing.T, a, b *testguest.Endpoint) verbs.SendWR {
				wr := a.Op("RDMA_WRITE", b.Address(), 0, 256)
				wr.SGE = []verbs.SGE{{Addr: a.P.G.RAM.Regions()[0].Addr, Length: 256, LKey: a.P.G.GSI.PD.DMA.LKey}}
				return wr
			},
		},
		{name: "the peer's key", request: func(_ *testing.T, a, b *testguest.Endpoint) verbs.SendWR {
			wr := a.Op("RDMA_WRITE", b.Address(), 0, 256)
			wr.SGE = []verbs.SGE{b.MR.SGE(0, 256)}
			return wr
		}},
		{
			name: "a read into memory that is not writable", a: testguest.Shape{Access: 4},
			request: request("RDMA_READ", 0, func(*verbs.SendWR) {}),
		},
	}
	for i := range list {
		list[i].status, list[i].stateB = "LOC_PROT_ERR", "RTS"
	}
	for _, op := range []uint32{7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 0xffffffff} {
		list = append(list, failure{
			name: "an opcode that a program may not use", status: "LOC_QP_OP_ERR", stateB: "RTS",
			request: write(0, func(wr *verbs.SendWR) {
				wr.Opcode = op
				wr.FastReg = &verbs.FastReg{}
			}),
		})
	}
	return list
}

func receiveFailures() []failure {
	into := func(change func(b *testguest.Endpoint, wr *verbs.RecvWR)) requester {
		return func(t *testing.T, a, b *testguest.Endpoint) verbs.SendWR {
			recv := verbs.RecvWR{WRID: 77, SGE: []verbs.SGE{b.MR.SGE(0, 256)}}
			change(b, &recv)
			if err := b.QP.PostRecv(recv); err != nil {
				t.Fatal(err)
			}
			return a.Op("SEND", testguest.Address{}, 0, 256)
		}
	}
	return []failure{
		{
			name:    "a message longer than the receive",
			request: into(func(_ *testguest.Endpoint, wr *verbs.RecvWR) { wr.SGE[0].Length = 255 }),
			status:  "REM_INV_REQ_ERR", stateB: "ERR", recv: "LOC_LEN_ERR",
		},
		{
			name:    "a receive with no memory",
			request: into(func(_ *testguest.Endpoint, wr *verbs.RecvWR) { wr.SGE = nil }),
			status:  "REM_INV_REQ_ERR", stateB: "ERR", recv: "LOC_LEN_ERR",
		},
		{
			name:    "a receive with a wrong key",
			request: into(func(_ *testguest.Endpoint, wr *verbs.RecvWR) { wr.SGE[0].LKey ^= 0x7700 }),
			status:  "REM_OP_ERR", stateB: "ERR", recv: "LOC_PROT_ERR",
		},
		{
			name: "a receive into memory that is not writable", b: testguest.Shape{Access: 4},
			request: into(func(*testguest.Endpoint, *verbs.RecvWR) {}),
			status:  "REM_OP_ERR", stateB: "ERR", recv: "LOC_PROT_ERR",
		},
	}
}

// The kernel's key for all memory is good on its own side only, also for its own queue pairs.
func TestTheKeyOfAllMemoryIsNoRemoteKey(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		pa, pb := d.guest("a").InKernel(), d.guest("b").InKernel()
		for name, key := range map[string]func(b *testguest.Endpoint) uint32{
			"its local key":  func(b *testguest.Endpoint) uint32 { return b.PD.DMA.LKey },
			"its remote key": func(b *testguest.Endpoint) uint32 { return b.PD.DMA.RKey },
		} {
			a, b := pa.Endpoint(testguest.Shape{}), pb.Endpoint(testguest.Shape{})
			testguest.Connect(a, b)
			local := a.Op("RDMA_WRITE", b.Address(), 0, 0)
			local.SGE = []verbs.SGE{{Addr: pa.G.RAM.Regions()[1].Addr, Length: 64, LKey: a.PD.DMA.LKey}}
			a.Sent(a.Post(local), "SUCCESS") // its own side
			wr := a.Op("RDMA_READ", testguest.Address{Addr: pb.G.RAM.Regions()[1].Addr, RKey: key(b)}, 0, 64)
			wc, err := postAndWait(a, wr)
			if err != nil || wc.Status != pa.G.Const("PVRDMA_WC_REM_ACCESS_ERR") {
				t.Errorf("%s: status %d, error %v", name, wc.Status, err)
			}
			a.Destroy()
			b.Destroy()
		}
	})
}

func postAndWait(e *testguest.Endpoint, wr verbs.SendWR) (verbs.WC, error) {
	if err := e.QP.PostSend(wr); err != nil {
		return verbs.WC{}, err
	}
	return e.SendCQ.Wait(e.Shape.Mode, testguest.Patience)
}

func TestAFailedRequestEndsWithItsStatusOnBothSidesAndMovesNoByte(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		pa, pb := d.guest("a").Open(), d.guest("b").Open()
		for _, list := range [][]failure{
			remoteFailures(), attributeFailures(), localFailures(), receiveFailures(), atomicFailures(pa.G),
		} {
			for _, f := range list {
				t.Run(f.name, func(t *testing.T) { f.run(t, pa, pb) })
			}
		}
	})
}

func (f failure) run(t *testing.T, pa, pb *testguest.Program) {
	for _, s := range []*testguest.Shape{&f.a, &f.b} {
		tune := pa.G.DefaultTuning()
		if f.tune != nil {
			f.tune(pa.G, &tune)
		}
		s.Tuning = &tune
	}
	a, b := pa.Endpoint(f.a), pb.Endpoint(f.b)
	t.Cleanup(a.Destroy) // after what the request registers in its domain
	t.Cleanup(b.Destroy)
	testguest.Connect(a, b)
	testguest.Pattern{Seed: 1}.Fill(a.MR.Mem)
	testguest.Pattern{Seed: 2}.Fill(b.MR.Mem)
	memoryA, memoryB := bytes.Clone(a.MR.Mem), bytes.Clone(b.MR.Mem)

	wr := f.request(t, a, b)
	second := a.Op("RDMA_WRITE", b.Address(), 1024, 256)
	if err := a.QP.PostSend(wr, second); err != nil {
		t.Fatal(err)
	}

	a.Sent(wr.WRID, f.status)
	a.Sent(second.WRID, "WR_FLUSH_ERR")
	a.StateIs("ERR")
	b.StateIs(f.stateB)
	if f.recv != "" {
		b.Received(77, f.recv)
	}
	f.checkEvent(t, b)
	if !bytes.Equal(a.MR.Mem, memoryA) || !bytes.Equal(b.MR.Mem, memoryB) {
		t.Error("memory changed")
	}
	a.Sent(a.Write(b.Address(), 0, 8), "WR_FLUSH_ERR")
	a.Received(a.Recv(0, 8), "WR_FLUSH_ERR")
	a.Quiet()
	b.Quiet()
}

func (f failure) checkEvent(t *testing.T, b *testguest.Endpoint) {
	t.Helper()
	if f.event == "" {
		return
	}
	for { // COMM_EST and the like may come first
		e, err := b.P.G.Dev.WaitAsync(testguest.Patience)
		if err != nil {
			t.Fatalf("event %s: %v", f.event, err)
		}
		if e.Type == b.P.G.Const("PVRDMA_EVENT_"+f.event) && e.Info == b.QP.Handle {
			return
		}
		t.Logf("another event: %s of %d", b.P.G.L.ConstName("PVRDMA_EVENT_", e.Type), e.Info)
	}
}
