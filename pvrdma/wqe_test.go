// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// send has the device decode one request, whose slot held old bytes, and returns what the engine got.
func (q *guestQP) send(wqe []byte, page uint32) hostverbs.SendWR {
	q.t.Helper()
	stride, _ := abi.SendWQEStride(q.req.MaxSendSGE)
	old := make([]byte, stride)
	for i := range old {
		old[i] = 0xc3
	}
	q.putSend(old)
	q.sprod = (q.sprod - 1) & (2*q.req.MaxSendWR - 1)
	q.putSend(wqe)
	q.publishSends()
	q.ring(page, abi.UARQPSend)
	q.g.rig.settle()
	got := q.engine.taken()
	if len(got) != 1 {
		q.t.Fatalf("the engine took %d requests, want 1", len(got))
	}
	for i := int(got[0].NumSGE); i < len(got[0].SGE); i++ {
		got[0].SGE[i] = hostverbs.SGE{} // nobody reads them
	}
	return got[0]
}

func TestOperationsByOwnerAndType(t *testing.T) {
	rc := map[abi.WROpcode]hostverbs.WROpcode{
		abi.WRRDMAWrite: hostverbs.OpRDMAWrite, abi.WRRDMAWriteWithImm: hostverbs.OpRDMAWriteWithImm,
		abi.WRSend: hostverbs.OpSend, abi.WRSendWithImm: hostverbs.OpSendWithImm, abi.WRRDMARead: hostverbs.OpRDMARead,
		abi.WRAtomicCmpAndSwp: hostverbs.OpAtomicCmpAndSwp, abi.WRAtomicFetchAndAdd: hostverbs.OpAtomicFetchAndAdd,
	}
	krc := maps.Clone(rc)
	krc[abi.WRSendWithInv], krc[abi.WRLocalInv], krc[abi.WRFastRegMR] = hostverbs.OpSendWithInv, hostverbs.OpLocalInv, hostverbs.OpRegMR
	gsi := map[abi.WROpcode]hostverbs.WROpcode{abi.WRSend: hostverbs.OpSend}
	ud := map[abi.WROpcode]hostverbs.WROpcode{abi.WRSend: hostverbs.OpSend, abi.WRSendWithImm: hostverbs.OpSendWithImm}
	r := newRig(t)
	g := r.newGuest()
	user, userCQ := g.rcQP(userPage, 8)
	kernel, c := g.kernelQP(8)
	qp1 := g.createQP(kernel.req.PDHandle, c, c, func(r *abi.CmdCreateQPReq) { r.QPType = abi.QPTypeGSI })
	qp1.modify(hostverbs.StateRTS)
	datagrams := g.createQP(user.req.PDHandle, userCQ, userCQ, func(r *abi.CmdCreateQPReq) { r.QPType = abi.QPTypeUD })
	datagrams.modify(hostverbs.StateRTS)
	for name, cs := range map[string]struct {
		q    *guestQP
		page uint32
		want map[abi.WROpcode]hostverbs.WROpcode
	}{
		"user": {user, userPage, rc}, "kernel": {kernel, 0, krc}, "gsi": {qp1, 0, gsi}, "datagrams": {datagrams, userPage, ud},
	} {
		ops := []abi.WROpcode{17, 255, 256, 0x80000002, 0xffffffff}
		for op := range abi.WRError + 1 {
			ops = append(ops, op)
		}
		for _, op := range ops {
			before := g.seen.violations()[BadWQE]
			var union request
			switch {
			case cs.q == qp1 || cs.q == datagrams:
				union = cs.q.address()
			case op == abi.WRFastRegMR:
				union = &abi.FastRegWR{PageShift: fastRegPageShift, PageListLen: 1}
			}
			got := cs.q.send(sendWQE(abi.SendWQEHdr{WRID: uint64(op), Opcode: op}, union), cs.page)
			want, known := cs.want[op]
			status := hostverbs.WCSuccess
			if !known {
				status = hostverbs.WCLocQPOpErr
			}
			if got.Opcode != want || got.Status != status || got.WRID != uint64(op) {
				t.Errorf("%s: opcode %v becomes %v with %v, want %v with %v", name, op, got.Opcode, got.Status, want, status)
			}
			if reported := g.seen.violations()[BadWQE] - before; (reported == 1) == known {
				t.Errorf("%s: opcode %v: %d violations", name, op, reported)
			}
		}
	}
}

// address is one that the queue pair may use.
func (q *guestQP) address() *abi.UDWR {
	return &abi.UDWR{RemoteQPN: 1, RemoteQKey: 0x80010000, AV: abi.AV{PortPD: 1<<24 | q.req.PDHandle}}
}

