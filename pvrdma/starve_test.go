// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"testing"

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
