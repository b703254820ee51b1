// SPDX-License-Identifier: Apache-2.0

package soft_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/hostverbs/soft"
	"github.com/pvrdmad/pvrdmad/hostverbs/verbstest"
)

// mutant is an engine with one fault planted in it. The contract must notice it at the promise named.
type mutant struct {
	name, promise string
	// What the fault does to a completion on its way to the device: it returns how often the device sees it.
	sent     func(m *mutantContext, wc *hostverbs.WC) int
	received func(m *mutantContext, wc *hostverbs.WC) int
	// What it does to a request, to the time, to a context that is opened, and to errors of a bind.
	post func(wr *hostverbs.SendWR)
	time func(now int64) int64
	open func(cfg *hostverbs.ContextConfig)
	bind func(err error) error
	mask func(mask hostverbs.AttrMask) hostverbs.AttrMask
	// told is what it makes of the attributes of a modify.
	told func(a *hostverbs.QPAttr)
	// What it forgets.
	noDereg, noRecvPosted, noEvents, noReset, noName, noReady, noDestroy bool
	// limits reports a limit event as often as it likes. ownReceives has queue pairs receive from queues of their own, resizes
	// drops what a shared queue cannot change.
	limits               func(report func())
	ownReceives, resizes bool
	// lag is the time of the Progress before, greedy three visits for one, hasty a flush in Modify, late a look at
	// requests after PostSend, elsewhere completions on another thread, wasteful an allocation in Progress.
	lag, greedy, hasty, late, elsewhere, wasteful bool
}

func mutants() []mutant {
	const inOrder = "requests complete in the order in which they were posted"
	return []mutant{
		{name: "a byte is flipped", promise: inOrder, sent: func(m *mutantContext, wc *hostverbs.WC) int {
			if wc.Opcode == hostverbs.WCOpRDMAWrite && len(m.memory) > 0 {
				m.flip()
			}
			return 1
		}},
		{name: "the immediate is lost", promise: inOrder, received: func(_ *mutantContext, wc *hostverbs.WC) int {
			wc.Imm = 0
			return 1
		}},
		{name: "a length is wrong by one", promise: inOrder, received: func(_ *mutantContext, wc *hostverbs.WC) int {
			wc.ByteLen++
			return 1
		}},
		{name: "everything completes as a SEND", promise: inOrder, sent: func(_ *mutantContext, wc *hostverbs.WC) int {
			wc.Opcode = hostverbs.WCOpSend
			return 1
		}},
		{
			name: "a completion comes twice", promise: inOrder,
			sent: func(*mutantContext, *hostverbs.WC) int { return 2 },
		},
		{
			name: "unsignalled requests complete", promise: "an unsignalled request completes silently",
			post: func(wr *hostverbs.SendWR) { wr.Flags |= hostverbs.SendSignaled },
		},
		{
			name: "a refused WRITE succeeds", promise: "memory that a remote key does not give is not reached",
			sent: func(_ *mutantContext, wc *hostverbs.WC) int {
				if wc.Status == hostverbs.WCRemAccessErr {
					wc.Status = hostverbs.WCSuccess
				}
				return 1
			},
		},
		{name: "deregistered keys stay", promise: "memory that a remote key does not give is not reached", noDereg: true},
		{name: "events are lost", promise: "memory that a remote key does not give is not reached", noEvents: true},
		{
			name: "flushed requests vanish", promise: "a queue pair in ERR flushes what is posted, in order, signalled or not",
			sent: func(_ *mutantContext, wc *hostverbs.WC) int {
				if wc.Status == hostverbs.WCWRFlushErr {
					return 0
				}
				return 1
			},
		},
		{name: "receives posted in ERR stay", promise: "a queue pair in ERR flushes what is posted later, for as long as it is", noRecvPosted: true},
		{name: "RESET does nothing", promise: "RESET forgets everything silently", noReset: true},
		{
			name: "time runs twice as fast", promise: "a peer that does not answer ends in a retry error after all timeouts",
			time: func(now int64) int64 { return 2 * now },
		},
		{
			name: "time runs slow", promise: "a message without a receive waits the responder's time, as often as the requester tries",
			time: func(now int64) int64 { return now / 2 },
		},
		{
			name: "limits are forgotten", promise: "what is beyond a guest's limit is ENOMEM, and there is room again afterwards",
			open: func(cfg *hostverbs.ContextConfig) { cfg.Limits = hostverbs.Limits{} },
		},
		{name: "the engine has no name", promise: "an engine says who it is and what it can do", noName: true},
		{
			name: "a path may have any MTU", promise: "what an engine says it can do is what it does",
			mask: func(mask hostverbs.AttrMask) hostverbs.AttrMask { return mask &^ hostverbs.QPPathMTU },
		},
		{
			name: "attributes that have no place are dropped", promise: "every attribute mask is judged as the state table says, in every state",
			mask: func(mask hostverbs.AttrMask) hostverbs.AttrMask { return mask &^ hostverbs.QPQKey },
		},
		{
			name: "unknown attributes are dropped", promise: "the GSI queue pair's attribute masks are judged as the state table says",
			mask: func(mask hostverbs.AttrMask) hostverbs.AttrMask { return mask & hostverbs.QPAttrStandardBits },
		},
		{name: "visits are three times as long", promise: "one call moves no more bytes and ends no more requests than a visit has", greedy: true},
		{name: "a call of Progress is three visits", promise: "a call of Progress is one visit, however many queue pairs of however many guests wait", greedy: true},
		{name: "timers start in the past", promise: "a timer starts when Progress tells the time", lag: true},
		{name: "a modify flushes", promise: "a flush waits for Progress", hasty: true},
		{name: "nobody says that requests are taken again", promise: "a device that was sent away is told to come again, and is then welcome", noReady: true},
		{name: "a destroyed queue pair goes on", promise: "a requester that goes away moves nothing afterwards", noDestroy: true},
		{name: "Progress allocates", promise: "the data path allocates nothing", wasteful: true},
		{name: "completions come on another thread", promise: inOrder, elsewhere: true},
		{name: "requests are looked at again after they were taken", promise: inOrder, late: true},
		{
			name: "the limit event comes twice", promise: "the limit event comes once, when fewer receives are posted than the limit",
			limits: func(report func()) { report(); report() },
		},
		{
			name: "the limit event is lost", promise: "a limit that is reached already is reported at once, and 0 disarms it",
			limits: func(func()) {},
		},
		{
			name: "a shared queue is nobody's", promise: "queue pairs take receives of a shared queue when a message needs one, and complete them as their own",
			ownReceives: true,
		},
		{
			name: "receives of a failed queue pair's own are flushed", promise: "a queue pair with a shared queue has no receives of its own",
			ownReceives: true,
		},
		{
			name: "a shared queue takes any change", promise: "a change of a shared queue that cannot be is refused and changes nothing",
			resizes: true,
		},
		{
			name: "a second guest gets an address", promise: "an address belongs to the guest that bound it first",
			bind: func(err error) error {
				if errors.Is(err, unix.EADDRINUSE) {
					return nil
				}
				return err
			},
		},
	}
}

