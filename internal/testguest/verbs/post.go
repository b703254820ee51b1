// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"errors"
	"fmt"

	"github.com/pvrdmad/pvrdmad/internal/testguest/driver"
	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"golang.org/x/sys/unix"
)

// SendWR is a send work request. Opcode is PVRDMA_WR_*, Flags PVRDMA_SEND_*.
type SendWR struct {
	WRID          uint64
	Opcode, Flags uint32
	SGE           []SGE
	// RemoteAddr and RKey are of RDMA and atomic operations.
	RemoteAddr uint64
	RKey       uint32
	// Imm is immediate data as a number; it travels in network order.
	Imm uint32
	// InvalidateKey is of SEND_WITH_INV and LOCAL_INV.
	InvalidateKey uint32
	// CompareAdd and Swap are of atomic operations.
	CompareAdd, Swap uint64
	// AV, QPN and QKey are of unreliable datagrams.
	AV        *layout.View
	QPN, QKey uint32
	// FastReg is of FAST_REG_MR.
	FastReg *FastReg
}

// FastReg is the registration that a FAST_REG_MR work request makes.
type FastReg struct {
	IOVA, PDir                uint64
	Pages, Bytes, Access, Key uint32
}

// RecvWR is a receive work request.
type RecvWR struct {
	WRID uint64
	SGE  []SGE
}

// PostSend gives send work requests to the queue pair, with one doorbell for all.
func (q *QP) PostSend(wrs ...SendWR) error {
	if s := q.State(); s < q.l.Const("PVRDMA_QPS_RTS") {
		return errInvalid("post a send in state %s", q.l.ConstName("PVRDMA_QPS_", s))
	}
	q.sq.mu.Lock()
	defer q.sq.mu.Unlock()
	posted := 0
	var err error
	for _, wr := range wrs {
		if err = q.writeSend(wr); err != nil {
			break
		}
		posted++
	}
	if posted > 0 {
		err = errors.Join(err, q.RingSend())
	}
	return err
}

// RingSend and RingRecv ring the queue pair's doorbell.
func (q *QP) RingSend() error {
	return q.PD.Ctx.Ring(q.PD.Ctx.f.bell.qp, q.Handle|q.PD.Ctx.f.bell.send)
}

// RingRecv rings for receives.
func (q *QP) RingRecv() error {
	return q.PD.Ctx.Ring(q.PD.Ctx.f.bell.qp, q.Handle|q.PD.Ctx.f.bell.recv)
}

func (q *QP) writeSend(wr SendWR) error {
	v, slot := q.sq.ring.HasSpace(q.sq.n)
	if v != driver.Yes {
		return fmt.Errorf("post a send: the queue of %d is full: %w", q.sq.n, unix.ENOMEM)
	}
	if len(wr.SGE) > int(q.sq.maxSGE) {
		return errInvalid("post a send of %d pieces, at most %d", len(wr.SGE), q.sq.maxSGE)
	}
	b := q.sq.slot(slot)
	f := &q.PD.Ctx.f
	if q.PD.Ctx.IsKernel() { // the provider leaves what was there
		clear(b[:f.sqSize])
	}
	f.sq.wrID.Put(b, wr.WRID)
	f.sq.numSGE.Put(b, uint64(len(wr.SGE)))
	f.sq.opcode.Put(b, uint64(wr.Opcode))
	f.sq.flags.Put(b, uint64(wr.Flags))
	q.writeOp(b, wr)
	f.putSGEs(b[f.sqSize:], wr.SGE)
	q.sq.ring.Produce(q.sq.n)
	return nil
}

