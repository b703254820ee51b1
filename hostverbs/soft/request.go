// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"math"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// checkRequest looks at everything that the requester can judge alone, measures the message and finds its memory.
func (q *qp) checkRequest(wr *hostverbs.SendWR) hostverbs.WCStatus {
	if wr.Status != hostverbs.WCSuccess {
		return wr.Status
	}
	if !q.requests(wr.Opcode) {
		return hostverbs.WCLocQPOpErr
	}
	if int(wr.NumSGE) > len(wr.SGE) || uint32(wr.NumSGE) > q.attr.Cap.MaxSendSGE {
		return hostverbs.WCLocQPOpErr
	}
	longest, mtu := uint64(hostverbs.MaxMsgSize), q.attr.PathMTU
	if q.datagrams() {
		longest, mtu = maxDatagram, activeMTU
	}
	total := hostverbs.Length(wr.SGE[:wr.NumSGE])
	if total > longest {
		return hostverbs.WCLocLenErr
	}
	if isAtomic(wr.Opcode) {
		if total < atomicBytes {
			return hostverbs.WCLocLenErr
		}
		total = atomicBytes
	}
	q.sq.msg.total = total
	q.sq.msg.packets = packets(total, mtu)
	if q.datagrams() && !q.route(wr) {
		return hostverbs.WCLocQPOpErr
	}
	return q.gather(wr)
}

// requests says whether the queue pair's type has an operation, and its attributes permit to ask a peer for it.
func (q *qp) requests(o hostverbs.WROpcode) bool {
	switch o {
	case hostverbs.OpSend:
		return true
	case hostverbs.OpSendWithImm:
		return q.typ != hostverbs.QPTypeGSI
	case hostverbs.OpRDMAWrite, hostverbs.OpRDMAWriteWithImm:
		return !q.datagrams()
	case hostverbs.OpSendWithInv:
		return q.reliable()
	case hostverbs.OpRDMARead, hostverbs.OpAtomicCmpAndSwp, hostverbs.OpAtomicFetchAndAdd:
		return q.reliable() && q.attr.MaxRdAtomic > 0
	}
	return false
}

// gather finds the memory of the bytes that have not moved yet. An entry without length names no memory, whatever its key,
// nor does what lies behind the one word that an atomic operation returns.
func (q *qp) gather(wr *hostverbs.SendWR) hostverbs.WCStatus {
	m := q.sq.msg
	m.near.clear()
	need, skip, left := localAccess(wr.Opcode), m.moved, uint64(math.MaxUint64)
	if isAtomic(wr.Opcode) {
		left = atomicBytes
	}
	for i := range wr.SGE[:wr.NumSGE] {
		s := &wr.SGE[i]
		n := min(uint64(s.Length), left)
		if n <= skip {
			skip -= n
			continue
		}
		left -= n
		at, status := q.ctx.keys.local(s.LKey, q.pd, s.Addr+skip, n-skip, need)
		if status != hostverbs.WCSuccess {
			return status
		}
		m.near.add(at, n-skip)
		skip = 0
	}
	return hostverbs.WCSuccess
}

// localAccess is the right that an operation needs to the requester's own memory.
func localAccess(o hostverbs.WROpcode) hostverbs.AccessFlags {
	if returns(o) {
		return hostverbs.AccessLocalWrite
	}
	return 0
}

// packets is how many sequence numbers a message takes: one for each packet, and one packet if there are no bytes.
func packets(n uint64, mtu hostverbs.MTU) uint32 {
	size := uint64(mtu.Bytes())
	if n <= size {
		return 1
	}
	return uint32((n + size - 1) / size)
}

// consumesReceive says whether the peer needs a posted receive.
func consumesReceive(o hostverbs.WROpcode) bool {
	return isSend(o) || o == hostverbs.OpRDMAWriteWithImm
}

// isSend says whether the bytes go to the buffers of a receive.
func isSend(o hostverbs.WROpcode) bool {
	return o == hostverbs.OpSend || o == hostverbs.OpSendWithImm || o == hostverbs.OpSendWithInv
}
