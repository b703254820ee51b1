// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"errors"
	"time"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"github.com/pvrdmad/pvrdmad/ringbuf"
)

const (
	// sendBatch is how many work requests go to the engine in one call, batchBytes how many bytes they name at most if
	// they are several: the guest sees the completions of all of them at once.
	sendBatch  = 16
	batchBytes = 8 << 10
	// passShare is how much of a device's work is done before all others had their turn, a visit's worth, however many
	// queue pairs have some. A request is one share, or more if it is long or in many pieces: passShare of them are
	// hostverbs.VisitBytes at most.
	passShare = hostverbs.VisitWRs
	// crowdedBytes are a share instead of shareBytes while more than one device sends, since the others wait for less then.
	// crowdedSwitch is what it costs then to go from one queue pair to another, whose lines are in no cache. crowdedFor is how
	// long a device counts as one that sends, in ns.
	crowdedBytes  = shareBytes / 4
	crowdedSwitch = 2
	crowdedFor    = int64(100 * time.Millisecond)
	shareBytes    = hostverbs.VisitBytes / hostverbs.VisitWRs
	sharePiece    = 4
	// passLooks is how many queue pairs, completion queues and doorbells of a device are looked at in a pass, a few
	// microseconds. turnLooks are for each of its parts at least.
	passLooks = 256
	turnLooks = passShare
	// maxWQESize is a send work request with all its elements.
	maxWQESize = abi.SendWQEHdrSize + hostverbs.MaxSGE*abi.SGESize
)

// workQueue is a send or receive ring in guest memory that the worker empties.
type workQueue struct {
	// prod is the guest's index as last read, cons is ours. Worker.
	prod, cons uint32

	ring   ringbuf.Ring
	maxSGE uint32
	// base is where the first slot lies in the queue pair's pages, stride the size of a slot in bytes.
	base, stride uint64
	// prodAt and consAt are where the two indices lie.
	prodAt, consAt uint64
	// taken says that the queue is in Worker.emptied. Worker.
	taken bool
}

// queuePair is a queue pair of the guest: its rings here, its verbs state in the engine. What a sweep and a message look at
// stands together at its begin: a guest has thousands, more than the caches hold.
type queuePair struct {
	dev    *Device
	pages  *guestmem.Pages
	handle uint32
	// dead says that the guest's rings must not be looked at any more. Worker.
	dead bool
	// parked says the same for as long as the queue pair is in RESET, or on its way there: the guest sets its indices to 0
	// when it has been answered, and until then they are those of the time before. Nor is a parked queue pair failed. Worker.
	parked bool
	// queued says that it is in Device.ready; failing that it must go to the error state at its next turn. Worker.
	queued, failing bool
	engine          hostverbs.QP
	ahead           prefetcher // the same, nil if it is none
	sendCQ          *completionQueue
	sq, rq          workQueue
	recvCQ          *completionQueue
	// srq is where receives come from, nil if they have a ring in pages. What is said of rq is then not so.
	srq *sharedReceiveQueue
	ctx *userContext
	pd  *protectionDomain
	typ abi.QPType
	// told says that it was to go to the error state because a queue that it uses has failed. Worker.
	told bool
	// reported is the state that the Observer heard of last. Command goroutine.
	reported hostverbs.QPState
	pinned   uint32 // pages
	// at is where it stands in the context's list. Written inside Worker.Do.
	at int
}

var _ hostverbs.QPHandler = (*queuePair)(nil)

// rung serves a doorbell: the rings may have something new.
func (q *queuePair) rung(value uint32) {
	if q.dead || q.parked {
		return
	}
	if value&abi.UARQPSend != 0 {
		if d := q.dev; d.share <= 0 || d.looks <= 0 || d.ready.len() != 0 || d.crowded {
			q.later() // others wait, or will
		} else {
			q.serveSends()
		}
	}
	if value&abi.UARQPRecv != 0 && !q.dead && q.srq == nil {
		q.engine.RecvPosted()
	}
}

// hasNoRing reports whether a doorbell is for receives that the queue pair does not take from a ring of its own.
func (q *queuePair) hasNoRing(value uint32) bool { return value&abi.UARQPRecv != 0 && q.srq != nil }

// look is rung for a queue pair whose doorbell may have been hidden: most have nothing new, and cost two loads of one line.
func (q *queuePair) look() {
	if q.dead || q.parked {
		return
	}
	q.dev.looks--
	send, err := q.pages.Load32(txProdTail)
	if err != nil || send != q.sq.cons {
		q.rung(abi.UARQPSend)
	}
	if q.srq != nil {
		return
	}
	if recv, err := q.pages.Load32(rxProdTail); err == nil && recv != q.rq.prod && !q.dead {
		q.engine.RecvPosted()
	}
}

