// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"fmt"
	"sync/atomic"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/hostverbs/gsi"
	"github.com/pvrdmad/pvrdmad/internal/timerwheel"
	"github.com/pvrdmad/pvrdmad/ringbuf"
)

// maxTimers is the most timers that fire before anything else is looked at. A timer that fires only puts its queue pair
// into the list of those that wait for a turn.
const maxTimers = 256

// leftByAnswers is how many requests a visit has time for, however many answers have come back: a guest whose queue pairs have
// messages with other owners may get as many as a visit takes, each time.
const leftByAnswers = hostverbs.VisitWRs / 4

// poller is the engine's share of one owner thread.
type poller struct {
	eng   *Engine
	owner hostverbs.Owner
	// index is the poller's place in Engine.pollers.
	index int
	// contexts, closed and paces are guarded by Engine.mu. What is in paces belongs to the owner's thread.
	contexts int
	closed   bool
	paces    gsi.Paces
	// inbox is what other owners have sent: messages, and answers. They put in, the owner takes out.
	inbox *ringbuf.MPSC[*parcel]
	// left are answers of pollers that were closed when the inbox was full, linked by parcel.next.
	left atomic.Pointer[parcel]

	// Everything below belongs to the owner's thread.

	// gids is the directory by which guests are found; gidEpoch changes when it does.
	gids     map[hostverbs.GID]*context
	gidEpoch uint32
	// several: there are other pollers, or have been.
	several bool
	// active are the queue pairs with something to do.
	active turns
	// visitors are the guests of other owners that have messages here, and attending is the one of those messages that is
	// being worked on. outbox is what found no room in an inbox, answers what has come back and was not looked at yet.
	visitors        list[*visitor]
	attending       *parcel
	outbox, answers fifo
	// theirs: the last turn was one of visitors.
	theirs bool
	timers *timerwheel.Wheel
	// now is the time of the last Progress. sender is the guest that posted last, and crowdedUntil when it will have been the
	// only one for long.
	now, crowdedUntil int64
	sender            *context
	// word is what an atomic operation has found, on its way to a requester.
	word [atomicBytes]byte
	// packet is where a datagram is put together.
	packet [hostverbs.GRHBytes + maxDatagram]byte
	count  counts
}

func newPoller(e *Engine, o hostverbs.Owner) *poller {
	inbox, err := ringbuf.NewMPSC[*parcel](inboxLen)
	if err != nil {
		panic(err) // the length is a constant
	}
	return &poller{
		eng: e, owner: o, inbox: inbox,
		paces: gsi.Paces{}, gids: make(map[hostverbs.GID]*context),
		// The first Progress brings the wheel to the present; nothing is armed before.
		timers: timerwheel.New(0),
	}
}

// Progress gives guests whose queue pairs wait their turns, one guest after the other, until all had one or a visit's worth
// of work is done: the owner looks at doorbells in between, so that a short message waits for one visit, not for one of
// every guest.
func (pl *poller) Progress(now int64) (worked bool, next int64) {
	pl.timers.Advance(now, maxTimers)
	pl.now = now
	b := pl.visit()
	if pl.several {
		pl.recover()
		pl.pickUp()
		pl.dispatch()
		worked = pl.collect(&b)
		b.wrs = max(b.wrs, leftByAnswers)
	}
	for n := pl.active.guests.n + pl.visitors.n; n > 0 && pl.active.n+pl.visitors.n > 0 && b.left(); n-- {
		if pl.turn(&b) {
			worked = true
		}
	}
	next = pl.timers.Next()
	if due := pl.count.publish(now); due != 0 && (next == 0 || due < next) {
		next = due
	}
	if pl.active.n+pl.visitors.n+pl.outbox.n+pl.answers.n > 0 {
		next = max(now, 1) // 0 would mean never
	}
	return worked, next
}

// turn gives one guest a turn, one of the owner's and one of the others' alternately, and says whether that brought anything
// on.
func (pl *poller) turn(b *budget) (worked bool) {
	pl.theirs = pl.visitors.n > 0 && (!pl.theirs || pl.active.n == 0)
	if pl.theirs {
		pl.entertain(b)
		return true
	}
	return pl.active.next().goOn(pl.now, b)
}

// incarnate returns a number that no queue pair of the engine has had, for a message may travel to another poller's: never 0.
// Its lower half is 0, for the messages that the queue pair lets in to be counted there.
func (e *Engine) incarnate() uint64 { return e.incarnations.Add(1) << 32 }

// Close ends the poller. EBUSY while a context is open.
func (pl *poller) Close() error {
	if err := pl.eng.remove(pl); err != nil {
		return fmt.Errorf("close poller: %w", err)
	}
	pl.turnAway()
	return nil
}

// fault tells the observer whose memory failed.
func (pl *poller) fault(err *guestmem.FaultError) {
	pl.count.add(cntMemoryFaults, 1)
	if pl.eng.obs != nil {
		pl.eng.obs.MemoryFault(err)
	}
}
