// SPDX-License-Identifier: Apache-2.0

package hostverbs

import "github.com/pvrdmad/pvrdmad/guestmem"

// Owner is the thread that owns the data path of some guests. While it sleeps another thread may be in its place, and then
// is the owner thread: there is one at a time, and each sees what those before it have done.
type Owner interface {
	// Do runs fn on the owner's thread between two of its visits and returns when fn has returned, so that
	// nothing the owner did before is still going on. On that thread itself it runs fn at once.
	Do(fn func())
	// Wake says that Progress has something to do that has come from another owner: the owner looks soon, also if it sleeps.
	// Any thread may call it, and it does not wait.
	Wake()
}

// Provider is an engine: it carries out verbs, in software or on a host's device.
type Provider interface {
	// Name is the engine's name in logs and metrics, for example "soft".
	Name() string
	// QueryDevice returns what the engine can do, see ibv_query_device(3).
	QueryDevice() DeviceAttr
	// QueryPort returns the state of the engine's only port, see ibv_query_port(3).
	QueryPort() PortAttr
	// NewPoller gives an owner thread its share of the engine. The owner calls Progress on it.
	NewPoller(o Owner) (Poller, error)
	// Barrier returns when no owner is still at what it did before the call. A guest's memory may be copied on the thread of
	// any owner: whoever takes some away waits here.
	Barrier()
	// Close ends the engine. All contexts and pollers are closed before.
	Close() error
}

// Poller is the share of an engine that one owner thread drives.
type Poller interface {
	// OpenContext opens the engine for a guest that the poller's owner owns.
	OpenContext(cfg ContextConfig) (Context, error)
	// Progress does the work that is due: transfers under way, retries, completions of a host's device. It does
	// a bounded amount and returns whether it did any, and when it wants to be called again if nothing else
	// happens: nanoseconds on the clock of now, 0 for never. Owner thread only; it allocates nothing.
	//
	// The owner calls it after it has posted and after each Owner.Do, before it waits for anything: only here does the
	// engine learn the time, so that timers of what was posted start here, and SendReady, flushes after a Modify and
	// the rest of long messages come from here.
	Progress(now int64) (worked bool, next int64)
	// Close ends the poller. Its contexts are closed before.
	Close() error
}

// ContextConfig says for whom a context is opened.
type ContextConfig struct {
	// Guest is the guest's name from the configuration, for errors.
	Guest string
	// GIDTableLen is the number of entries of the guest's GID table.
	GIDTableLen int
	// Limits bounds what the guest may own; zero fields mean the engine's own limit.
	Limits Limits
}

// Limits bounds the objects of one guest. What is beyond a limit is refused with ENOMEM.
type Limits struct {
	MaxQP, MaxCQ, MaxMR, MaxPD, MaxSRQ int
}

// Context is an engine opened for one guest, see ibv_open_device(3). All its methods are control calls.
// Errors wrap an errno: ENOMEM for a limit, EINVAL for what this call got wrong, EOPNOTSUPP for what the engine
// can never do. A call that fails has changed nothing.
type Context interface {
	// AllocPD allocates a protection domain.
	AllocPD() (PD, error)
	// RegMR registers memory: attr says which addresses name it and what may be done to it.
	RegMR(pd PD, attr MRAttr) (MR, error)
	// AllocMR allocates a region for fast registration, see ib_alloc_mr (include/rdma/ib_verbs.h). It is free: its keys name
	// no memory until an OpRegMR request gives it some of src's, at most pages pages. EOPNOTSUPP if the engine has no
	// fast registration.
	AllocMR(pd PD, pages int, src PageSource) (MR, error)
	// CreateCQ creates a completion queue of at least cqe entries.
	CreateCQ(cqe int) (CQ, error)
	// CreateSRQ creates a shared receive queue whose receives name memory of the protection domain. The engine reports to h
	// on the owner's thread.
	CreateSRQ(pd PD, attr SRQAttr, h SRQHandler) (SRQ, error)
	// CreateQP creates a queue pair in RESET. The engine reports to h on the owner's thread.
	CreateQP(pd PD, attr *QPInitAttr, h QPHandler) (QP, error)
	// BindGID makes gid the context's address number index. An index in use is replaced; a GID that another
	// context holds is EADDRINUSE. What is sent from an address of another type does not arrive at it.
	BindGID(index int, gid GID, typ GIDType) error
	// UnbindGID removes the address number index if it is gid. ENOENT if it is not.
	UnbindGID(index int, gid GID) error
	// SetLink takes the guest's port down, or up again; a context begins with the port up. While it is down no message leaves
	// the guest and none reaches it, as if its cable was out: requests wait as for a peer that does not answer.
	SetLink(up bool)
	// Together runs fn, whose control calls destroy, deregister and modify much at once: what they promise about memory they
	// promise for the end of Together, which waits for other owners once. fn may make the calls within Owner.Do, but Together
	// is not called there.
	Together(fn func())
	// Close destroys what the context still holds. When it returns, the engine reaches none of the guest's memory.
	Close() error
}

