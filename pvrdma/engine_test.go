// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pvrdmad/pvrdmad/hostverbs"
	"golang.org/x/sys/unix"
)

// fakeEngine is an engine that carries out nothing: it keeps books about the objects that a device makes, refuses or
// panics where a test tells it to, and lets the test call the handlers of its queue pairs.
type fakeEngine struct {
	attr hostverbs.DeviceAttr
	port hostverbs.PortAttr

	passes atomic.Int64 // calls of Progress
	late   atomic.Int64 // calls of Progress after Close of the poller

	mu       sync.Mutex
	refuse   map[string]error                       // by method name
	panics   map[string]any                         // by method name
	progress func(now int64) (worked bool, n int64) // what Progress does
	contexts []*fakeContext
	closed   bool // the poller
	number   uint32
}

func newFakeEngine() *fakeEngine {
	return &fakeEngine{
		attr: hostverbs.DeviceAttr{
			FWVer: 7 << 32, MaxMRSize: 1 << 40, HWVer: 1, MaxQP: 64, MaxQPWR: 256, MaxSGE: 4, MaxSGERd: 4, MaxCQ: 32,
			MaxCQE: 8192, MaxMR: 32, MaxPD: 16, MaxAH: 1024, MaxQPRdAtom: 16, MaxQPInitRdAtom: 16, LocalCAAckDelay: 15,
			AtomicCmpSwap: true, AtomicFetchAdd: true, LocalInvalidate: true, RemoteInvalidate: true, FastRegistration: true,
			MaxFastRegPageLen: 16,
			MaxSRQ:            8, MaxSRQWR: 64, MaxSRQSGE: 3,
		},
		port: hostverbs.PortAttr{
			Active: true, MaxMTU: hostverbs.MTU4096, ActiveMTU: hostverbs.MTU2048, MaxMsgSize: 1 << 30, ActiveWidth: 2,
			ActiveSpeed: 32,
		},
		refuse: map[string]error{},
		panics: map[string]any{},
	}
}

// enter is called by every control method: it does what the test has planned for it.
func (e *fakeEngine) enter(method string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.panics[method]; p != nil {
		panic(p)
	}
	return e.refuse[method]
}

// refuseWith makes a method fail from now on, with nil no more.
func (e *fakeEngine) refuseWith(method string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refuse[method] = err
}

func (e *fakeEngine) panicWith(method string, p any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.panics[method] = p
}

func (e *fakeEngine) onProgress(f func(now int64) (bool, int64)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.progress = f
}

func (e *fakeEngine) next() uint32 { e.number++; return e.number }

func (e *fakeEngine) Name() string                      { return "fake" }
func (e *fakeEngine) QueryDevice() hostverbs.DeviceAttr { return e.attr }
func (e *fakeEngine) QueryPort() hostverbs.PortAttr     { return e.port }
func (e *fakeEngine) Barrier()                          {}
func (e *fakeEngine) Close() error                      { return nil }

func (e *fakeEngine) NewPoller(hostverbs.Owner) (hostverbs.Poller, error) {
	if err := e.enter("NewPoller"); err != nil {
		return nil, err
	}
	return &fakePoller{e}, nil
}

type fakePoller struct{ e *fakeEngine }

func (p *fakePoller) Progress(now int64) (bool, int64) {
	p.e.passes.Add(1)
	p.e.mu.Lock()
	f := p.e.progress
	if p.e.closed {
		p.e.late.Add(1)
	}
	p.e.mu.Unlock()
	if f == nil {
		return false, 0
	}
	return f(now)
}

func (p *fakePoller) Close() error {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	p.e.closed = true
	return p.e.refuse["Poller.Close"]
}

func (p *fakePoller) OpenContext(cfg hostverbs.ContextConfig) (hostverbs.Context, error) {
	if err := p.e.enter("OpenContext"); err != nil {
		return nil, err
	}
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	c := &fakeContext{e: p.e, cfg: cfg, gids: map[int]hostverbs.GID{}, live: map[any]string{}}
	p.e.contexts = append(p.e.contexts, c)
	return c, nil
}

// last returns the context that was opened last.
func (e *fakeEngine) last() *fakeContext {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.contexts[len(e.contexts)-1]
}

// fakeContext is one guest's context: which objects are alive, and which GIDs are bound.
type fakeContext struct {
	e      *fakeEngine
	cfg    hostverbs.ContextConfig
	gids   map[int]hostverbs.GID // guarded by e.mu, as all below
	live   map[any]string        // object to kind
	closed bool
	links  []bool // what SetLink was told

	together func()
}

// count returns the number of live objects by kind.
func (c *fakeContext) count() map[string]int {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	n := map[string]int{}
	for _, kind := range c.live {
		n[kind]++
	}
	return n
}

func (c *fakeContext) boundGIDs() map[int]hostverbs.GID {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	return maps.Clone(c.gids)
}

// make adds an object unless the test has planned otherwise.
func (c *fakeContext) make(method, kind string, fill func() any) error {
	if err := c.e.enter(method); err != nil {
		return err
	}
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.live[fill()] = kind
	return nil
}

// end removes an object unless the test has planned otherwise or something uses it.
func (c *fakeContext) end(method string, object any, users *int) error {
	if err := c.e.enter(method); err != nil {
		return err
	}
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	if *users != 0 {
		return fmt.Errorf("%s: %d users: %w", method, *users, unix.EBUSY)
	}
	if _, ok := c.live[object]; !ok {
		return fmt.Errorf("%s: there is no such object: %w", method, unix.EINVAL)
	}
	delete(c.live, object)
	return nil
}

func (c *fakeContext) BindGID(index int, gid hostverbs.GID, _ hostverbs.GIDType) error {
	if err := c.e.enter("BindGID"); err != nil {
		return err
	}
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.gids[index] = gid
	return nil
}

func (c *fakeContext) UnbindGID(index int, gid hostverbs.GID) error {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	if c.gids[index] != gid {
		return fmt.Errorf("unbind gid %d: %w", index, unix.ENOENT)
	}
	delete(c.gids, index)
	return nil
}

func (c *fakeContext) SetLink(up bool) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.links = append(c.links, up)
}

// Together calls together, if that is set, before and after what is done.
func (c *fakeContext) Together(fn func()) {
	if c.together == nil {
		fn()
		return
	}
	c.together()
	fn()
	c.together()
}

func (c *fakeContext) Close() error {
	err := c.e.enter("Context.Close")
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.closed = true
	clear(c.live)
	return err
}

// qps returns the live queue pairs, oldest first.
func (c *fakeContext) qps() []*fakeQP {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	var all []*fakeQP
	for o := range c.live {
		if q, ok := o.(*fakeQP); ok {
			all = append(all, q)
		}
	}
	slices.SortFunc(all, func(a, b *fakeQP) int { return int(a.num) - int(b.num) })
	return all
}
