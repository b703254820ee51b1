// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// What the engine can do, as ibv_query_device(3) reports it; the limits are those of one guest.
const (
	maxQP    = 8192
	maxQPWR  = 4096
	maxCQ    = 8192
	maxCQE   = 65536
	maxMR    = 1 << keySlotBits
	maxPD    = 4096
	maxSRQ   = 1024
	maxSRQWR = 4096
	maxAH    = 65536
	// maxMRSize is what the 262,144 pages of a pvrdma page directory hold.
	maxMRSize = 1 << 30
	// maxRdAtom bounds max_rd_atomic and max_dest_rd_atomic. A READ is one copy, so the number limits nothing here;
	// it is what guests of other engines are used to.
	maxRdAtom = 16
	// maxGIDs is what an sgid_index of 8 bits can name.
	maxGIDs = 256
	// ackDelay is 4.096 us * 2^15 = 134 ms: longer than an owner thread is ever kept from its guests.
	ackDelay = 15

	activeMTU = hostverbs.MTU4096
	// width4X and speedEDR make 100 Gb/s, the order of what a memory copy reaches (enums ib_port_width and
	// ib_port_speed).
	width4X  = 2
	speedEDR = 32
)

// maxPollers is how many owners can share an engine.
const maxPollers = 16

// Observer is told what the operator should know. Its methods are called on an owner's thread, which need not be that of the
// guest in question, and must not block.
type Observer interface {
	// MemoryFault says that a guest's memory failed under a copy. The work that ran was completed in error; the guest
	// that err names should be reset.
	MemoryFault(err *guestmem.FaultError)
}

// Engine is the embedded engine.
type Engine struct {
	obs Observer
	// incarnations counts the lives of queue pairs; all owners' threads count.
	incarnations atomic.Uint64

	// mu guards the fields below; control calls take it, the data path never does.
	mu      sync.Mutex
	pollers [maxPollers]*poller
	holders map[hostverbs.GID]*context
	qpns    qpnPool
	closed  bool

	// directory is held while an address or a poller comes or goes, which all pollers learn one after the other. It is taken
	// before mu, and never on an owner's thread.
	directory sync.Mutex
}

var _ hostverbs.Provider = (*Engine)(nil)

// New returns an engine without guests. obs may be nil.
func New(obs Observer) *Engine {
	return &Engine{
		obs:     obs,
		holders: make(map[hostverbs.GID]*context),
		qpns:    newQPNPool(),
	}
}

// Name returns "soft".
func (e *Engine) Name() string { return "soft" }

// QueryDevice returns what the engine can do.
func (e *Engine) QueryDevice() hostverbs.DeviceAttr {
	return hostverbs.DeviceAttr{
		FWVer:           1 << 32,
		MaxMRSize:       maxMRSize,
		MaxQP:           maxQP,
		MaxQPWR:         maxQPWR,
		MaxSGE:          hostverbs.MaxSGE,
		MaxSGERd:        hostverbs.MaxSGE,
		MaxCQ:           maxCQ,
		MaxCQE:          maxCQE,
		MaxMR:           maxMR,
		MaxPD:           maxPD,
		MaxAH:           maxAH,
		MaxSRQ:          maxSRQ,
		MaxSRQWR:        maxSRQWR,
		MaxSRQSGE:       hostverbs.MaxSGE,
		MaxQPRdAtom:     maxRdAtom,
		MaxQPInitRdAtom: maxRdAtom,
		MaxPKeys:        1,
		LocalCAAckDelay: ackDelay,

		AtomicCmpSwap: true, AtomicFetchAdd: true,
		LocalInvalidate: true, RemoteInvalidate: true, FastRegistration: true,
		MaxFastRegPageLen: maxFastRegPages,
	}
}

// QueryPort returns the state of the only port, which is always up.
func (e *Engine) QueryPort() hostverbs.PortAttr {
	return hostverbs.PortAttr{
		Active:      true,
		MaxMTU:      hostverbs.MTU4096,
		ActiveMTU:   activeMTU,
		MaxMsgSize:  hostverbs.MaxMsgSize,
		ActiveWidth: width4X,
		ActiveSpeed: speedEDR,
	}
}

// NewPoller gives the owner thread o its share. There are 16 at most: ENOMEM.
func (e *Engine) NewPoller(o hostverbs.Owner) (hostverbs.Poller, error) {
	if o == nil {
		return nil, fmt.Errorf("new poller: no owner: %w", unix.EINVAL)
	}
	e.directory.Lock()
	defer e.directory.Unlock()
	others := e.open(nil)
	pl := newPoller(e, o)
	pl.several = len(others) > 0
	if err := e.add(pl); err != nil {
		return nil, fmt.Errorf("new poller: %w", err)
	}
	for _, other := range others {
		other.owner.Do(func() {
			other.several = true
			maps.Copy(pl.gids, other.gids) // all know the same
		})
	}
	return pl, nil
}

// add takes a poller in.
func (e *Engine) add(pl *poller) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return fmt.Errorf("the engine is closed: %w", unix.ENODEV)
	}
	pl.index = slices.Index(e.pollers[:], nil)
	if pl.index < 0 {
		return fmt.Errorf("there are %d pollers, the limit: %w", maxPollers, unix.ENOMEM)
	}
	e.pollers[pl.index] = pl
	return nil
}

// remove takes a poller out.
func (e *Engine) remove(pl *poller) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if pl.contexts > 0 {
		return fmt.Errorf("%d contexts are open: %w", pl.contexts, unix.EBUSY)
	}
	if pl.closed {
		return fmt.Errorf("it is closed: %w", unix.EINVAL)
	}
	pl.closed = true
	e.pollers[pl.index] = nil
	return nil
}

// open returns all pollers but one.
func (e *Engine) open(but *poller) (all []*poller) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, pl := range e.pollers {
		if pl != nil && pl != but {
			all = append(all, pl)
		}
	}
	return all
}

// Barrier returns when no owner is still at what it did before the call.
func (e *Engine) Barrier() { e.tell(nil, func(*poller) {}) }

// tell runs fn for each poller but one on its owner's thread, one after the other. Not on an owner's thread: two that tell each
// other would wait for ever.
func (e *Engine) tell(but *poller, fn func(pl *poller)) {
	for _, pl := range e.open(but) {
		pl.owner.Do(func() { fn(pl) })
	}
}

// Close ends the engine. EBUSY while a poller is open.
func (e *Engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pollers != [maxPollers]*poller{} {
		return fmt.Errorf("close soft engine: a poller is open: %w", unix.EBUSY)
	}
	e.closed = true
	return nil
}