// A visit is what is done for one queue pair before others have their turn, in a call of PostSend or in Progress. It
// ends at the first of two bounds, so that it takes tens of microseconds at most, whatever the guest has posted. A call
// of Progress does no more than that for all queue pairs together.
const (
	// VisitWRs is the most work requests that a visit takes. A request of the send queue and the receive request that
	// it uses up at the other end count as one; of requests that are flushed each counts.
	VisitWRs = 64
	// VisitBytes is the most payload that a visit moves, in either direction. A longer message goes on in later visits.
	VisitBytes = 256 << 10
)

// PD is a protection domain, see ibv_alloc_pd(3).
type PD interface {
	// Dealloc frees it; EBUSY while an MR, an SRQ or a QP uses it.
	Dealloc() error
}

// MRAttr describes a memory registration.
type MRAttr struct {
	// Memory holds the bytes: a page list, or a guest's whole address space for a DMA region.
	Memory guestmem.Memory
	// Offset is where in Memory the byte with address Start lies.
	Offset uint64
	// Start and Length are the addresses under which work requests name the region.
	Start, Length uint64
	// Access says what may be done; bits that the engine does not know are ignored.
	Access AccessFlags
	// DMA marks the region that covers all of a guest's memory (Start 0, any length). It is good as a local key
	// only: its remote key matches nothing.
	DMA bool
}

// MR is a memory region, see ibv_reg_mr(3).
type MR interface {
	LKey() uint32
	RKey() uint32
	// Dereg removes it. When it returns, the engine reaches the region's bytes no more.
	Dereg() error
}

// PageSource is the device's side of a region for fast registration: it alone can read the page list that a request names.
// The engine calls it on the owner's thread of the guest, with no lock held.
type PageSource interface {
	// PullPages reads the page list of an OpRegMR request, once, and returns memory that begins with the first of its pages
	// and allows what the request's access flags ask for. An error refuses the request.
	PullPages(wr *SendWR) (guestmem.Memory, error)
	// DropPages says that the region is free: the engine does not reach the memory that PullPages returned any more.
	DropPages()
}

// CQ is the engine's side of a completion queue. Completions reach the guest through QPHandler.
type CQ interface {
	// Destroy frees it; EBUSY while a QP uses it.
	Destroy() error
}

// QPInitAttr are the attributes of ibv_create_qp(3).
type QPInitAttr struct {
	SendCQ, RecvCQ CQ
	Cap            QPCap
	Type           QPType
	// QPN, if it is not 0, is the number that the QP is to have, from 2 to 65535: there are drivers that take numbers for
	// handles. EADDRINUSE if another QP of the context has it; one of another context may.
	QPN uint32
	// SQSigAll asks for a completion of every send work request, as sq_sig_all does.
	SQSigAll bool
	// SRQ, if not nil, is where receives come from: the QP has no receive queue of its own, and its limits in Cap mean
	// nothing and are 0 in a query.
	SRQ SRQ
}

// QP is a queue pair of an engine.
type QP interface {
	// QPN is the number that peers address: 24 bits, or 1 for the GSI QP.
	QPN() uint32
	// Modify is ibv_modify_qp(3): it applies the attributes that mask selects and moves to attr.QPState if the
	// mask has QPStateMask. On an error nothing has changed. Control call.
	Modify(attr *QPAttr, mask AttrMask) error
	// Query returns the attributes as they are now, the state included. Control call.
	Query() (QPAttr, error)
	// Destroy ends the QP: no completion and no access to memory on its behalf after it returns. Control call.
	Destroy() error

	// PostSend hands over work requests in order and returns how many were taken; those not taken are offered again
	// after QPHandler.SendReady. What is wrong with a request becomes its completion, never a return value. In ERR
	// requests are taken and flushed; below RTS none is taken. The engine copies what it needs before it
	// returns. A call is a visit: see VisitWRs. Owner thread only.
	PostSend(wrs []SendWR) int
	// RecvPosted says that the receive queue may have new requests: a hint, needed only so that a QP in ERR
	// flushes them. A QP in ERR leaves the requests of an SRQ to others. Owner thread only.
	RecvPosted()
	// Fail moves the QP to ERR because the device can no longer serve it, for example after its completion queue
	// overflowed: work that is posted is flushed, nothing else is completed. Owner thread only.
	Fail()
}

// QPHandler is the device's side of a QP. The engine calls it on the owner's thread of the guest, with no lock held.
// An error from a method means that the guest's own memory failed (it is being reset): the engine drops the QP's
// work and treats the QP as unreachable.
type QPHandler interface {
	// PullRecv takes the oldest posted receive request into wr (whose SGE storage is reused) and reports whether
	// there was one.
	PullRecv(wr *RecvWR) (bool, error)
	// CompleteSend and CompleteRecv deliver a completion. wc is only valid during the call. They are called for
	// signalled and for failed requests only.
	CompleteSend(wc *WC) error
	CompleteRecv(wc *WC) error
	// SendReady says that PostSend would take requests again.
	SendReady()
	// Event reports an asynchronous event of the QP, see ibv_get_async_event(3).
	Event(e EventType)
}
