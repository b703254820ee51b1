// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"sync/atomic"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// parcel is a message to a queue pair of another owner: it lies in that owner's inbox, waits its turn there, is worked on,
// and comes back with the answer. Whoever has it owns its message. A queue pair has one, and one under way at most.
type parcel struct {
	message
	// Set when it is made. q belongs to home's owner: for all others it is a name.
	home *poller
	q    *qp
	// keys is what context.withdrawn was when the requester's memory was found.
	keys uint64
	// recall is written by home's owner, and read by who has the parcel.
	recall atomic.Uint32
	// fast are the regions for fast registration that the requester's memory is of, and lent is how many: the requester's.
	lent uint8
	fast [hostverbs.MaxSGE]*fastMR
	// next is the parcel behind it, in a queue of who has it.
	next *parcel
}

// Values of parcel.recall.
const (
	// hurry: the queue pair is in ERR. The parcel is to come back as it is.
	hurry uint32 = 1 + iota
	// forsaken: the queue pair has been reset, or is no more. Nobody wants the parcel back.
	forsaken
)

// inboxLen is how many parcels an inbox holds, a power of two. What finds it full is tried again.
const inboxLen = 1024

// maxCollect is the most parcels that are taken out of an inbox, or tried to be put into others, before anything else is looked
// at.
const maxCollect = 256

// fifo is parcels, the one that has waited longest first.
type fifo struct {
	head, tail *parcel
	n          int
}

func (f *fifo) push(x *parcel) {
	x.next = nil
	if f.head == nil {
		f.head = x
	} else {
		f.tail.next = x
	}
	f.tail = x
	f.n++
}

// pop takes the first one out. There is one.
func (f *fifo) pop() *parcel {
	x := f.head
	f.head = x.next
	if f.head == nil {
		f.tail = nil
	}
	x.next = nil
	f.n--
	return x
}

// readdress writes the addresses of a connection, which cannot change while a message is under way.
func (q *qp) readdress() {
	q.sq.to = nil
	if !q.sq.away {
		q.sq.msg.address(q)
	}
}

// elsewhere returns the poller that a message is for, if that is another one and the guest has the address that it comes
// from.
func (q *qp) elsewhere() *poller {
	c := q.pl.gids[q.sq.msg.dgid]
	if c == nil || c.pl == q.pl || q.ctx.down || !q.datagrams() && !q.bound() {
		return nil
	}
	return c.pl
}

// depart sends the message to another owner. If there is no room, the queue pair's next turn tries again.
func (q *qp) depart(to *poller, wr *hostverbs.SendWR) {
	x := q.sq.parcel
	if x == nil { // once for a queue pair
		x = &parcel{home: q.pl, q: q, message: q.sq.own}
		q.sq.parcel, q.sq.msg, q.sq.own = x, &x.message, message{}
	}
	x.keys = q.ctx.withdrawn.Load()
	x.lend(wr)
	if !to.inbox.Push(x) {
		x.recover()
		q.want(todoRun)
		return
	}
	q.sq.away = true
	q.ctx.away++
	q.pl.count.add(cntForwarded, 1)
	to.owner.Wake()
}

// recall has a parcel that is away come back as it is: the queue pair is in ERR. Until it is back, nothing is flushed.
func (s *sendQueue) recall(q *qp) {
	if s.away {
		s.parcel.recall.Store(hurry)
		q.ctx.strays = true
	}
}

// forsake leaves a parcel that is away to whoever has it. Until the other owners have been waited for, they may still be at work on
// it: see context.control.
func (s *sendQueue) forsake(q *qp) {
	s.parcel.recall.Store(forsaken)
	if s.parcel.lent > 0 {
		q.ctx.forsaken = append(q.ctx.forsaken, s.parcel)
	}
	s.parcel, s.msg, s.away = nil, &s.own, false
	s.msg.address(q)
	q.ctx.away--
	q.ctx.strays = true
}

// returned acts on the answer that a parcel brings back.
func (pl *poller) returned(x *parcel) {
	q := x.q
	if q.sq.parcel != x {
		return
	}
	q.sq.away = false
	q.ctx.away--
	x.recall.Store(0)
	x.recover()
	if q.attr.QPState == hostverbs.StateErr {
		q.want(todoFlush)
		q.offer()
		return
	}
	q.running = true
	q.answered(&q.sq.wr)
	q.running = false
	q.offer()
}

// collect takes what has come out of the inbox: answers, which are acted on as far as the visit goes, and messages, which wait
// their turn.
func (pl *poller) collect(b *budget) (worked bool) {
	for pl.answers.n > 0 && b.left() {
		b.wrs--
		pl.returned(pl.answers.pop())
		worked = true
	}
	for n := 0; n < maxCollect && b.left(); n++ {
		x, ok := pl.inbox.Pop()
		if !ok {
			break
		}
		worked = true
		if x.home != pl {
			pl.receive(x)
			continue
		}
		b.wrs--
		pl.returned(x)
	}
	pl.inbox.Release()
	return worked
}

// giveBack sends a parcel back to where it came from. An answer is never lost: what finds no room waits.
func (pl *poller) giveBack(x *parcel) {
	if x.recall.Load() == forsaken {
		return
	}
	home := x.home // the parcel may be anywhere once it is in the inbox
	if pl.outbox.n > 0 || !home.inbox.Push(x) {
		pl.outbox.push(x)
		return
	}
	home.owner.Wake()
}

// dispatch tries again to send what found no room.
func (pl *poller) dispatch() {
	for n := min(pl.outbox.n, maxCollect); n > 0; n-- {
		x := pl.outbox.pop()
		if x.recall.Load() == forsaken {
			continue
		}
		home := x.home
		if home.inbox.Push(x) {
			home.owner.Wake()
		} else {
			pl.outbox.push(x)
		}
	}
}