func TestTheContractNoticesEveryPlantedFault(t *testing.T) {
	promises := map[string]verbstest.Case{}
	for _, c := range verbstest.Cases() {
		promises[c.Name] = c
	}
	for _, m := range append(mutants(), datagramMutants()...) {
		t.Run(m.name, func(t *testing.T) {
			c, ok := promises[m.promise]
			if !ok {
				t.Fatalf("the contract has no promise %q", m.promise)
			}
			if !breaks(t, c, m) {
				t.Errorf("nothing fails at %q", m.promise)
			}
		})
	}
}

func TestTheWrapperThatFaultsArePlantedInIsNoFaultItself(t *testing.T) {
	named := map[string]bool{}
	for _, m := range append(mutants(), datagramMutants()...) {
		named[m.promise] = true
	}
	for _, c := range verbstest.Cases() {
		if named[c.Name] && breaks(t, c, mutant{}) {
			t.Errorf("%q fails without a fault", c.Name)
		}
	}
}

// breaks says whether a promise fails with a mutant.
func breaks(t *testing.T, c verbstest.Case, m mutant) bool {
	r := &recorder{TB: t}
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer r.cleanup()
		c.Check(r, verbstest.Env{
			Provider:    &mutantEngine{soft.New(nil), m},
			Clock:       verbstest.NewFakeClock(),
			LatePercent: 5,
		})
	}()
	<-over
	return r.failed.Load()
}

// recorder is a test that notes its failure and does not pass it on.
type recorder struct {
	testing.TB
	failed   atomic.Bool
	cleanups []func()
}

