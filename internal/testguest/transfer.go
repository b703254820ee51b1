// SPDX-License-Identifier: Apache-2.0

package testguest

import (
	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
)

// Op makes a work request of an operation, the end of PVRDMA_WR_<op>, over n bytes at an offset of the endpoint's
// memory; remote operations go to the same offset of the peer's.
func (e *Endpoint) Op(op string, peer Address, off, n int) verbs.SendWR {
	e.nextID++
	wr := verbs.SendWR{
		WRID: e.nextID, Opcode: e.P.G.Const("PVRDMA_WR_" + op), RemoteAddr: peer.Addr + uint64(off), RKey: peer.RKey,
	}
	if n > 0 {
		wr.SGE = []verbs.SGE{e.MR.SGE(off, n)}
	}
	return wr
}

// Post gives a work request to the queue pair and returns its id.
func (e *Endpoint) Post(wr verbs.SendWR) uint64 {
	e.t.Helper()
	if err := e.QP.PostSend(wr); err != nil {
		e.t.Fatalf("post %s on queue pair %d: %v", e.P.G.L.ConstName("PVRDMA_WR_", wr.Opcode), e.QP.Handle, err)
	}
	return wr.WRID
}

// Send posts a SEND of n bytes at an offset.
func (e *Endpoint) Send(off, n int) uint64 {
	e.t.Helper()
	return e.Post(e.Op("SEND", Address{}, off, n))
}

// Write posts a WRITE of n bytes to the same offset of the peer's memory.
func (e *Endpoint) Write(peer Address, off, n int) uint64 {
	e.t.Helper()
	return e.Post(e.Op("RDMA_WRITE", peer, off, n))
}

// Read posts a READ of n bytes from the same offset of the peer's memory.
func (e *Endpoint) Read(peer Address, off, n int) uint64 {
	e.t.Helper()
	return e.Post(e.Op("RDMA_READ", peer, off, n))
}

// Recv posts a receive into n bytes at an offset.
func (e *Endpoint) Recv(off, n int) uint64 {
	e.t.Helper()
	e.nextID++
	wr := verbs.RecvWR{WRID: e.nextID}
	if n > 0 {
		wr.SGE = []verbs.SGE{e.MR.SGE(off, n)}
	}
	if err := e.QP.PostRecv(wr); err != nil {
		e.t.Fatalf("post a receive on queue pair %d: %v", e.QP.Handle, err)
	}
	return wr.WRID
}

// Sent waits for the completion of work request id and wants it to have a status, the end of PVRDMA_WC_<status>.
func (e *Endpoint) Sent(id uint64, status string) verbs.WC {
	e.t.Helper()
	return e.expect(e.SendCQ, id, status)
}

// Received waits for the completion of receive id.
func (e *Endpoint) Received(id uint64, status string) verbs.WC {
	e.t.Helper()
	return e.expect(e.RecvCQ, id, status)
}

func (e *Endpoint) expect(cq *verbs.CQ, id uint64, status string) verbs.WC {
	e.t.Helper()
	wc, err := cq.Wait(e.Shape.Mode, Patience)
	if err != nil {
		e.t.Fatalf("wait for work request %d of queue pair %d: %v", id, e.QP.Handle, err)
	}
	if wc.WRID != id || wc.Status != e.P.G.Const("PVRDMA_WC_"+status) || wc.QP != e.QP {
		e.t.Fatalf("completion of work request %d of queue pair %d with %s (vendor error %#x), want %d with %s",
			wc.WRID, wc.QP.Handle, e.P.G.L.ConstName("PVRDMA_WC_", wc.Status), wc.VendorErr, id, status)
	}
	return wc
}

// Quiet fails the test if either completion queue holds something.
func (e *Endpoint) Quiet() {
	e.t.Helper()
	for _, cq := range []*verbs.CQ{e.SendCQ, e.RecvCQ} {
		wc, ok, err := cq.Poll()
		if err != nil {
			e.t.Fatal(err)
		}
		if ok {
			e.t.Fatalf("unexpected completion of work request %d with %s", wc.WRID,
				e.P.G.L.ConstName("PVRDMA_WC_", wc.Status))
		}
	}
}

// StateIs fails the test unless the device says that the queue pair is in a state, the end of PVRDMA_QPS_<state>.
func (e *Endpoint) StateIs(state string) {
	e.t.Helper()
	v, err := e.QP.Query()
	if err != nil {
		e.t.Fatalf("query queue pair %d: %v", e.QP.Handle, err)
	}
	if got := v.Get32("qp_state"); got != e.P.G.Const("PVRDMA_QPS_"+state) {
		e.t.Fatalf("queue pair %d is in state %s, want %s", e.QP.Handle, e.P.G.L.ConstName("PVRDMA_QPS_", got), state)
	}
}