func TestOnlyWhatAnOperationUsesIsRead(t *testing.T) {
	_, _, q, _ := polledCQ(t, 8)
	rdma := &abi.RDMAWR{RemoteAddr: 0x1122334455667788, RKey: 0x99aabbcc}
	atomic := &abi.AtomicWR{RemoteAddr: 0x1122334455667788, CompareAdd: 1 << 60, Swap: 0xfedcba9876543210, RKey: 0x99aabbcc}
	junk := junkUnion{}
	sges := []abi.SGE{{Addr: 0xaaaa, Length: 10, LKey: 1}, {Addr: 0xbbbb, Length: 0xffffffff, LKey: 2}}
	want := hostverbs.SendWR{
		WRID: 0xffeeddccbbaa9988, Flags: 7, NumSGE: 2, Imm: 0x01020304,
		SGE: [hostverbs.MaxSGE]hostverbs.SGE{{Addr: 0xaaaa, Length: 10, LKey: 1}, {Addr: 0xbbbb, Length: 0xffffffff, LKey: 2}},
	}
	for _, c := range []struct {
		op    abi.WROpcode
		union request
		fill  func(*hostverbs.SendWR)
	}{
		{abi.WRSend, junk, func(w *hostverbs.SendWR) { w.Opcode = hostverbs.OpSend }},
		{abi.WRSendWithImm, junk, func(w *hostverbs.SendWR) { w.Opcode = hostverbs.OpSendWithImm }},
		{abi.WRRDMAWrite, rdma, func(w *hostverbs.SendWR) {
			w.Opcode, w.RemoteAddr, w.RKey = hostverbs.OpRDMAWrite, rdma.RemoteAddr, rdma.RKey
		}},
		{abi.WRRDMARead, rdma, func(w *hostverbs.SendWR) {
			w.Opcode, w.RemoteAddr, w.RKey = hostverbs.OpRDMARead, rdma.RemoteAddr, rdma.RKey
		}},
		{abi.WRAtomicCmpAndSwp, atomic, func(w *hostverbs.SendWR) {
			w.Opcode, w.RemoteAddr, w.RKey = hostverbs.OpAtomicCmpAndSwp, atomic.RemoteAddr, atomic.RKey
			w.CompareAdd, w.Swap = atomic.CompareAdd, atomic.Swap
		}},
		{abi.WRAtomicFetchAndAdd, atomic, func(w *hostverbs.SendWR) { // which has one operand
			w.Opcode, w.RemoteAddr, w.RKey = hostverbs.OpAtomicFetchAndAdd, atomic.RemoteAddr, atomic.RKey
			w.CompareAdd = atomic.CompareAdd
		}},
	} {
		w := want
		c.fill(&w)
		got := q.send(sendWQE(abi.SendWQEHdr{
			WRID: want.WRID, NumSGE: 2, TotalLen: 0xdeadbeef, Opcode: c.op, SendFlags: 0xffffffff, Ex: want.Imm,
		}, c.union, sges...), userPage)
		if diff := cmp.Diff(w, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", c.op, diff)
		}
	}
}

// junkUnion is what an older request has left.
type junkUnion struct{}

func (junkUnion) Encode(b []byte) {
	for i := range b[:48] {
		b[i] = 0xee
	}
}

func TestNothingOfAnEarlierRequestIsInALaterOne(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	kernel, c := g.kernelQP(8)
	qp1 := g.createQP(kernel.req.PDHandle, c, c, func(r *abi.CmdCreateQPReq) { r.QPType = abi.QPTypeGSI })
	qp1.modify(hostverbs.StateRTS)
	ud := qp1.address()
	ud.AV.DGID, ud.AV.HopLimit = abi.GID{15: 1}, 3
	qp1.send(sendWQE(abi.SendWQEHdr{Opcode: abi.WRSend}, ud), 0)
	kernel.send(sendWQE(abi.SendWQEHdr{Opcode: abi.WRRDMAWrite}, &abi.RDMAWR{RemoteAddr: 5, RKey: 6}), 0)
	kernel.send(sendWQE(abi.SendWQEHdr{Opcode: abi.WRAtomicCmpAndSwp}, &abi.AtomicWR{CompareAdd: 7, Swap: 8}), 0)
	kernel.send(sendWQE(abi.SendWQEHdr{Opcode: abi.WRFastRegMR}, &abi.FastRegWR{
		PLPDirDMA: 9, PageShift: fastRegPageShift, PageListLen: 10, Length: 11, AccessFlags: 1,
	}), 0)
	got := kernel.send(sendWQE(abi.SendWQEHdr{Opcode: abi.WRSend}, nil), 0)
	if diff := cmp.Diff(hostverbs.SendWR{Opcode: hostverbs.OpSend}, got); diff != "" {
		t.Errorf("a plain send (-want +got):\n%s", diff)
	}
}

// datagramQPs are the two queue pairs whose requests have addresses of their own: the guest kernel's and a user's.
func datagramQPs(t *testing.T) (*guest, map[uint32]*guestQP) {
	g := newRig(t).newGuest()
	pd, c := g.createPD(0), g.createCQ(0, 8)
	ctx := g.createUC(userPage)
	udPD, udCQ := g.createPD(ctx), g.createCQ(ctx, 8)
	qps := map[uint32]*guestQP{
		0:        g.createQP(pd, c, c, func(r *abi.CmdCreateQPReq) { r.QPType = abi.QPTypeGSI }),
		userPage: g.createQP(udPD, udCQ, udCQ, func(r *abi.CmdCreateQPReq) { r.QPType = abi.QPTypeUD }),
	}
	for _, q := range qps {
		q.modify(hostverbs.StateRTS)
	}
	return g, qps
}

