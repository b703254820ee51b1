// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"encoding/binary"
	"errors"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// atomicBytes is the size of the word that an atomic operation changes, and of what it returns.
const atomicBytes = 8

// isAtomic says whether an operation changes a word at the responder and returns what it was.
func isAtomic(o hostverbs.WROpcode) bool {
	return o == hostverbs.OpAtomicCmpAndSwp || o == hostverbs.OpAtomicFetchAndAdd
}

// change carries out an atomic operation in the responder's memory, and answers with what was there. It is one instruction
// of this processor: atomic towards the guest's processors, and towards every other thread that serves the memory.
func (q *qp) change(m *message, at span, b *budget) hostverbs.WCStatus {
	var err error
	if m.op == hostverbs.OpAtomicCmpAndSwp {
		m.was, err = guestmem.CompareAndSwap64(at.mem, at.off, m.compareAdd, m.swap)
	} else {
		m.was, err = guestmem.FetchAdd64(at.mem, at.off, m.compareAdd)
	}
	b.moved(atomicBytes)
	if err != nil {
		return q.copyFailed(m, err, false)
	}
	m.moved = m.total
	return hostverbs.WCSuccess
}

// keep writes what an atomic operation has returned to the requester's memory, in the byte order of all guests. The keys are
// looked up anew: the operation is done, whatever has become of the region since.
func (q *qp) keep(wr *hostverbs.SendWR) hostverbs.WCStatus {
	m := q.sq.msg
	m.moved = 0
	if status := q.gather(wr); status != hostverbs.WCSuccess {
		return status
	}
	word := &q.pl.word
	binary.LittleEndian.PutUint64(word[:], m.was)
	for at := uint64(0); at < atomicBytes; {
		to := m.near.head()
		n := to.n
		if err := guestmem.CopyIn(to.mem, to.off, word[at:at+n]); err != nil {
			var fault *guestmem.FaultError
			if errors.As(err, &fault) {
				q.pl.fault(fault)
			}
			return hostverbs.WCLocProtErr
		}
		m.near.moved(n)
		at += n
	}
	return hostverbs.WCSuccess
}