func (r *recorder) Helper()                   {}
func (r *recorder) Cleanup(fn func())         { r.cleanups = append(r.cleanups, fn) }
func (r *recorder) Failed() bool              { return r.failed.Load() }
func (r *recorder) Error(...any)              { r.failed.Store(true) }
func (r *recorder) Errorf(_ string, _ ...any) { r.failed.Store(true) }

func (r *recorder) Fatal(...any) {
	r.failed.Store(true)
	runtime.Goexit()
}

func (r *recorder) Fatalf(string, ...any) { r.Fatal() }

// cleanup runs what the test left to its end, also if it ended early.
func (r *recorder) cleanup() {
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
}

// The wrappers around the engine's objects, from the top down.
type (
	mutantEngine struct {
		*soft.Engine
		m mutant
	}
	mutantPoller struct {
		hostverbs.Poller
		m     mutant
		owner hostverbs.Owner
		now   int64    // of the last Progress
		tasks []func() // for the next Progress
	}
	mutantContext struct {
		hostverbs.Context
		m      mutant
		p      *mutantPoller
		memory []guestmem.Memory
	}
	mutantMR struct {
		hostverbs.MR
		m mutant
	}
	mutantQP struct {
		hostverbs.QP
		m mutant
		p *mutantPoller
	}
	mutantSRQ struct {
		hostverbs.SRQ
		m mutant
	}
	mutantPool struct {
		hostverbs.SRQHandler
		m mutant
	}
	mutantHandler struct {
		hostverbs.QPHandler
		c *mutantContext
	}
)

func (e *mutantEngine) Name() string {
	if e.m.noName {
		return ""
	}
	return e.Engine.Name()
}

func (e *mutantEngine) NewPoller(o hostverbs.Owner) (hostverbs.Poller, error) {
	p, err := e.Engine.NewPoller(o)
	if err != nil {
		return nil, err
	}
	return &mutantPoller{Poller: p, m: e.m, owner: o}, nil
}

// waste keeps what a wasteful Progress allocates.
var waste []byte

func (p *mutantPoller) Progress(now int64) (bool, int64) {
	for _, fn := range p.tasks {
		fn()
	}
	p.tasks = nil
	if p.m.wasteful {
		waste = make([]byte, 100)
	}
	if p.m.greedy {
		p.Poller.Progress(now)
		p.Poller.Progress(now)
	}
	if p.m.lag {
		now, p.now = p.now, now
	}
	if p.m.time == nil {
		return p.Poller.Progress(now)
	}
	worked, next := p.Poller.Progress(p.m.time(now))
	if next == 0 {
		return worked, 0
	}
	// Asked again a little later, whatever the engine says.
	return worked, now + 20_000
}

func (p *mutantPoller) OpenContext(cfg hostverbs.ContextConfig) (hostverbs.Context, error) {
	if p.m.open != nil {
		p.m.open(&cfg)
	}
	c, err := p.Poller.OpenContext(cfg)
	if err != nil {
		return nil, err
	}
	return &mutantContext{Context: c, m: p.m, p: p}, nil
}

func (c *mutantContext) BindGID(index int, gid hostverbs.GID, typ hostverbs.GIDType) error {
	err := c.Context.BindGID(index, gid, typ)
	if c.m.bind != nil {
		return c.m.bind(err)
	}
	return err
}

func (c *mutantContext) RegMR(pd hostverbs.PD, attr hostverbs.MRAttr) (hostverbs.MR, error) {
	mr, err := c.Context.RegMR(pd, attr)
	if err != nil {
		return nil, err
	}
	c.memory = append(c.memory, attr.Memory)
	return &mutantMR{mr, c.m}, nil
}

// flip changes a byte of the memory that was registered last.
func (c *mutantContext) flip() {
	var b [1]byte
	mem := c.memory[len(c.memory)-1]
	c.memory = nil // once: a second flip would undo the first
	if err := errors.Join(guestmem.CopyOut(b[:], mem, 3000), guestmem.CopyIn(mem, 3000, []byte{b[0] ^ 1})); err != nil {
		panic(fmt.Sprintf("flip a byte: %v", err))
	}
}

