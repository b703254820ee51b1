// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"github.com/pvrdmad/pvrdmad/tests/bench/poster"
)

// bootRequest tells the guests' process what to be: guests 0 and 1 are a pair, and so on.
type bootRequest struct {
	Sockets []string
	// First is the number of the first guest: its addresses come from it.
	First   int
	Options worldOptions
}

// pair is two guests and the connections between them.
type pair struct {
	a, b  *end
	lanes []poster.Lane
}

// end is one guest of a pair: one program with one completion queue, one memory and many queue pairs.
type end struct {
	m   *testguest.Machine
	ctx *verbs.Context
	pd  *verbs.PD
	mr  *verbs.MR
	cq  *verbs.CQ
	qps []*verbs.QP
}

// cqe is the length of completion queues: above what is ever under way.
const cqe = 4096

// bootGuests boots pairs of guests and connects them.
func bootGuests(c *child, q bootRequest) (struct{}, error) {
	left := q.Options.Queues
	for i := range q.Options.Pairs {
		n := left / (q.Options.Pairs - i)
		left -= n
		p, err := bootPair(q, 2*i, n)
		if err != nil {
			return struct{}{}, fmt.Errorf("pair %d: %w", i, err)
		}
		c.guests = append(c.guests, p)
	}
	return struct{}{}, nil
}

func bootPair(q bootRequest, first, queues int) (p *pair, err error) {
	p = &pair{}
	if p.a, err = bootEnd(q, first, queues); err != nil {
		return nil, err
	}
	if p.b, err = bootEnd(q, first+1, queues); err != nil {
		return nil, err
	}
	for i := range queues {
		if err := errors.Join(connect(p.a, p.b, i), connect(p.b, p.a, i)); err != nil {
			return nil, fmt.Errorf("connect queue pair %d: %w", i, err)
		}
	}
	near, far := p.a.completions(q.Options.Polling), p.b.completions(q.Options.Polling)
	for i := range queues {
		p.lanes = append(p.lanes, poster.Lane{
			Send: p.a.work(i, poster.NewSend), CQ: near, Recv: p.b.work(i, poster.NewRecv), RecvCQ: far,
			From: p.a.piece(p.a.mr.LKey),
			To:   p.b.piece(p.b.mr.RKey),
		})
	}
	return p, nil
}

// bootEnd boots guest number n and makes its objects.
func bootEnd(q bootRequest, n, queues int) (*end, error) {
	o := q.Options
	// A queue pair takes about eight pages: indices, two rings, a directory of three.
	size := uint64(o.Bytes) + uint64(queues)*uint64(6+o.Depth/32)*ram.PageSize + 16<<20
	id := q.First + n + 1
	m, err := testguest.Boot(q.Sockets[n], testguest.Options{
		Memory: ram.Options{Size: 2 * size, Scatter: o.Scatter, Seed: uint64(id)},
		MAC:    [6]byte{2, 0, 0, 0, 0, byte(id)}, IP: [4]byte{10, 0, 0, byte(id)}, MADReceives: 4,
	})
	if err != nil {
		return nil, err
	}
	e := &end{m: m}
	if e.ctx, err = verbs.Open(m.Dev); err != nil {
		return nil, err
	}
	if e.pd, err = e.ctx.AllocPD(); err != nil {
		return nil, err
	}
	if e.mr, err = e.pd.Register(o.Bytes, 0, access(m)); err != nil {
		return nil, err
	}
	if e.cq, err = e.ctx.CreateCQ(cqe); err != nil {
		return nil, err
	}
	for range queues {
		qp, err := e.pd.CreateQP(verbs.QPInit{
			SendCQ: e.cq, RecvCQ: e.cq, Type: m.L.Const("PVRDMA_QPT_RC"), MaxSendWR: uint32(o.Depth),
			MaxRecvWR: uint32(o.Depth), MaxSendSGE: 1, MaxRecvSGE: 1, SignalAll: true,
		})
		if err != nil {
			return nil, err
		}
		e.qps = append(e.qps, qp)
	}
	return e, nil
}

// access is all that a device gives a peer of memory.
func access(m *testguest.Machine) uint32 {
	all := m.L.Const("PVRDMA_ACCESS_LOCAL_WRITE") | m.L.Const("PVRDMA_ACCESS_REMOTE_WRITE") |
		m.L.Const("PVRDMA_ACCESS_REMOTE_READ")
	if m.Dev.Caps().Get32("atomic_ops") != 0 {
		all |= m.L.Const("PVRDMA_ACCESS_REMOTE_ATOMIC")
	}
	return all
}

// connect takes queue pair i of an end to RTS.
func connect(e, peer *end, i int) error { return connectQP(e, e.qps[i], peer.m, peer.qps[i].QPN) }

// connectQP takes a queue pair of an end to RTS, towards one of another guest.
func connectQP(e *end, q *verbs.QP, peer *testguest.Machine, qpn uint32) error {
	l := e.m.L
	path := verbs.Path{DGID: peer.GIDs[0], DMAC: peer.MAC(), QPN: qpn}
	tuning := verbs.Tuning{
		Access: access(e.m),
		MTU:    l.Const("PVRDMA_MTU_4096"), Timeout: 14, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 1, RDAtomic: 16, DestRDAtomic: 16,
	}
	if err := q.ToInit(tuning); err != nil {
		return err
	}
	if err := q.ToRTR(path, tuning); err != nil {
		return err
	}
	return q.ToRTS(path, tuning)
}

