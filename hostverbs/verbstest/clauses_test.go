// SPDX-License-Identifier: Apache-2.0

package verbstest

// Reasons why a sentence has no promise.
const (
	word  = "it says what a word means"
	duty  = "it is what the engine's caller has to do"
	shown = "every case would fail otherwise"
)

// Promises that several sentences need.
const (
	order     = "requests complete in the order in which they were posted"
	inFlush   = "a queue pair in ERR flushes what is posted, in order, signalled or not"
	late      = "a queue pair in ERR flushes what is posted later, for as long as it is"
	table     = "every attribute mask is judged as the state table says, in every state"
	bounded   = "one call moves no more bytes and ends no more requests than a visit has"
	share     = "a call of Progress is one visit, however many queue pairs of however many guests wait"
	truth     = "a query tells what was set, and the state as it is"
	busyObj   = "what is in use cannot be freed"
	goneUnder = "a region that is deregistered under a message ends it"
	ends      = "a peer that goes away under a message ends it"
	lost      = "a requester that goes away moves nothing afterwards"
	hisFault  = "a device that fails loses its work, and its peer learns it"
)

// contract is what holds an engine to each sentence of provider.go.
var contract = []clause{
	{of: "Owner", says: "Owner is the thread that owns the data path of some guests.", because: word},
	{of: "Owner.Do", says: "Do runs fn on the owner's thread between two of its visits and returns when fn has returned, so that nothing the owner did before is still going on.", because: duty},
	{of: "Owner.Do", says: "On that thread itself it runs fn at once.", because: duty},

	{of: "Provider", says: "Provider is an engine: it carries out verbs, in software or on a host's device.", because: word},
	{of: "Provider.Name", says: "Name is the engine's name in logs and metrics, for example \"soft\".", promises: []string{"an engine says who it is and what it can do"}},
	{of: "Provider.QueryDevice", says: "QueryDevice returns what the engine can do, see ibv_query_device(3).", promises: []string{
		"an engine says who it is and what it can do", "what an engine says it can do is what it does", "sizes and types that the engine does not have are refused",
	}},
	{of: "Provider.QueryPort", says: "QueryPort returns the state of the engine's only port, see ibv_query_port(3).", promises: []string{
		"an engine says who it is and what it can do", "what an engine says it can do is what it does",
	}},
	{of: "Provider.NewPoller", says: "NewPoller gives an owner thread its share of the engine.", promises: []string{"a poller that is closed opens nothing, nor does an engine"}},
	{of: "Provider.NewPoller", says: "The owner calls Progress on it.", because: duty},
	{of: "Provider.Close", says: "Close ends the engine.", promises: []string{"a poller that is closed opens nothing, nor does an engine"}},
	{of: "Provider.Close", says: "All contexts and pollers are closed before.", because: duty},

	{of: "Poller", says: "Poller is the share of an engine that one owner thread drives.", because: word},
	{of: "Poller.OpenContext", says: "OpenContext opens the engine for a guest that the poller's owner owns.", because: shown},
	{of: "Poller.Progress", says: "Progress does the work that is due: transfers under way, retries, completions of a host's device.", promises: []string{
		"every operation moves every size exactly", "a peer that becomes ready is found by the next retry",
	}},
	{of: "Poller.Progress", says: "It does a bounded amount and returns whether it did any, and when it wants to be called again if nothing else happens: nanoseconds on the clock of now, 0 for never.", promises: []string{
		bounded, share, "a peer that does not answer ends in a retry error after all timeouts", "without a timeout a request waits for ever",
		"a message without a receive waits the responder's time, as often as the requester tries",
	}},
	{of: "Poller.Progress", says: "Owner thread only; it allocates nothing.", promises: []string{"the data path allocates nothing"}},
	{of: "Poller.Progress", says: "The owner calls it after it has posted and after each Owner.Do, before it waits for anything: only here does the engine learn the time, so that timers of what was posted start here, and SendReady, flushes after a Modify and the rest of long messages come from here.", promises: []string{
		"a timer starts when Progress tells the time", "a flush waits for Progress", "a device that was sent away is told to come again, and is then welcome", bounded,
	}},
	{of: "Poller.Close", says: "Close ends the poller.", promises: []string{"a poller that is closed opens nothing, nor does an engine"}},
	{of: "Poller.Close", says: "Its contexts are closed before.", because: duty},

	{of: "ContextConfig", says: "ContextConfig says for whom a context is opened.", because: word},
	{of: "ContextConfig.Guest", says: "Guest is the guest's name from the configuration, for errors.", promises: []string{"an address belongs to the guest that bound it first"}},
	{of: "ContextConfig.GIDTableLen", says: "GIDTableLen is the number of entries of the guest's GID table.", promises: []string{"addresses that are none are refused"}},
	{of: "ContextConfig.Limits", says: "Limits bounds what the guest may own; zero fields mean the engine's own limit.", promises: []string{"what is beyond a guest's limit is ENOMEM, and there is room again afterwards"}},
	{of: "Limits", says: "Limits bounds the objects of one guest.", because: word},
	{of: "Limits", says: "What is beyond a limit is refused with ENOMEM.", promises: []string{"what is beyond a guest's limit is ENOMEM, and there is room again afterwards"}},

	{of: "Context", says: "Context is an engine opened for one guest, see ibv_open_device(3).", because: word},
	{of: "Context", says: "All its methods are control calls.", promises: []string{"control calls of several guests and traffic do not disturb each other"}},
	{of: "Context", says: "Errors wrap an errno: ENOMEM for a limit, EINVAL for what this call got wrong, EOPNOTSUPP for what the engine can never do.", promises: []string{
		"what is beyond a guest's limit is ENOMEM, and there is room again afterwards", "objects of another guest, or that are gone, are refused",
		"sizes and types that the engine does not have are refused", "a closed context does nothing",
	}},
	{of: "Context", says: "A call that fails has changed nothing.", promises: []string{
		"a refused modify changes nothing", "objects of another guest, or that are gone, are refused", "a registration that makes no sense is refused",
		"addresses that are none are refused",
	}},
	{of: "Context.AllocPD", says: "AllocPD allocates a protection domain.", promises: []string{"memory that a local key does not give is not reached"}},
	{of: "Context.RegMR", says: "RegMR registers memory: attr says which addresses name it and what may be done to it.", promises: []string{
		"memory that a local key does not give is not reached", "memory that a remote key does not give is not reached", "a registration that makes no sense is refused",
		"keys are not used again soon",
	}},
	{of: "Context.CreateCQ", says: "CreateCQ creates a completion queue of at least cqe entries.", promises: []string{"sizes and types that the engine does not have are refused"}},
	{of: "Context.CreateQP", says: "CreateQP creates a queue pair in RESET.", promises: []string{truth}},
	{of: "Context.CreateQP", says: "The engine reports to h on the owner's thread.", promises: []string{order}},
	{of: "Context.BindGID", says: "BindGID makes gid the context's address number index.", promises: []string{
		"a connection lives only as long as both addresses", "an address number that nothing is bound to is refused",
	}},
	{of: "Context.BindGID", says: "An index in use is replaced; a GID that another context holds is EADDRINUSE.", promises: []string{
		"an address can be replaced, moved and given back", "an address belongs to the guest that bound it first",
	}},
	{of: "Context.UnbindGID", says: "UnbindGID removes the address number index if it is gid.", promises: []string{
		"an address can be replaced, moved and given back", "a connection lives only as long as both addresses",
	}},
	{of: "Context.UnbindGID", says: "ENOENT if it is not.", promises: []string{"an address can be replaced, moved and given back"}},
	{of: "Context.Close", says: "Close destroys what the context still holds.", promises: []string{"a closed context does nothing"}},
	{of: "Context.Close", says: "When it returns, the engine reaches none of the guest's memory.", promises: []string{ends, lost}},

	{of: "VisitWRs", says: "A visit is what is done for one queue pair before others have their turn, in a call of PostSend or in Progress.", promises: []string{
		"a short message does not wait for the end of long ones", "a queue pair that always has work starves nobody",
	}},
	{of: "VisitWRs", says: "It ends at the first of two bounds, so that it takes tens of microseconds at most, whatever the guest has posted.", promises: []string{bounded}},
	{of: "VisitWRs", says: "A call of Progress does no more than that for all queue pairs together.", promises: []string{share}},
	{of: "VisitWRs", says: "VisitWRs is the most work requests that a visit takes.", promises: []string{bounded}},
	{of: "VisitWRs", says: "A request of the send queue and the receive request that it uses up at the other end count as one; of requests that are flushed each counts.", promises: []string{bounded, share}},
	{of: "VisitBytes", says: "VisitBytes is the most payload that a visit moves, in either direction.", promises: []string{bounded}},
	{of: "VisitBytes", says: "A longer message goes on in later visits.", promises: []string{bounded, "a short message does not wait for the end of long ones"}},

	{of: "PD", says: "PD is a protection domain, see ibv_alloc_pd(3).", because: word},
	{of: "PD.Dealloc", says: "Dealloc frees it; EBUSY while an MR or a QP uses it.", promises: []string{busyObj}},

	{of: "MRAttr", says: "MRAttr describes a memory registration.", because: word},
	{of: "MRAttr.Memory", says: "Memory holds the bytes: a page list, or a guest's whole address space for a DMA region.", promises: []string{
		"scattered lists on both sides keep the order of the bytes", "a DMA region is named by guest addresses",
	}},
	{of: "MRAttr.Offset", says: "Offset is where in Memory the byte with address Start lies.", promises: []string{"every operation moves every size exactly"}},
	{of: "MRAttr.Start", says: "Start and Length are the addresses under which work requests name the region.", promises: []string{
		"memory that a local key does not give is not reached", "memory that a remote key does not give is not reached",
	}},
	{of: "MRAttr.Access", says: "Access says what may be done; bits that the engine does not know are ignored.", promises: []string{
		"memory that a local key does not give is not reached", "memory that a remote key does not give is not reached", "a registration that makes no sense is refused",
	}},
	{of: "MRAttr.DMA", says: "DMA marks the region that covers all of a guest's memory (Start 0, any length).", promises: []string{"a DMA region is named by guest addresses"}},
	{of: "MRAttr.DMA", says: "It is good as a local key only: its remote key matches nothing.", promises: []string{"a local key is no remote key"}},

	{of: "MR", says: "MR is a memory region, see ibv_reg_mr(3).", because: word},
	{of: "MR.Dereg", says: "Dereg removes it.", promises: []string{"memory that a remote key does not give is not reached"}},
	{of: "MR.Dereg", says: "When it returns, the engine reaches the region's bytes no more.", promises: []string{goneUnder}},
	{of: "CQ", says: "CQ is the engine's side of a completion queue.", because: word},
	{of: "CQ", says: "Completions reach the guest through QPHandler.", because: shown},
	{of: "CQ.Destroy", says: "Destroy frees it; EBUSY while a QP uses it.", promises: []string{busyObj}},

	{of: "QPInitAttr", says: "QPInitAttr are the attributes of ibv_create_qp(3).", because: word},
	{of: "QPInitAttr.SQSigAll", says: "SQSigAll asks for a completion of every send work request, as sq_sig_all does.", promises: []string{"a queue that signals everything does"}},

	{of: "QP", says: "QP is a queue pair of an engine.", because: word},
	{of: "QP.QPN", says: "QPN is the number that peers address: 24 bits, or 1 for the GSI QP.", promises: []string{
		"QP numbers are 24 bits, unique, and not used again soon", "the management layer of a guest can bring up its GSI queue pair", "a guest has one GSI queue pair",
	}},
	{of: "QP.Modify", says: "Modify is ibv_modify_qp(3): it applies the attributes that mask selects and moves to attr.QPState if the mask has QPStateMask.", promises: []string{
		truth, table, "the GSI queue pair's attribute masks are judged as the state table says", "rights can be taken away while a queue pair runs",
		"SQD stops new requests until RTS", "SQD says once that the queue is drained, if asked", "SQD lets the request under way finish first",
		"a queue pair that drains can fail or be reset", "RESET forgets everything silently", "a queue pair that was reset works again",
	}},
	{of: "QP.Modify", says: "On an error nothing has changed.", promises: []string{"a refused modify changes nothing", table}},
	{of: "QP.Modify", says: "Control call.", promises: []string{"control calls of several guests and traffic do not disturb each other"}},
	{of: "QP.Query", says: "Query returns the attributes as they are now, the state included.", promises: []string{truth, "a query tells the next sequence numbers"}},
	{of: "QP.Query", says: "Control call.", promises: []string{"control calls of several guests and traffic do not disturb each other"}},
	{of: "QP.Destroy", says: "Destroy ends the QP: no completion and no access to memory on its behalf after it returns.", promises: []string{
		"a destroyed queue pair completes nothing", ends, lost,
	}},
	{of: "QP.Destroy", says: "Control call.", promises: []string{"control calls of several guests and traffic do not disturb each other"}},
	{of: "QP.PostSend", says: "PostSend hands over work requests in order and returns how many were taken; those not taken are offered again after QPHandler.SendReady.", promises: []string{
		order, "a device that was sent away is told to come again, and is then welcome",
	}},
	{of: "QP.PostSend", says: "What is wrong with a request becomes its completion, never a return value.", promises: []string{
		"a request that no engine can carry out is a QP operation error", "a message over 2 GiB is a length error",
		"a request that the device refused completes as the device says, in order", "a wrong request stops the GSI queue pair's send queue only",
		"memory that a local key does not give is not reached", "an operation that the queue pair does not allow is an invalid request",
	}},
	{of: "QP.PostSend", says: "In ERR requests are taken and flushed; below RTS none is taken.", promises: []string{
		inFlush, late, "requests below RTS stay with the device", "the completion that says why comes before the flushed ones",
	}},
	{of: "QP.PostSend", says: "The engine copies what it needs before it returns.", promises: []string{order, "while a message waits for a receive, nothing restarts it early"}},
	{of: "QP.PostSend", says: "A call is a visit: see VisitWRs.", promises: []string{bounded}},
	{of: "QP.PostSend", says: "Owner thread only.", because: duty},
	{of: "QP.RecvPosted", says: "RecvPosted says that the receive queue may have new requests: a hint, needed only so that a QP in ERR flushes them.", promises: []string{late, "receives are taken one by one, when a message needs one"}},
	{of: "QP.RecvPosted", says: "Owner thread only.", because: duty},
	{of: "QP.Fail", says: "Fail moves the QP to ERR because the device can no longer serve it, for example after its completion queue overflowed: work that is posted is flushed, nothing else is completed.", promises: []string{
		"a device can fail a queue pair", "a device can fail a queue pair in its own callback",
	}},
	{of: "QP.Fail", says: "Owner thread only.", because: duty},

	{of: "QPHandler", says: "QPHandler is the device's side of a QP.", because: word},
	{of: "QPHandler", says: "The engine calls it on the owner's thread of the guest, with no lock held.", promises: []string{
		order, "a device may post from its own callback", "a device can fail a queue pair in its own callback",
	}},
	{of: "QPHandler", says: "An error from a method means that the guest's own memory failed (it is being reset): the engine drops the QP's work and treats the QP as unreachable.", promises: []string{hisFault}},
	{of: "QPHandler.PullRecv", says: "PullRecv takes the oldest posted receive request into wr (whose SGE storage is reused) and reports whether there was one.", promises: []string{
		order, "receives are taken one by one, when a message needs one", "a receive that the device refused fails on both sides",
	}},
	{of: "QPHandler.CompleteSend", says: "CompleteSend and CompleteRecv deliver a completion.", promises: []string{order, "a solicited message says so"}},
	{of: "QPHandler.CompleteSend", says: "wc is only valid during the call.", because: duty},
	{of: "QPHandler.CompleteSend", says: "They are called for signalled and for failed requests only.", promises: []string{"an unsignalled request completes silently"}},
	{of: "QPHandler.SendReady", says: "SendReady says that PostSend would take requests again.", promises: []string{"a device that was sent away is told to come again, and is then welcome"}},
	{of: "QPHandler.Event", says: "Event reports an asynchronous event of the QP, see ibv_get_async_event(3).", promises: []string{
		"a responder in RTR reports its first packet once", "SQD says once that the queue is drained, if asked", "memory that a remote key does not give is not reached",
	}},
}

// beyond are promises that no sentence of provider.go makes: they are what verbs themselves are, in the manual pages and
// the InfiniBand architecture.
var beyond = []string{
	"every operation moves every size within one guest",
	"entries without length name no memory",
	"entries behind the end of a message are not looked at",
	"both directions run at the same time",
	"a queue pair can be its own peer",
	"a message without bytes needs no remote key",
	"a message that is longer than the receive fails on both sides",
	"a receive into memory that its key does not give fails on both sides",
	"seven RNR retries are for ever",
	"every message has all its RNR retries",
	"a peer that started anew does not get the rest of a message",
	"memory that is unmapped is the fault of its owner",
	"a file that is truncated is the fault of its owner",
	"within one guest the side that failed is found too",
	"pages that cannot be written are the fault of their owner",
}
