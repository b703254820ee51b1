// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"unsafe"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
)

var _ hostverbs.Prefetcher = (*qp)(nil)

// How far the part of a queue pair goes that a message needs: as requester up to the first piece of the message, as
// responder up to the send queue.
const (
	requesterBytes = unsafe.Offsetof(qp{}.sq) + unsafe.Offsetof(sendQueue{}.own) + unsafe.Offsetof(message{}.near) +
		unsafe.Offsetof(pieces{}.list) + unsafe.Sizeof(piece{})
	responderBytes = unsafe.Offsetof(qp{}.sq)
)

// Prefetch implements hostverbs.Prefetcher.
func (q *qp) Prefetch() { guestmem.PrefetchObject(q, requesterBytes) }

// PrefetchPeer implements hostverbs.Prefetcher.
func (q *qp) PrefetchPeer() {
	if p := q.sq.to; p != nil {
		guestmem.PrefetchObject(p, responderBytes)
	}
}
