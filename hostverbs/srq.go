// SPDX-License-Identifier: Apache-2.0

package hostverbs

// SRQAttr is struct ibv_srq_attr.
type SRQAttr struct {
	MaxWR, MaxSGE uint32
	// Limit arms the limit event: see SRQ.Modify. A create does not look at it.
	Limit uint32
}

// SRQAttrMask is enum ib_srq_attr_mask (include/rdma/ib_verbs.h): which attributes a modify names.
type SRQAttrMask uint32

// Attribute mask bits.
const (
	SRQMaxWR SRQAttrMask = 1 << 0
	SRQLimit SRQAttrMask = 1 << 1
)

// SRQ is a shared receive queue of an engine, see ibv_create_srq(3). Queue pairs that were created with it take their
// receives there, each when a message needs one, and complete them in their own receive completion queues.
type SRQ interface {
	// Modify is ibv_modify_srq(3). A limit arms the event EventSRQLimitReached: it is reported once, when fewer receives
	// than that are posted, at once if that is so already, and the limit is 0 from then on. A limit of 0 disarms it; one
	// above MaxWR is EINVAL, and so is a mask that names nothing or what no SRQ has. To resize the queue is EOPNOTSUPP. On
	// an error nothing has changed. Control call.
	Modify(attr *SRQAttr, mask SRQAttrMask) error
	// Query returns the attributes as they are now, see ibv_query_srq(3). Control call.
	Query() (SRQAttr, error)
	// Destroy frees it; EBUSY while a QP uses it. The engine calls the handler no more after it returns. Control call.
	Destroy() error
}

// SRQHandler is the device's side of an SRQ. The engine calls it on the owner's thread of the guest, with no lock held.
type SRQHandler interface {
	// PullRecv is QPHandler.PullRecv for the shared queue. An error drops the QP for which it was called, and no other.
	PullRecv(wr *RecvWR) (bool, error)
	// Posted returns how many receives are posted. The engine asks only while a limit is armed.
	Posted() uint32
	// Event reports an asynchronous event of the SRQ.
	Event(e EventType)
}
