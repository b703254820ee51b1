// SPDX-License-Identifier: Apache-2.0

package pcifn

import (
	"sync"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// stubEngine is an engine that carries out nothing, and fails or panics where a test tells it to.
type stubEngine struct {
	mu       sync.Mutex
	refuse   map[string]error // by method name
	panics   map[string]bool  // by method name
	wait     map[string]chan struct{}
	opened   int
	closed   int
	handlers []hostverbs.QPHandler // of all queue pairs, in the order of their creation
	shared   []hostverbs.SRQHandler
}

func newStubEngine() *stubEngine {
	return &stubEngine{refuse: map[string]error{}, panics: map[string]bool{}, wait: map[string]chan struct{}{}}
}

// plan changes what the engine does.
func (e *stubEngine) plan(f func(e *stubEngine)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f(e)
}

func (e *stubEngine) enter(method string) error {
	e.mu.Lock()
	bad, err, wait := e.panics[method], e.refuse[method], e.wait[method]
	e.mu.Unlock()
	if wait != nil {
		<-wait
	}
	if bad {
		panic("stub engine: " + method)
	}
	return err
}

// contexts returns how many contexts are open.
func (e *stubEngine) contexts() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.opened - e.closed
}

// qp returns the handler of the queue pair that was created last.
func (e *stubEngine) qp() hostverbs.QPHandler {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.handlers[len(e.handlers)-1]
}

func (e *stubEngine) Name() string { return "stub" }

func (e *stubEngine) QueryDevice() hostverbs.DeviceAttr {
	return hostverbs.DeviceAttr{
		FWVer: 1 << 32, MaxMRSize: 1 << 30, HWVer: 1, MaxQP: 64, MaxQPWR: 64, MaxSGE: 4, MaxSGERd: 4, MaxCQ: 4096, MaxCQE: 1024,
		MaxMR: 64, MaxPD: 64, MaxAH: 1024, MaxQPRdAtom: 16, MaxQPInitRdAtom: 16, MaxSRQ: 64, MaxSRQWR: 64, MaxSRQSGE: 4,
	}
}

func (e *stubEngine) QueryPort() hostverbs.PortAttr {
	return hostverbs.PortAttr{Active: true, MaxMTU: hostverbs.MTU4096, ActiveMTU: hostverbs.MTU4096}
}

func (e *stubEngine) NewPoller(hostverbs.Owner) (hostverbs.Poller, error) { return stubPoller{e}, nil }
func (e *stubEngine) Barrier()                                            {}
func (e *stubEngine) Close() error                                        { return nil }

type stubPoller struct{ e *stubEngine }

func (p stubPoller) Progress(int64) (bool, int64) { return false, 0 }
func (p stubPoller) Close() error                 { return nil }

func (p stubPoller) OpenContext(hostverbs.ContextConfig) (hostverbs.Context, error) {
	if err := p.e.enter("OpenContext"); err != nil {
		return nil, err
	}
	p.e.plan(func(e *stubEngine) { e.opened++ })
	return stubContext(p), nil
}

type stubContext struct{ e *stubEngine }

func (c stubContext) AllocPD() (hostverbs.PD, error) { return stubObject(c), c.e.enter("AllocPD") }

func (c stubContext) RegMR(hostverbs.PD, hostverbs.MRAttr) (hostverbs.MR, error) {
	return stubObject(c), c.e.enter("RegMR")
}

func (c stubContext) AllocMR(hostverbs.PD, int, hostverbs.PageSource) (hostverbs.MR, error) {
	return stubObject(c), c.e.enter("AllocMR")
}

func (c stubContext) CreateCQ(int) (hostverbs.CQ, error) { return stubObject(c), c.e.enter("CreateCQ") }

func (c stubContext) CreateQP(_ hostverbs.PD, _ *hostverbs.QPInitAttr, h hostverbs.QPHandler) (hostverbs.QP, error) {
	c.e.plan(func(e *stubEngine) { e.handlers = append(e.handlers, h) })
	return stubObject(c), c.e.enter("CreateQP")
}

func (c stubContext) CreateSRQ(_ hostverbs.PD, _ hostverbs.SRQAttr, h hostverbs.SRQHandler) (hostverbs.SRQ, error) {
	c.e.plan(func(e *stubEngine) { e.shared = append(e.shared, h) })
	return stubSRQ(c), c.e.enter("CreateSRQ")
}

func (c stubContext) BindGID(int, hostverbs.GID, hostverbs.GIDType) error {
	return c.e.enter("BindGID")
}
func (c stubContext) UnbindGID(int, hostverbs.GID) error { return nil }

func (c stubContext) SetLink(bool) {}

func (c stubContext) Together(fn func()) { fn() }

func (c stubContext) Close() error {
	c.e.plan(func(e *stubEngine) { e.closed++ })
	return c.e.enter("Context.Close")
}

// stubSRQ is a shared receive queue.
type stubSRQ struct{ e *stubEngine }

func (s stubSRQ) Modify(*hostverbs.SRQAttr, hostverbs.SRQAttrMask) error {
	return s.e.enter("SRQ.Modify")
}

func (s stubSRQ) Query() (hostverbs.SRQAttr, error) { return hostverbs.SRQAttr{}, nil }
func (s stubSRQ) Destroy() error                    { return nil }

// stubObject is an object of any other kind.
type stubObject struct{ e *stubEngine }

func (o stubObject) Dealloc() error                   { return nil }
func (o stubObject) LKey() uint32                     { return 1 }
func (o stubObject) RKey() uint32                     { return 2 }
func (o stubObject) Dereg() error                     { return nil }
func (o stubObject) Destroy() error                   { return nil }
func (o stubObject) QPN() uint32                      { return 0x123456 }
func (o stubObject) Query() (hostverbs.QPAttr, error) { return hostverbs.QPAttr{}, nil }
func (o stubObject) RecvPosted()                      {}
func (o stubObject) Fail()                            {}

func (o stubObject) Modify(*hostverbs.QPAttr, hostverbs.AttrMask) error { return o.e.enter("Modify") }

func (o stubObject) PostSend(wrs []hostverbs.SendWR) int {
	_ = o.e.enter("PostSend")
	return len(wrs)
}
