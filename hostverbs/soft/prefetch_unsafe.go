// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"unsafe"

	"github.com/pvrdmad/pvrdmad/guestmem"
)

// How far the part of a queue pair goes that a message needs: as requester up to the first piece of the message, as
// responder up to the send queue.
const (
	requesterBytes = unsafe.Offsetof(qp{}.sq) + unsafe.Offsetof(sendQueue{}.own) + unsafe.Offsetof(message{}.near) +
		unsafe.Offsetof(pieces{}.list) + unsafe.Sizeof(piece{})
	responderBytes = unsafe.Offsetof(qp{}.sq)
)

// Prefetch asks for the memory that the queue pair's next request needs of its own. A device calls it for those that it is
// about to call PostSend for, while it does other things.
func (q *qp) Prefetch() { guestmem.PrefetchObject(q, requesterBytes) }

// PrefetchPeer asks for what the next request needs of the queue pair at the other end. It comes some time after Prefetch.
func (q *qp) PrefetchPeer() {
	if p := q.sq.to; p != nil {
		guestmem.PrefetchObject(p, responderBytes)
	}
}
