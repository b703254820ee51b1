// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"errors"
	"fmt"
	"sync"

	"github.com/pvrdmad/pvrdmad/internal/testguest/driver"
	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
)

// QPInit is what a queue pair is made of.
type QPInit struct {
	SendCQ, RecvCQ *CQ
	SRQ            *SRQ
	// Type is PVRDMA_QPT_*.
	Type                                         uint32
	MaxSendWR, MaxRecvWR, MaxSendSGE, MaxRecvSGE uint32
	SignalAll                                    bool
}

// QP is a queue pair.
type QP struct {
	PD     *PD
	Handle uint32
	// QPN is the number that peers use.
	QPN uint32
	// Init is what it was made of, sizes as rounded.
	Init QPInit

	l       *layout.Layout
	mem     *object
	sq, rq  workQueue
	stateMu sync.Mutex
	state   uint32 // as the driver caches it: of the last attempt, successful or not
}

// workQueue is one half of a queue pair, or a shared receive queue.
type workQueue struct {
	mu     *sync.Mutex
	ring   driver.Ring
	n      uint32
	stride int
	maxSGE uint32
	mem    []byte
}

// slot returns the bytes of an element.
func (w *workQueue) slot(i uint32) []byte {
	at := int(i) * w.stride
	return w.mem[at : at+w.stride]
}

// sizes rounds what is asked for as the provider or, for the kernel's own queue pairs, as the driver does.
func (c *Context) sizes(i QPInit) QPInit {
	i.MaxSendWR, i.MaxSendSGE = roundUp(i.MaxSendWR), max(1, i.MaxSendSGE)
	if c.IsKernel() {
		i.MaxSendSGE = roundUp(i.MaxSendSGE)
	}
	if i.SRQ != nil {
		i.MaxRecvWR, i.MaxRecvSGE = 0, 0
		return i
	}
	i.MaxRecvWR, i.MaxRecvSGE = roundUp(i.MaxRecvWR), max(1, i.MaxRecvSGE)
	if c.IsKernel() {
		i.MaxRecvSGE = roundUp(i.MaxRecvSGE)
	}
	return i
}

// CreateQP makes a queue pair.
func (p *PD) CreateQP(i QPInit) (*QP, error) {
	c := p.Ctx
	i = c.sizes(i)
	q := &QP{PD: p, Init: i, l: c.l}
	q.sq = workQueue{
		mu: &sync.Mutex{}, n: i.MaxSendWR, maxSGE: i.MaxSendSGE,
		stride: int(roundUp(uint32(c.f.sqSize + c.f.sgeSize*int(i.MaxSendSGE)))),
	}
	q.rq = workQueue{
		mu: &sync.Mutex{}, n: i.MaxRecvWR, maxSGE: i.MaxRecvSGE,
		stride: int(roundUp(uint32(c.f.rqSize + c.f.sgeSize*int(i.MaxRecvSGE)))),
	}
	var err error
	if q.mem, err = c.newObject(ram.PageSize+int(q.sq.n)*q.sq.stride, int(q.rq.n)*q.rq.stride); err != nil {
		return nil, err
	}
	q.place()
	q.QPN, q.Handle, err = c.Dev.CreateQP(q.params())
	if err != nil {
		return nil, errors.Join(err, q.mem.free())
	}
	if q.Handle&handleBits != q.Handle || q.Handle >= c.Dev.Caps().Get32("max_qp") {
		return nil, fmt.Errorf("queue pair handle %#x is outside the guest's table of %d", q.Handle,
			c.Dev.Caps().Get32("max_qp"))
	}
	c.setQP(q.Handle, q)
	return q, nil
}

// place finds the parts of the queue pair in its memory: a page of indices, the send elements, the receive elements.
func (q *QP) place() {
	first := q.mem.bufs[0].Bytes()
	q.sq.ring = driver.NewRing(q.l, first[:ram.PageSize], "tx")
	q.rq.ring = driver.NewRing(q.l, first[:ram.PageSize], "rx")
	q.sq.mem = first[ram.PageSize:]
	if q.rq.n > 0 {
		q.rq.mem = q.mem.bufs[1].Bytes()
	}
}

func (q *QP) params() driver.QPParams {
	send := len(q.mem.bufs[0].Pages()) - int(q.l.Const("PVRDMA_QP_NUM_HEADER_PAGES"))
	p := driver.QPParams{
		PDir: q.mem.dir.Addr(), PD: q.PD.Handle, SendCQ: q.Init.SendCQ.Handle, RecvCQ: q.Init.RecvCQ.Handle,
		MaxSendWR: q.Init.MaxSendWR, MaxRecvWR: q.Init.MaxRecvWR,
		MaxSendSGE: q.Init.MaxSendSGE, MaxRecvSGE: q.Init.MaxRecvSGE,
		TotalChunks: uint16(q.mem.pages()), SendChunks: uint16(send),
		SignalAll: q.Init.SignalAll, Type: uint8(q.Init.Type),
	}
	if q.Init.SRQ != nil {
		p.IsSRQ, p.SRQ = true, q.Init.SRQ.Handle
	}
	return p
}

// Destroy ends the queue pair. Its completions are taken out after the device has let go of it.
func (q *QP) Destroy() error {
	err := q.PD.Ctx.Dev.DestroyQP(q.Handle)
	q.Init.RecvCQ.clean(q.Handle)
	q.Init.SendCQ.clean(q.Handle)
	q.PD.Ctx.setQP(q.Handle, nil)
	return errors.Join(err, q.mem.free())
}

// Rings returns the indices of both halves, for tests that look at them or spoil them.
func (q *QP) Rings() (send, recv driver.Ring) { return q.sq.ring, q.rq.ring }

// SendSlot returns the bytes of a send element, for tests that write what no provider writes.
func (q *QP) SendSlot(i uint32) []byte { return q.sq.slot(i) }

// RecvSlot returns the bytes of a receive element.
func (q *QP) RecvSlot(i uint32) []byte { return q.rq.slot(i) }

// Memory is what the queue pair shares with the device: the page of indices, the send elements, the receive elements.
func (q *QP) Memory() (state, send, recv []byte) {
	return q.mem.bufs[0].Bytes()[:ram.PageSize], q.sq.mem[:int(q.sq.n)*q.sq.stride], q.rq.mem[:int(q.rq.n)*q.rq.stride]
}
