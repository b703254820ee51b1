// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/internal/timerwheel"
)

// How much is done without looking at anything else. Large enough that copies run at full speed, small enough that a
// guest waits microseconds for another one's message.
const (
	// sliceBytes is what a message moves before it is another's turn: 20 to 60 us of copying. Below 1 MiB the runtime
	// copies through the cache, which takes 1.6 times as long for the same bytes of a long message.
	sliceBytes = 1 << 20
	// maxPerPost is the most requests that one PostSend starts; it starts none after it has moved a slice.
	maxPerPost = 64
	// progressBytes and maxVisits bound one Progress: after so many bytes no other queue pair has its turn.
	progressBytes = 2 * sliceBytes
	maxVisits     = 32
	// maxTimers is the most timers that fire before anything else is looked at.
	maxTimers = 256
	// maxFlush is the most receives that a queue pair flushes before it is another's turn: an RQ in shared memory can
	// be refilled for ever.
	maxFlush = 64
)

// poller is the engine's share of one owner thread.
type poller struct {
	eng   *Engine
	owner hostverbs.Owner
	// contexts is guarded by Engine.mu.
	contexts int

	// Everything below belongs to the owner's thread.

	// qps and gids are the directory by which peers are found; gidEpoch changes when gids does.
	qps      map[uint32]*qp
	gids     map[hostverbs.GID]*context
	gidEpoch uint32
	// active are the queue pairs with something to do.
	active turns
	timers *timerwheel.Wheel
	count  counts
}

func newPoller(e *Engine, o hostverbs.Owner) *poller {
	return &poller{
		eng: e, owner: o,
		qps:  make(map[uint32]*qp),
		gids: make(map[hostverbs.GID]*context),
		// The first Progress brings the wheel to the present; nothing is armed before.
		timers: timerwheel.New(0),
	}
}

// Progress gives every queue pair that was waiting its turn, up to a bound.
func (pl *poller) Progress(now int64) (worked bool, next int64) {
	pl.timers.Advance(now, maxTimers)
	spent := uint64(0)
	for n := min(pl.active.n, maxVisits); n > 0 && spent < progressBytes; n-- {
		if pl.active.pop().visit(now, &spent) {
			worked = true
		}
	}
	next = pl.timers.Next()
	if due := pl.count.publish(now); due != 0 && (next == 0 || due < next) {
		next = due
	}
	if pl.active.n > 0 {
		next = max(now, 1) // 0 would mean never
	}
	return worked, next
}

// Close ends the poller. EBUSY while a context is open.
func (pl *poller) Close() error {
	pl.eng.mu.Lock()
	defer pl.eng.mu.Unlock()
	if pl.contexts > 0 {
		return fmt.Errorf("close poller: %d contexts are open: %w", pl.contexts, unix.EBUSY)
	}
	if pl.eng.poller != pl {
		return fmt.Errorf("close poller: it is closed: %w", unix.EINVAL)
	}
	pl.eng.poller = nil
	return nil
}

// fault tells the observer whose memory failed.
func (pl *poller) fault(err *guestmem.FaultError) {
	pl.count.add(cntMemoryFaults, 1)
	if pl.eng.obs != nil {
		pl.eng.obs.MemoryFault(err)
	}
}
