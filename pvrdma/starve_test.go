// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// TestALongMessageIsNotPassedOverForEver: other queue pairs of its device have a short one in every pass, so that there is never
// a whole pass's share left when its turn comes.
func TestALongMessageIsNotPassedOverForEver(t *testing.T) {
	// Arrange: three with short messages, one of them before the long one's turn and two behind it.
	r := newRig(t)
	r.engine.attr.MaxQP = 1024
	g := r.newGuest()
	all := manyQPs(g, userPage, 4)
	long := all[1]
	post := func(q *guestQP, n uint32) {
		q.putSend(sendWQE(abi.SendWQEHdr{Opcode: abi.WRSend, NumSGE: 1}, nil, abi.SGE{Length: n}))
		q.publishSends()
		q.dev().SendReady()
	}
	for _, q := range all {
		post(q, map[bool]uint32{true: 1 << 20, false: 8}[q == long])
	}

	// Act, assert: whoever was served has another one at once.
	for range 100 {
		r.step()
		for _, q := range all {
			if len(q.engine.taken()) == 0 {
				continue
			}
			if q == long {
				return
			}
			post(q, 8)
		}
	}
	t.Error("a long message was not taken in 100 passes")
}

// ringer is an Observer that rings again for each doorbell of nobody, as a program on another processor of the guest does.
type ringer struct {
	g    *guest
	page int
	left int
}

func (r *ringer) Observe(e Event) {
	if x, ok := e.(GuestError); ok && x.Reason == BadDoorbell && r.left > 0 {
		r.left--
		r.g.bells.Store32(r.page*abi.UARPageSize+abi.UARQPOffset, abi.UARHandleMask)
	}
}

// TestAProgramThatRingsForNobodyDoesNotHoldUpTheOthers: those of its guest that wait for a turn, and those that wait for an event.
func TestAProgramThatRingsForNobodyDoesNotHoldUpTheOthers(t *testing.T) {
	const hostile = 5
	r, g, q, c := polledCQ(t, 8)
	x := &ringer{g: g, page: hostile, left: 1_000_000}
	manyQPs(g, hostile, 4) // a word of nobody has them looked at
	g.dev.observer = x
	g.bells.Store32(hostile*abi.UARPageSize+abi.UARQPOffset, abi.UARHandleMask)
	q.postSends(1)
	q.dev().SendReady() // as after its last message
	c.ring(userPage, abi.UARCQArm)
	_ = q.complete(hostverbs.WC{})

	for range 4 {
		r.step()
		r.after(DefaultCQGrace)
	}

	if len(q.engine.taken()) != 1 {
		t.Error("the request of a queue pair that has a turn was not taken")
	}
	if len(g.notifier.events()) != 1 {
		t.Error("the event of a completion was not sent")
	}
	x.left = 0
}
