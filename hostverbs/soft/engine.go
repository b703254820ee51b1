// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"fmt"
	"sync"

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

// Observer is told what the operator should know. Its methods are called on an owner's thread and must not block.
type Observer interface {
	// MemoryFault says that a guest's memory failed under a copy. The work that ran was completed in error; the guest
	// that err names should be reset.
	MemoryFault(err *guestmem.FaultError)
}

// Engine is the embedded engine.
type Engine struct {
	obs Observer

	// mu guards the fields below; control calls take it, the data path never does.
	mu      sync.Mutex
	poller  *poller
	holders map[hostverbs.GID]*context
	qpns    qpnPool
	closed  bool
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

// NewPoller gives the owner thread o its share. One poller owns all guests for now: a second is EOPNOTSUPP.
func (e *Engine) NewPoller(o hostverbs.Owner) (hostverbs.Poller, error) {
	if o == nil {
		return nil, fmt.Errorf("new poller: no owner: %w", unix.EINVAL)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, fmt.Errorf("new poller: the engine is closed: %w", unix.ENODEV)
	}
	if e.poller != nil {
		return nil, fmt.Errorf("new poller: the soft engine serves all guests on one poller: %w", unix.EOPNOTSUPP)
	}
	e.poller = newPoller(e, o)
	return e.poller, nil
}

// Close ends the engine. EBUSY while a poller is open.
func (e *Engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.poller != nil {
		return fmt.Errorf("close soft engine: a poller is open: %w", unix.EBUSY)
	}
	e.closed = true
	return nil
}