// pending reads the guest's index and returns how many requests wait, or what is wrong with it.
func (w *workQueue) pending(pages *guestmem.Pages) (uint32, GuestErrorReason, error) {
	prod, err := pages.Load32(w.prodAt)
	if err != nil {
		return 0, BadMemory, err
	}
	n, ok := w.ring.Pending(prod, w.cons)
	if !ok {
		return 0, BadRing, errBadIndex
	}
	w.prod = prod
	return n, 0, nil
}

// refresh reads the guest's index of a queue and returns how many requests wait in it. An index that is not valid ends
// the queue pair.
func (q *queuePair) refresh(w *workQueue) uint32 {
	n, reason, err := w.pending(q.pages)
	if err != nil {
		q.broken(reason, err)
	}
	return n
}

// consumed gives the slots up to cons back to the guest.
func (q *queuePair) consumed(w *workQueue) {
	if err := q.pages.Publish32(w.consAt, w.cons); err != nil {
		q.broken(BadMemory, err)
	}
}

// serveSends is a visit: it hands what waits in the send queue to the engine, as far as the device's share goes.
func (q *queuePair) serveSends() {
	d := q.dev
	d.looks--
	left := q.refresh(&q.sq)
	if left != 0 {
		d.served++
	}
	if left != 0 && d.unit == crowdedBytes && d.share < passShare {
		d.share -= crowdedSwitch
	}
	for first := true; left != 0 && !q.dead; first = false {
		before := d.share
		n, ok := q.gather(int(min(left, sendBatch)))
		if !ok {
			return
		}
		if n == 0 {
			q.waitOn(first && before > 0)
			return
		}
		took := q.engine.PostSend(d.sends[:n])
		d.breaches(took)
		q.sq.cons = q.sq.ring.Add(q.sq.cons, uint32(took))
		if took != 0 && !q.dead {
			d.live.SendWQEs += uint64(took)
			q.consumed(&q.sq) // before the completions are seen: who sees one may post into its slot
		}
		d.showBatch(before-d.share > n)
		if took < n {
			return // SendReady brings us back
		}
		left -= uint32(took)
	}
}

// showBatch shows completions: those of the first queue pair of a visit or after a word at once, since most have one, and of
// others when they are a batch's worth or some took long. The rest is shown at the end of the visit.
func (d *Device) showBatch(long bool) {
	if long || d.shownAt == passShare || d.shownAt-d.share >= sendBatch {
		d.shownAt = d.share
		d.worker.show()
	}
}

// gather decodes up to n send requests into Device.sends, as far as the device's share goes, and returns how many. One that
// needs more than what is left waits for the next pass, unless it is the pass's first: it may need more than any pass has.
func (q *queuePair) gather(n int) (int, bool) {
	d := q.dev
	slot, bytes := q.sq.cons, uint64(0)
	q.prefetch(&q.sq, uint32(n))
	for i := range n {
		if d.share <= 0 || bytes > batchBytes {
			return i, true
		}
		wr := &d.sends[i]
		wrong, err := q.decodeSend(slot, wr)
		if err != nil {
			q.broken(BadMemory, err)
			return 0, false
		}
		d.wrong[i] = wrong
		length := hostverbs.Length(wr.SGE[:wr.NumSGE])
		c := cost(length, int(wr.NumSGE)+int(wr.Reg.Pages)/fastRegPiece, d.unit)
		if c > d.share && d.share < passShare {
			d.share = 0
			return i, true
		}
		d.share -= c
		bytes += length
		slot = q.sq.ring.Inc(slot)
	}
	return n, true
}

// prefetch asks for the next n requests of a queue, which the guest has just written.
func (q *queuePair) prefetch(w *workQueue, n uint32) {
	slot := w.ring.Slot(w.cons)
	first := min(n, w.ring.N-slot)
	q.pages.Prefetch(w.base+uint64(slot)*w.stride, uint64(first)*w.stride)
	if first < n {
		q.pages.Prefetch(w.base, uint64(n-first)*w.stride)
	}
}

// cost is what a request of so many bytes in so many pieces takes of its device's share, of which one is unit bytes.
func cost(bytes uint64, pieces int, unit uint64) int {
	if bytes <= unit && pieces < 2*sharePiece {
		return 1 // most are short, and a division takes as long as all else here
	}
	bytes = min(bytes, hostverbs.VisitBytes) // the rest of it the engine moves in visits of its own
	return max(1, int((bytes+unit-1)/unit), pieces/sharePiece)
}

// PullRecv implements hostverbs.QPHandler. Memory that was unmapped ends the queue pair in its turn; memory that fails ends the
// guest.
func (q *queuePair) PullRecv(wr *hostverbs.RecvWR) (ok bool, err error) {
	defer q.dev.noteFault(&err)
	defer q.dev.worker.domain.Recover(&err)
	if q.dead || q.parked {
		return false, nil
	}
	if q.rq.prod == q.rq.cons && q.refresh(&q.rq) == 0 {
		return false, nil
	}
	if err := q.dev.decodeRecv(q.pages, &q.rq, wr); err != nil {
		q.broken(BadMemory, err)
		return false, faultOf(err)
	}
	q.rq.cons = q.rq.ring.Inc(q.rq.cons)
	q.dev.live.RecvWQEs++
	q.dev.worker.taken(&q.rq, q)
	return true, nil
}

