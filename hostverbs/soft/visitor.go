// SPDX-License-Identifier: Apache-2.0

package soft

// visitor is a guest of another owner at a poller, to whose queue pairs it has sent messages. It belongs to the poller's
// owner.
type visitor struct {
	// Messages wait in two queues, which take turns, so that a short one does not wait for one visit of each long one.
	short, long fifo
	listed      bool
	longNext    bool
	turn        links[*visitor]
	_           [56]byte // the next one is another owner's, and lines are fetched in pairs
}

// shortMessage is how many bytes a message has at most that waits with the short ones.
const shortMessage = crowdedBytes

// push lets a message wait its turn.
func (v *visitor) push(x *parcel) {
	if x.total <= shortMessage {
		v.short.push(x)
	} else {
		v.long.push(x)
	}
}

// pop returns the message whose turn it is. There is one.
func (v *visitor) pop() *parcel {
	from := &v.short
	if v.short.n == 0 || v.longNext && v.long.n > 0 {
		from = &v.long
	}
	v.longNext = from == &v.short
	return from.pop()
}

// waiting is how many messages wait.
func (v *visitor) waiting() int { return v.short.n + v.long.n }

func (v *visitor) links() *links[*visitor] { return &v.turn }

// receive lets a message wait its turn among those of its guest.
func (pl *poller) receive(x *parcel) {
	v := &x.from.visits[pl.index]
	v.push(x)
	if !v.listed {
		v.listed = true
		pl.visitors.push(v)
	}
}

// entertain gives the guest of another owner whose turn it is one turn for each of its messages, until the budget is used up.
// There is such a guest.
func (pl *poller) entertain(b *budget) {
	v := pl.visitors.head
	pl.visitors.remove(v)
	pl.visitors.push(v)
	for n := v.waiting(); n > 0 && b.left(); n-- {
		b.wrs--
		pl.attend(v.pop(), b)
	}
	if v.waiting() == 0 {
		pl.dismiss(v)
	}
}

// dismiss takes a guest's turn away.
func (pl *poller) dismiss(v *visitor) {
	v.listed = false
	pl.visitors.remove(v)
}

// attend works on a message that has come from another owner, as far as the visit allows.
func (pl *poller) attend(x *parcel, b *budget) {
	m := &x.message
	m.reply = replyNone
	switch {
	case x.recall.Load() != 0:
		// A requester that has given up does not look at the answer.
	case x.from.withdrawn.Load() != x.keys:
		m.reply = replyAgain
	default:
		pl.attending = x
		pl.sends(x.from)
		if p := pl.find(m); p != nil {
			p.serve(m, b)
		}
		pl.attending = nil
		if m.reply == replyACK && m.moved < m.total {
			x.from.visits[pl.index].push(x)
			return
		}
	}
	pl.giveBack(x)
}

// recover gives back what an owner was at work on when it panicked: as a message that was lost.
func (pl *poller) recover() {
	x := pl.attending
	if x == nil {
		return
	}
	pl.attending = nil
	x.reply = replyNone
	pl.giveBack(x)
}

// forget drops all that a guest of another owner still has here, and what the poller knows of it. The guest's queue pairs
// have forsaken all their messages.
func (pl *poller) forget(c *context) {
	pl.drain()
	if v := &c.visits[pl.index]; v.listed {
		v.short, v.long = fifo{}, fifo{}
		pl.dismiss(v)
	}
	if pl.sender == c {
		pl.sender = nil
	}
}

// drain takes everything out of the inbox.
func (pl *poller) drain() {
	for {
		x, ok := pl.inbox.Pop()
		if !ok {
			break
		}
		if x.home == pl {
			pl.answers.push(x)
		} else {
			pl.receive(x)
		}
	}
	pl.inbox.Release()
}

// turnAway gives back what the poller will not come to any more: it is closed. Its guests are gone, so that nobody sends it
// messages, and nobody waits for its answers.
func (pl *poller) turnAway() {
	pl.recover()
	pl.drain()
	for pl.visitors.n > 0 {
		v := pl.visitors.head
		for v.waiting() > 0 {
			x := v.pop()
			x.reply = replyNone
			pl.giveBack(x)
		}
		pl.dismiss(v)
	}
	for pl.outbox.n > 0 {
		if x := pl.outbox.pop(); x.recall.Load() != forsaken {
			x.home.leave(x)
		}
	}
	pl.answers = fifo{}
}

// leave puts an answer down for the poller, who finds it in its next Progress: there is always room, and nobody waits.
func (pl *poller) leave(x *parcel) {
	for {
		x.next = pl.left.Load()
		if pl.left.CompareAndSwap(x.next, x) { // or another poller was closed at this moment
			break
		}
	}
	pl.owner.Wake()
}

// pickUp takes in what was left. Owner's thread.
func (pl *poller) pickUp() {
	if pl.left.Load() == nil {
		return
	}
	for x := pl.left.Swap(nil); x != nil; {
		next := x.next
		pl.answers.push(x)
		x = next
	}
}