func (e *end) doorbell() []byte { return e.m.Dev.DoorbellPage(e.ctx.Page) }

// work returns a half of queue pair i.
func (e *end) work(i int, half func(doorbell []byte, handle uint32, state, slots []byte) *poster.Work) *poster.Work {
	q := e.qps[i]
	state, send, recv := q.Memory()
	w := half(e.doorbell(), q.Handle, state, send)
	if w.Value&abi.UARQPRecv != 0 {
		w = half(e.doorbell(), q.Handle, state, recv)
	}
	return w
}

func (e *end) completions(polling bool) *poster.CQ {
	mem := e.cq.Memory()
	c := poster.NewCQ(mem[:ram.PageSize], mem[ram.PageSize:ram.PageSize+cqe*abi.CQESize])
	if polling {
		c.Doorbell, c.Value = e.doorbell(), e.cq.Handle|abi.UARCQPoll
	}
	return c
}

func (e *end) piece(key uint32) poster.Piece {
	return poster.Piece{Addr: e.mr.Addr, Len: uint32(e.mr.Len), Key: key}
}

// flowRequest describes messages for the guests' process to send. Bare sends them through shared memory number Shared
// instead of the device.
type flowRequest struct {
	Size, Slots, Window, Active, List int
	Op                                poster.Op
	Bare                              bool
	Time                              time.Duration
	Count                             uint64
}

// flowAnswer is what the messages took, in ns.
type flowAnswer struct{ P50, P99, PerMessage float64 }

// flow makes the flow that a request describes, over all connections, and what checks it.
func (c *child) flow(q flowRequest) (f *poster.Flow, from, to []byte, err error) {
	f = &poster.Flow{Size: q.Size, Slots: q.Slots, Window: q.Window, Active: q.Active, List: q.List, Op: q.Op}
	if q.Bare {
		if c.shared == nil {
			return nil, nil, nil, errors.New("no bare loop was made")
		}
		s := c.shared
		f.Lanes = s.lanes
		return f, s.view.Source, s.view.Target, nil
	}
	for _, p := range c.guests {
		f.Lanes = append(f.Lanes, p.lanes...)
	}
	near, far := c.guests[0].a.mr.Mem, c.guests[0].b.mr.Mem
	if q.Op == poster.READ {
		near, far = far, near
	}
	return f, near, far, nil
}

// checked runs messages and looks whether they have arrived: the first pair's memory must be equal afterwards.
func (c *child) checked(q flowRequest, run func(f *poster.Flow) (flowAnswer, error)) (flowAnswer, error) {
	f, from, to, err := c.flow(q)
	if err != nil {
		return flowAnswer{}, err
	}
	if q.Bare {
		defer c.shared.stop()
	}
	n := q.Size * q.Slots
	from, to = from[:n], to[:n]
	fill(from)
	clear(to)
	arrived := func() error {
		if !bytes.Equal(from, to) {
			return errors.New("the target is not what the source is")
		}
		return nil
	}
	if q.Op.Atomic() {
		arrived = func() error { return counted(from, to, f.Posted()) }
	}
	// Every place is written once before the clock runs, so that no page is new and the target is whole.
	if err := f.Count(uint64(q.Slots * f.ActiveLanes())); err != nil {
		return flowAnswer{}, err
	}
	a, err := run(f)
	if err != nil {
		return flowAnswer{}, err
	}
	return a, arrived()
}

// counted says whether atomic operations have counted each word as often as its place was used, and answered with the value
// before.
func counted(answers, words []byte, posted uint64) error {
	sum := uint64(0)
	for at := 0; at < len(words); at += 8 {
		word, answer := binary.LittleEndian.Uint64(words[at:]), binary.LittleEndian.Uint64(answers[at:])
		if answer+1 != word {
			return fmt.Errorf("word %d is %d, the last answer was %d", at/8, word, answer)
		}
		sum += word
	}
	if sum != posted {
		return fmt.Errorf("%d operations have counted to %d", posted, sum)
	}
	return nil
}

// fill writes a pattern that differs from turn to turn.
func fill(b []byte) {
	x := uint64(time.Now().UnixNano()) | 1
	for ; len(b) >= 8; b = b[8:] {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(b, x)
	}
}

func flowLatency(c *child, q flowRequest) (flowAnswer, error) {
	return c.checked(q, func(f *poster.Flow) (a flowAnswer, err error) {
		a.P50, a.P99, err = f.Latency(q.Time)
		return a, err
	})
}

func flowRate(c *child, q flowRequest) (flowAnswer, error) {
	return c.checked(q, func(f *poster.Flow) (a flowAnswer, err error) {
		a.PerMessage, err = f.Rate(q.Time)
		return a, err
	})
}

func flowCount(c *child, q flowRequest) (flowAnswer, error) {
	return c.checked(q, func(f *poster.Flow) (flowAnswer, error) { return flowAnswer{}, f.Count(q.Count) })
}