func (q *queuePair) device() *Device { return q.dev }

// giveBack implements receiveRing.
func (q *queuePair) giveBack() {
	q.rq.taken = false
	if !q.dead && !q.parked {
		q.consumed(&q.rq)
	}
}

// CompleteSend implements hostverbs.QPHandler.
func (q *queuePair) CompleteSend(wc *hostverbs.WC) error { return q.complete(q.sendCQ, wc) }

// CompleteRecv implements hostverbs.QPHandler.
func (q *queuePair) CompleteRecv(wc *hostverbs.WC) error { return q.complete(q.recvCQ, wc) }

func (q *queuePair) complete(c *completionQueue, wc *hostverbs.WC) error {
	var e abi.CQE
	q.encodeCompletion(&e, wc)
	return c.push(&e, wc.Solicited || wc.Status != hostverbs.WCSuccess)
}

// SendReady implements hostverbs.QPHandler.
func (q *queuePair) SendReady() { q.later() }

// Event implements hostverbs.QPHandler.
func (q *queuePair) Event(e hostverbs.EventType) {
	var err error
	defer q.dev.noteFault(&err)
	defer q.dev.worker.domain.Recover(&err)
	if typ, ok := asyncEvent(e); ok && q.tells(e) {
		q.dev.asyncEvent(typ, q.handle)
	}
}

// tells says whether the guest is to hear of an event. Of a queue pair that has ended it hears no more than that the queue pair
// takes nothing from its shared receive queue: the guest's kernel waits for that before it destroys the queue pair.
func (q *queuePair) tells(e hostverbs.EventType) bool {
	return !q.dead || e == hostverbs.EventQPLastWQEReached && q.dev.qps.get(q.handle) == q
}

// faultOf returns what an engine is to hear of an error of a queue's memory: it drops the work of a guest whose memory failed,
// and that guest is reset. Memory that was unmapped costs one queue, and what is left of the others' work is flushed.
func faultOf(err error) error {
	var fault *guestmem.FaultError
	if err != nil && errors.As(err, &fault) {
		return err
	}
	return nil
}

// noteFault is deferred by what the engine calls: if this guest's memory failed, the guest fails with it, whoever the
// engine was at work for.
func (d *Device) noteFault(errp *error) {
	if *errp == nil {
		return // before fault is allocated: this is the way of every message
	}
	var fault *guestmem.FaultError
	if errors.As(*errp, &fault) {
		d.fail(fault)
	}
}

// broken ends a queue pair whose rings cannot be used: the guest is told, and the engine flushes what it holds.
func (q *queuePair) broken(r GuestErrorReason, err error) {
	if q.dead {
		return
	}
	q.dead = true
	q.dev.violation(r, err)
	q.dev.asyncEvent(abi.EventQPFatal, q.handle)
	q.failing = true
	q.enqueue()
}

// failLater moves the queue pair to the error state at its next turn: the engine may be in the middle of a call.
func (q *queuePair) failLater() {
	q.failing = true
	q.enqueue()
}

// settle moves the queue pair to the error state now if it is to go there: a guest that was told of an error of its completion
// queue may ask. Runs inside Worker.Do.
func (q *queuePair) settle() {
	if !q.parked && (q.failing || q.orphaned()) {
		q.failing = false
		q.engine.Fail()
	}
}

// serveReady gives the queue pairs that wait for one a turn, the one that has waited longest first, until the device has
// had its share of the pass or each had one.
func (d *Device) serveReady() bool {
	n := d.ready.len()
	if n == 0 {
		return false
	}
	for ; n > 0 && d.share > 0 && d.looks > 0; n-- {
		if d.crowded {
			d.prefetchTurns(n)
		}
		d.ready.pop().turn()
	}
	return true
}

// turn is what a queue pair waited for.
func (q *queuePair) turn() {
	q.queued = false
	if q.parked {
		return
	}
	if q.failing {
		q.failing = false
		q.dev.share--
		q.engine.Fail()
	}
	if !q.dead {
		q.serveSends()
	}
}

// unpark takes the queue pair into service: it has left RESET, or did not get there. Runs inside Device.do.
func (q *queuePair) unpark() {
	q.parked = false
	if q.failing {
		q.enqueue()
	}
	q.rung(abi.UARQPSend | abi.UARQPRecv)
}

// restart forgets the rings' positions, as the guest does when the queue pair has gone to RESET. Runs inside Worker.Do.
func (q *queuePair) restart() {
	q.parked = true
	q.sq.prod, q.sq.cons = 0, 0
	q.rq.prod, q.rq.cons = 0, 0
	q.failing, q.told = false, false
	q.dead = q.pages.Revoked()
}

// release lets go of the queue pair's memory. Runs inside Worker.Do.
func (q *queuePair) release() {
	q.dead = true
	q.pages.Release()
}