func (c *mutantContext) CreateQP(pd hostverbs.PD, init *hostverbs.QPInitAttr, h hostverbs.QPHandler) (hostverbs.QP, error) {
	if h != nil {
		h = &mutantHandler{h, c}
	}
	plain := *init
	if s, ok := init.SRQ.(*mutantSRQ); ok {
		if plain.SRQ = s.SRQ; c.m.ownReceives {
			plain.SRQ, plain.Cap.MaxRecvWR, plain.Cap.MaxRecvSGE = nil, 16, 16
		}
	}
	q, err := c.Context.CreateQP(pd, &plain, h)
	if err != nil {
		return nil, err
	}
	return &mutantQP{q, c.m, c.p}, nil
}

func (c *mutantContext) CreateSRQ(pd hostverbs.PD, attr hostverbs.SRQAttr, h hostverbs.SRQHandler) (hostverbs.SRQ, error) {
	if h != nil {
		h = &mutantPool{h, c.m}
	}
	s, err := c.Context.CreateSRQ(pd, attr, h)
	if err != nil {
		return nil, err
	}
	return &mutantSRQ{s, c.m}, nil
}

func (s *mutantSRQ) Modify(attr *hostverbs.SRQAttr, mask hostverbs.SRQAttrMask) error {
	if s.m.resizes {
		mask = hostverbs.SRQLimit
	}
	return s.SRQ.Modify(attr, mask)
}

func (p *mutantPool) Event(e hostverbs.EventType) {
	if p.m.limits == nil {
		p.SRQHandler.Event(e)
		return
	}
	p.m.limits(func() { p.SRQHandler.Event(e) })
}

func (m *mutantMR) Dereg() error {
	if m.m.noDereg {
		return nil
	}
	return m.MR.Dereg()
}

func (q *mutantQP) PostSend(wrs []hostverbs.SendWR) int {
	if q.m.late && len(wrs) > 0 {
		q.p.tasks = append(q.p.tasks, func() { q.QP.PostSend(wrs) })
		return len(wrs)
	}
	if q.m.post != nil {
		for i := range wrs {
			q.m.post(&wrs[i])
		}
	}
	return q.QP.PostSend(wrs)
}

func (q *mutantQP) Destroy() error {
	if q.m.noDestroy {
		return nil
	}
	return q.QP.Destroy()
}

func (q *mutantQP) RecvPosted() {
	if !q.m.noRecvPosted {
		q.QP.RecvPosted()
	}
}

func (q *mutantQP) Modify(attr *hostverbs.QPAttr, mask hostverbs.AttrMask) error {
	if q.m.noReset && mask&hostverbs.QPStateMask != 0 && attr.QPState == hostverbs.StateReset {
		return nil
	}
	if q.m.mask != nil {
		mask = q.m.mask(mask)
	}
	if q.m.told != nil {
		changed := *attr
		q.m.told(&changed)
		attr = &changed
	}
	err := q.QP.Modify(attr, mask)
	if q.m.hasty {
		q.p.owner.Do(func() { q.p.Progress(1) })
	}
	return err
}

func (h *mutantHandler) SendReady() {
	if !h.c.m.noReady {
		h.QPHandler.SendReady()
	}
}

func (h *mutantHandler) CompleteSend(wc *hostverbs.WC) error {
	if h.c.m.sent == nil && !h.c.m.elsewhere {
		return h.QPHandler.CompleteSend(wc)
	}
	return h.deliver(wc, h.c.m.sent, h.QPHandler.CompleteSend)
}

func (h *mutantHandler) CompleteRecv(wc *hostverbs.WC) error {
	if h.c.m.received == nil && !h.c.m.elsewhere {
		return h.QPHandler.CompleteRecv(wc)
	}
	return h.deliver(wc, h.c.m.received, h.QPHandler.CompleteRecv)
}

func (h *mutantHandler) deliver(
	wc *hostverbs.WC, fault func(*mutantContext, *hostverbs.WC) int, to func(*hostverbs.WC) error,
) error {
	n, changed := 1, *wc
	if fault != nil {
		n = fault(h.c, &changed)
	}
	var err error
	if h.c.m.elsewhere {
		var wait sync.WaitGroup
		wait.Go(func() { err = to(&changed) })
		wait.Wait()
		return err
	}
	for range n {
		err = errors.Join(err, to(&changed))
	}
	return err
}

func (h *mutantHandler) Event(e hostverbs.EventType) {
	if !h.c.m.noEvents {
		h.QPHandler.Event(e)
	}
}
