// SPDX-License-Identifier: Apache-2.0

package testguest

import (
	"errors"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
)

// Patience is how long an endpoint waits for a completion before the test fails. It is far above what any transfer
// takes, also on a machine that others have most of.
const Patience = 30 * time.Second

// Shape says what an endpoint is like. Zero fields are defaults.
type Shape struct {
	// Type is that of the queue pair, the end of PVRDMA_QPT_<type>; "" is RC.
	Type string
	// Mode is how it waits for completions.
	Mode verbs.Mode
	// Bytes is the size of its memory, Offset where in its first page it begins.
	Bytes, Offset int
	// Depth is the length of both work queues, SGE the pieces of a work request.
	Depth, SGE uint32
	// SRQ is where the queue pair receives from, nil for a queue of its own.
	SRQ *verbs.SRQ
	// CQE is the length of each completion queue.
	CQE uint32
	// Access is what the memory allows, Tuning how it connects; nil for DefaultTuning.
	Access uint32
	Tuning *verbs.Tuning
	// Unsignaled leaves completions to the work requests that ask for one.
	Unsignaled bool
}

// Endpoint is one end of a connection: a queue pair with its completion queues, its protection domain and memory.
type Endpoint struct {
	P              *Program
	PD             *verbs.PD
	SendCQ, RecvCQ *verbs.CQ
	QP             *verbs.QP
	MR             *verbs.MR
	Shape          Shape

	t      testing.TB
	nextID uint64
}

// DefaultTuning allows a peer everything and fails after about 70 ms without an answer, or at once without a receive.
func (g *Guest) DefaultTuning() verbs.Tuning {
	return verbs.Tuning{
		Access: g.RemoteAccess(), MTU: g.Const("PVRDMA_MTU_1024"), Timeout: 12, RetryCnt: 3, RNRRetry: 7,
		MinRNRTimer: 1, RDAtomic: 4, DestRDAtomic: 4,
	}
}

// RemoteAccess is all access of memory that this device serves.
func (g *Guest) RemoteAccess() uint32 {
	return g.Const("PVRDMA_ACCESS_LOCAL_WRITE") | g.Const("PVRDMA_ACCESS_REMOTE_WRITE") |
		g.Const("PVRDMA_ACCESS_REMOTE_READ")
}

// Endpoint makes an endpoint of a program.
func (p *Program) Endpoint(s Shape) *Endpoint {
	p.G.t.Helper()
	s = p.shape(s)
	e := &Endpoint{P: p, Shape: s, t: p.G.t}
	if err := e.create(); err != nil {
		p.G.t.Fatalf("make an endpoint: %v", err)
	}
	p.endpoints = append(p.endpoints, e)
	return e
}

func (p *Program) shape(s Shape) Shape {
	if s.Type == "" {
		s.Type = "RC"
	}
	if s.Bytes == 0 {
		s.Bytes = 64 << 10
	}
	if s.Depth == 0 {
		s.Depth = 64
	}
	if s.SGE == 0 {
		s.SGE = 1
	}
	if s.CQE == 0 {
		s.CQE = 2 * s.Depth
	}
	if s.Access == 0 {
		s.Access = p.G.RemoteAccess()
	}
	if s.Tuning == nil {
		t := p.G.DefaultTuning()
		s.Tuning = &t
	}
	return s
}

func (e *Endpoint) create() (err error) {
	if e.PD, err = e.P.AllocPD(); err != nil {
		return err
	}
	if e.MR, err = e.PD.Register(e.Shape.Bytes, e.Shape.Offset, e.Shape.Access); err != nil {
		return err
	}
	if e.SendCQ, err = e.P.CreateCQ(e.Shape.CQE); err != nil {
		return err
	}
	if e.RecvCQ, err = e.P.CreateCQ(e.Shape.CQE); err != nil {
		return err
	}
	e.QP, err = e.PD.CreateQP(verbs.QPInit{
		SendCQ: e.SendCQ, RecvCQ: e.RecvCQ, SRQ: e.Shape.SRQ, Type: e.P.G.Const("PVRDMA_QPT_" + e.Shape.Type), MaxSendWR: e.Shape.Depth,
		MaxRecvWR: e.Shape.Depth, MaxSendSGE: e.Shape.SGE, MaxRecvSGE: e.Shape.SGE, SignalAll: !e.Shape.Unsignaled,
	})
	return err
}

// destroy ends the endpoint's objects, in the order in which a program does.
func (e *Endpoint) destroy(alive bool) {
	if !alive || e.QP == nil {
		return
	}
	err := errors.Join(e.QP.Destroy(), e.SendCQ.Destroy(), e.RecvCQ.Destroy(), e.MR.Deregister(), e.PD.Free())
	if err != nil {
		e.t.Errorf("destroy an endpoint: %v", err)
	}
	e.QP = nil
}

// Destroy ends the endpoint now.
func (e *Endpoint) Destroy() {
	e.t.Helper()
	e.destroy(true)
}

// PathTo leads from this endpoint to another.
func (e *Endpoint) PathTo(peer Address) verbs.Path {
	return verbs.Path{DGID: peer.GID, DMAC: peer.MAC, QPN: peer.QPN, PSN: peer.PSN, OwnPSN: e.Address().PSN}
}

// Address is what a peer must know of an endpoint. It travels between processes.
type Address struct {
	GID      [16]byte
	MAC      [6]byte
	QPN, PSN uint32
	// Addr, RKey and Len name the endpoint's memory.
	Addr uint64
	RKey uint32
	Len  int
}

// Address returns the endpoint's address. Its packets begin at a number near the end of 24 bits.
func (e *Endpoint) Address() Address {
	return Address{
		GID: e.P.G.GIDs[0], MAC: e.P.G.MAC(), QPN: e.QP.QPN, PSN: 0xffffe0 + e.QP.Handle%16,
		Addr: e.MR.Addr, RKey: e.MR.RKey, Len: e.MR.Len,
	}
}

// ConnectTo takes the endpoint's queue pair from RESET to ready.
func (e *Endpoint) ConnectTo(peer Address) {
	e.t.Helper()
	path := e.PathTo(peer)
	if err := errors.Join(e.QP.ToInit(*e.Shape.Tuning), e.QP.ToRTR(path, *e.Shape.Tuning),
		e.QP.ToRTS(path, *e.Shape.Tuning)); err != nil {
		e.t.Fatalf("connect queue pair %d: %v", e.QP.Handle, err)
	}
}

// Connect connects two endpoints with each other.
func Connect(a, b *Endpoint) {
	a.t.Helper()
	a.ConnectTo(b.Address())
	b.ConnectTo(a.Address())
}