func TestADatagramsAddressIsRead(t *testing.T) {
	_, qps := datagramQPs(t)
	for page, q := range qps {
		got := q.send(sendWQE(abi.SendWQEHdr{WRID: 9, Opcode: abi.WRSend, SendFlags: abi.SendSignaled}, &abi.UDWR{
			RemoteQPN: 1, RemoteQKey: 0x80010000, AV: abi.AV{
				PortPD: 1<<24 | q.req.PDHandle, SLTClassFlowLabel: 0xab<<20 | 0xcdef1, DGID: abi.GID{10: 0xff, 11: 0xff, 15: 9},
				SrcPathBits: 0x80, GIDIndex: 3, HopLimit: 64, DMAC: [6]byte{1, 2, 3, 4, 5, 6},
			},
		}), page)
		want := hostverbs.SendWR{
			WRID: 9, Opcode: hostverbs.OpSend, Flags: hostverbs.SendSignaled, RemoteQPN: 1, RemoteQKey: 0x80010000,
			AH: hostverbs.AHAttr{
				DGID: hostverbs.GID{10: 0xff, 11: 0xff, 15: 9}, FlowLabel: 0xcdef1, SGIDIndex: 3, HopLimit: 64, TrafficClass: 0xab,
				GRH: true, PortNum: 1,
			},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", q.req.QPType, diff)
		}
	}
}

func TestAnAddressOfAnotherProtectionDomainOrPortIsNone(t *testing.T) {
	g, qps := datagramQPs(t)
	other := g.createPD(0)
	for page, q := range qps {
		pd := q.req.PDHandle
		for portPD, ok := range map[uint32]bool{
			1<<24 | pd: true, 1<<24 | other: false, 1 << 24: false, 1<<24 | 0xffffff: false, pd: false, 2<<24 | pd: false,
			0xff<<24 | pd: false, 0: false, 0xffffffff: false,
		} {
			want, violations := hostverbs.WCLocQPOpErr, 1
			if ok {
				want, violations = hostverbs.WCSuccess, 0
			}
			ud := q.address()
			ud.AV.PortPD = portPD
			before := g.seen.violations()[BadWQE]
			got := q.send(sendWQE(abi.SendWQEHdr{WRID: 1, NumSGE: 1, Opcode: abi.WRSend}, ud, abi.SGE{Length: 1}), page)
			if got.Status != want {
				t.Errorf("%v, port and PD %#x: %v, want %v", q.req.QPType, portPD, got.Status, want)
			}
			if n := g.seen.violations()[BadWQE] - before; n != violations {
				t.Errorf("%v, port and PD %#x: %d violations, want %d", q.req.QPType, portPD, n, violations)
			}
			if !ok && (got.NumSGE != 0 || got.AH.GRH) {
				t.Errorf("%v, port and PD %#x: the engine is handed %+v", q.req.QPType, portPD, got)
			}
		}
	}
}

func TestInlineAndChecksumFlagsMeanNothing(t *testing.T) {
	if f := sendFlags(abi.SendInline | abi.SendIPCsum | 1<<31); f != 0 {
		t.Errorf("flags %v", f)
	}
}

func TestTheMessagePathAllocatesNothing(t *testing.T) {
	r, g, q, c := polledCQ(t, 64)
	g.dev.observer = nil
	for range 2 * q.req.MaxSendWR {
		q.putSend(sendWQE(abi.SendWQEHdr{WRID: 1, Opcode: abi.WRSend, NumSGE: 2}, nil, abi.SGE{}, abi.SGE{}))
	}
	var wr hostverbs.RecvWR
	wc := hostverbs.WC{WRID: 1}
	q.engine.posted = make([]hostverbs.SendWR, 0, 4096)
	q.engine.offered = make([]int, 0, 4096)
	g.notifier.cq = make([]uint32, 0, 4096)
	var slot uint32
	n := testing.AllocsPerRun(200, func() {
		slot = (slot + 1) & 15
		q.store32(q.at(txProdTail), slot)
		q.store32(q.at(rxProdTail), slot)
		q.ring(userPage, abi.UARQPSend)
		c.ring(userPage, abi.UARCQPoll)
		r.step()
		if ok, err := q.engine.h.PullRecv(&wr); !ok || err != nil {
			t.Fatal("nothing to pull", err)
		}
		if err := q.engine.h.CompleteSend(&wc); err != nil {
			t.Fatal(err)
		}
		r.worker.show()
		c.cons = (c.cons + 1) & 127
		c.store32(c.at(rxConsHead), c.cons)
		r.after(DefaultCQGrace)
		r.step()
	})
	if n != 0 {
		t.Errorf("%v allocations for each message", n)
	}
}
