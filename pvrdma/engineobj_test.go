// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"sync"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

type fakePD struct {
	c     *fakeContext
	users int
}

func (c *fakeContext) AllocPD() (hostverbs.PD, error) {
	p := &fakePD{c: c}
	return p, c.make("AllocPD", "pd", func() any { return p })
}

func (p *fakePD) Dealloc() error { return p.c.end("Dealloc", p, &p.users) }

type fakeMR struct {
	c          *fakeContext
	pd         *fakePD
	attr       hostverbs.MRAttr
	lkey, rkey uint32
	users      int
	fast       int // pages of a region for fast registration
	src        hostverbs.PageSource
}

func (c *fakeContext) RegMR(pd hostverbs.PD, attr hostverbs.MRAttr) (hostverbs.MR, error) {
	m := &fakeMR{c: c, pd: pd.(*fakePD), attr: attr}
	err := c.make("RegMR", "mr", func() any {
		m.pd.users++
		m.lkey = 0x1000 + c.e.next()
		m.rkey = m.lkey + 0x1000
		return m
	})
	return m, err
}

func (c *fakeContext) AllocMR(pd hostverbs.PD, pages int, src hostverbs.PageSource) (hostverbs.MR, error) {
	m := &fakeMR{c: c, pd: pd.(*fakePD), fast: pages, src: src}
	err := c.make("AllocMR", "mr", func() any {
		m.pd.users++
		m.lkey = 0x1000 * c.e.next()
		m.rkey = m.lkey
		return m
	})
	return m, err
}

func (m *fakeMR) LKey() uint32 { return m.lkey }
func (m *fakeMR) RKey() uint32 { return m.rkey }

func (m *fakeMR) Dereg() error {
	if err := m.c.end("Dereg", m, &m.users); err != nil {
		return err
	}
	m.c.e.mu.Lock()
	defer m.c.e.mu.Unlock()
	m.pd.users--
	return nil
}

type fakeCQ struct {
	c     *fakeContext
	cqe   int
	users int
}

func (c *fakeContext) CreateCQ(cqe int) (hostverbs.CQ, error) {
	q := &fakeCQ{c: c, cqe: cqe}
	return q, c.make("CreateCQ", "cq", func() any { return q })
}

func (q *fakeCQ) Destroy() error { return q.c.end("CQ.Destroy", q, &q.users) }

// fakeQP keeps what the device posts, and takes as much of it as the test allows.
type fakeQP struct {
	c    *fakeContext
	num  uint32
	pd   *fakePD
	init hostverbs.QPInitAttr
	h    hostverbs.QPHandler

	mu          sync.Mutex
	attr        hostverbs.QPAttr
	mask        hostverbs.AttrMask // of the last Modify
	modifies    int
	posted      []hostverbs.SendWR
	room        int // how many requests PostSend takes yet, negative for any number
	offered     []int
	recvPosted  int
	fails       int
	users       int
	beforePost  func() // called by PostSend, without mu
	onRecv      func() // called by RecvPosted, without mu
	afterModify func() // called by Modify once the state has changed, or was not, without mu
	onDestroy   func() // called by Destroy
}

func (c *fakeContext) CreateQP(pd hostverbs.PD, init *hostverbs.QPInitAttr, h hostverbs.QPHandler) (hostverbs.QP, error) {
	q := &fakeQP{c: c, pd: pd.(*fakePD), init: *init, h: h, room: -1}
	q.attr.Cap = init.Cap
	err := c.make("CreateQP", "qp", func() any {
		q.num = 0x100 + c.e.next()
		if init.QPN != 0 {
			q.num = init.QPN
		}
		if init.Type == hostverbs.QPTypeGSI {
			q.num = 1
		}
		q.pd.users++
		init.SendCQ.(*fakeCQ).users++
		init.RecvCQ.(*fakeCQ).users++
		if init.SRQ != nil {
			init.SRQ.(*fakeSRQ).users++
		}
		return q
	})
	return q, err
}

func (q *fakeQP) QPN() uint32 { return q.num }

func (q *fakeQP) Modify(attr *hostverbs.QPAttr, mask hostverbs.AttrMask) error {
	if err := q.c.e.enter("Modify"); err != nil {
		if q.afterModify != nil {
			q.afterModify()
		}
		return err
	}
	q.mu.Lock()
	cp := q.attr.Cap
	if mask&hostverbs.QPStateMask != 0 {
		q.attr = *attr
		q.attr.Cap = cp
	}
	q.mask = mask
	q.modifies++
	after := q.afterModify
	q.mu.Unlock()
	if after != nil {
		after()
	}
	return nil
}

func (q *fakeQP) Query() (hostverbs.QPAttr, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.attr, q.c.e.enter("Query")
}

func (q *fakeQP) Destroy() error {
	if q.onDestroy != nil {
		q.onDestroy()
	}
	if err := q.c.end("QP.Destroy", q, &q.users); err != nil {
		return err
	}
	q.c.e.mu.Lock()
	defer q.c.e.mu.Unlock()
	q.pd.users--
	q.init.SendCQ.(*fakeCQ).users--
	q.init.RecvCQ.(*fakeCQ).users--
	if q.init.SRQ != nil {
		q.init.SRQ.(*fakeSRQ).users--
	}
	return nil
}

// PostSend takes nothing below RTS, what the test allows in RTS, and flushes in ERR.
func (q *fakeQP) PostSend(wrs []hostverbs.SendWR) int {
	q.mu.Lock()
	before := q.beforePost
	q.mu.Unlock()
	if before != nil {
		before()
	}
	q.mu.Lock()
	state := q.attr.QPState
	take := 0
	switch {
	case state == hostverbs.StateErr:
		take = len(wrs)
	case state == hostverbs.StateRTS && q.room < 0:
		take = len(wrs)
	case state == hostverbs.StateRTS:
		take = min(len(wrs), q.room)
		q.room -= take
	}
	q.offered = append(q.offered, len(wrs))
	q.posted = append(q.posted, wrs[:take]...)
	q.mu.Unlock()
	if state == hostverbs.StateErr {
		for i := range wrs {
			_ = q.h.CompleteSend(&hostverbs.WC{WRID: wrs[i].WRID, Status: hostverbs.WCWRFlushErr})
		}
	}
	return take
}

func (q *fakeQP) RecvPosted() {
	q.mu.Lock()
	q.recvPosted++
	on := q.onRecv
	q.mu.Unlock()
	if on != nil {
		on()
	}
}

func (q *fakeQP) Fail() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.fails++
	q.attr.QPState = hostverbs.StateErr
}

// taken returns what PostSend took since the last call of taken.
func (q *fakeQP) taken() []hostverbs.SendWR {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.posted
	q.posted = nil
	return p
}

func (q *fakeQP) setRoom(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.room = n
}

func (q *fakeQP) state() hostverbs.QPState {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.attr.QPState
}

func (q *fakeQP) failed() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.fails
}

func (q *fakeQP) rings() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.recvPosted
}