// writeOp fills what the opcode needs and leaves the rest as it was.
func (q *QP) writeOp(b []byte, wr SendWR) {
	f := &q.PD.Ctx.f.sq
	if q.Init.Type != q.l.Const("PVRDMA_QPT_RC") && wr.AV != nil {
		f.udQPN.Put(b, uint64(wr.QPN))
		f.udQKey.Put(b, uint64(wr.QKey))
		copy(f.udAV.Slice(b), wr.AV.Bytes())
	}
	switch q.l.ConstName("PVRDMA_WR_", wr.Opcode) {
	case "PVRDMA_WR_SEND_WITH_IMM":
		f.imm.Put(b, uint64(wr.Imm))
	case "PVRDMA_WR_RDMA_WRITE_WITH_IMM":
		f.imm.Put(b, uint64(wr.Imm))
		f.rdmaAddr.Put(b, wr.RemoteAddr)
		f.rdmaKey.Put(b, uint64(wr.RKey))
	case "PVRDMA_WR_RDMA_WRITE", "PVRDMA_WR_RDMA_READ":
		f.rdmaAddr.Put(b, wr.RemoteAddr)
		f.rdmaKey.Put(b, uint64(wr.RKey))
	case "PVRDMA_WR_ATOMIC_CMP_AND_SWP", "PVRDMA_WR_ATOMIC_FETCH_AND_ADD":
		f.atomicAddr.Put(b, wr.RemoteAddr)
		f.atomicKey.Put(b, uint64(wr.RKey))
		f.compareAdd.Put(b, wr.CompareAdd)
		if wr.Opcode == q.l.Const("PVRDMA_WR_ATOMIC_CMP_AND_SWP") {
			f.swap.Put(b, wr.Swap)
		}
	case "PVRDMA_WR_SEND_WITH_INV", "PVRDMA_WR_LOCAL_INV":
		f.invKey.Put(b, uint64(wr.InvalidateKey))
	case "PVRDMA_WR_FAST_REG_MR":
		f.putFastReg(b, wr.FastReg)
	}
}

// pageShift is that of FAST_REG_MR: the guest's pages.
const pageShift = 12

func (f *sqFields) putFastReg(b []byte, r *FastReg) {
	f.frIOVA.Put(b, r.IOVA)
	f.frPDir.Put(b, r.PDir)
	f.frShift.Put(b, pageShift)
	f.frLen.Put(b, uint64(r.Pages))
	f.frBytes.Put(b, uint64(r.Bytes))
	f.frAccess.Put(b, uint64(r.Access))
	f.frKey.Put(b, uint64(r.Key))
}

func (f *fields) putSGEs(b []byte, list []SGE) {
	for i, s := range list {
		p := b[i*f.sgeSize:]
		f.sge.addr.Put(p, s.Addr)
		f.sge.length.Put(p, uint64(s.Length))
		f.sge.lkey.Put(p, uint64(s.LKey))
	}
}

// PostRecv gives receives to the queue pair, with one doorbell for all.
func (q *QP) PostRecv(wrs ...RecvWR) error {
	if q.State() == q.l.Const("PVRDMA_QPS_RESET") {
		return errInvalid("post a receive in state RESET")
	}
	q.rq.mu.Lock()
	defer q.rq.mu.Unlock()
	posted := 0
	var err error
	for _, wr := range wrs {
		if err = q.PD.Ctx.writeRecv(&q.rq, wr); err != nil {
			break
		}
		posted++
	}
	if posted > 0 {
		err = errors.Join(err, q.RingRecv())
	}
	return err
}

func (c *Context) writeRecv(w *workQueue, wr RecvWR) error {
	v, slot := w.ring.HasSpace(w.n)
	if v != driver.Yes {
		return fmt.Errorf("post a receive: the queue of %d is full: %w", w.n, unix.ENOMEM)
	}
	if len(wr.SGE) > int(w.maxSGE) {
		return errInvalid("post a receive of %d pieces, at most %d", len(wr.SGE), w.maxSGE)
	}
	b := w.slot(slot)
	c.f.rq.wrID.Put(b, wr.WRID)
	c.f.rq.numSGE.Put(b, uint64(len(wr.SGE)))
	c.f.putSGEs(b[c.f.rqSize:], wr.SGE)
	w.ring.Produce(w.n)
	return nil
}
