// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/hostverbs/gsi"
)

// todo is what a queue pair waits for its next turn with.
type todo uint8

const (
	// todoRun: go on with the send request that is under way.
	todoRun todo = 1 << iota
	// todoArm: start the timer that the send request waits for.
	todoArm
	// todoFlush: the queue pair is in ERR, flush what is posted.
	todoFlush
	// todoReady: tell the device that PostSend takes requests again.
	todoReady
)

// qp is a queue pair.
type qp struct {
	// Set when it is created.
	ctx            *context
	pl             *poller
	pd             *pd
	sendCQ, recvCQ *cq
	srq            *srq // nil if it has a receive queue of its own
	// recvPD is the domain of the memory that receives name, maxRecvSGE how many entries each has at most.
	recvPD     *pd
	maxRecvSGE uint32
	h          hostverbs.QPHandler
	num        uint32
	typ        hostverbs.QPType
	sigAll     bool
	// gone belongs to control calls: destroyed, or its context closed.
	gone bool

	// Everything below belongs to the owner's thread.

	// dead: the device's callbacks failed, or the queue pair is destroyed. Nothing is done for it any more.
	dead bool
	// running: one of its requests is being carried out; what comes in from a callback has to wait.
	running  bool
	draining bool
	// established: the communication established event was reported.
	established bool
	// toldLast: the event was reported that nothing more is taken from the shared receive queue.
	toldLast bool
	listed   bool
	todo     todo
	// epoch changes with everything that a peer looks at before it sends; incarnation, which no other has, when the queue
	// pair starts anew. admitted counts messages that were let in.
	epoch       uint32
	admitted    uint32
	incarnation uint64
	turn        links[*qp]

	// attr are the attributes as they are now, the state and the next sequence numbers included.
	attr hostverbs.QPAttr

	// What each message needs is above and in the first part of sq: see prefetch_unsafe.go.
	wc hostverbs.WC
	sq sendQueue
	rq recvQueue
}

// CreateQP creates a queue pair in RESET. The engine has RC, UC and UD, and one GSI for each guest.
func (c *context) CreateQP(p hostverbs.PD, init *hostverbs.QPInitAttr, h hostverbs.QPHandler) (hostverbs.QP, error) {
	q, err := c.newQP(p, init, h)
	if err != nil {
		return nil, c.errf("create %s QP: %w", init.Type, err)
	}
	q.pd.users++
	q.sendCQ.users++
	q.recvCQ.users++
	if q.srq != nil {
		q.srq.users++
	}
	c.qps[q.num] = q
	c.pl.owner.Do(func() {
		q.incarnation = q.ctx.eng.incarnate()
		if q.num == gsi.QPN {
			c.gsi = q
		} else {
			c.reachable[q.num] = q
		}
	})
	return q, nil
}

// newQP checks what a create asks for, and makes the object.
func (c *context) newQP(p hostverbs.PD, init *hostverbs.QPInitAttr, h hostverbs.QPHandler) (*qp, error) {
	d, err := c.ownPD(p)
	if err != nil {
		return nil, err
	}
	scq, err := c.ownCQ(init.SendCQ)
	if err != nil {
		return nil, fmt.Errorf("send queue: %w", err)
	}
	rcq, err := c.ownCQ(init.RecvCQ)
	if err != nil {
		return nil, fmt.Errorf("receive queue: %w", err)
	}
	if err := c.checkType(init.Type); err != nil {
		return nil, err
	}
	shared, err := c.ownSRQ(init.SRQ)
	if err != nil {
		return nil, err
	}
	limits, recvPD, maxRecvSGE := init.Cap, d, init.Cap.MaxRecvSGE
	if shared != nil {
		limits.MaxRecvWR, limits.MaxRecvSGE = 0, 0
		recvPD, maxRecvSGE = shared.pd, shared.maxSGE
	}
	if err := checkCap(&limits); err != nil {
		return nil, err
	}
	if h == nil {
		return nil, fmt.Errorf("no handler: %w", unix.EINVAL)
	}
	if len(c.qps) >= c.limits.MaxQP {
		return nil, fmt.Errorf("%d queue pairs, the limit: %w", len(c.qps), unix.ENOMEM)
	}
	q := &qp{
		ctx: c, pl: c.pl, pd: d, sendCQ: scq, recvCQ: rcq, srq: shared, h: h,
		recvPD: recvPD, maxRecvSGE: maxRecvSGE,
		num: gsi.QPN, typ: init.Type, sigAll: init.SQSigAll,
		attr: hostverbs.QPAttr{Cap: limits},
	}
	q.sq.msg = &q.sq.own
	q.sq.timer.F = func(int64) { q.want(todoRun) }
	if q.typ != hostverbs.QPTypeGSI {
		if q.num, err = c.takeQPN(init.QPN); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// checkType says whether the guest can have a queue pair of a type.
func (c *context) checkType(t hostverbs.QPType) error {
	switch t {
	case hostverbs.QPTypeRC, hostverbs.QPTypeUC, hostverbs.QPTypeUD:
		return nil
	case hostverbs.QPTypeGSI:
		if c.gsi != nil {
			return fmt.Errorf("the guest has its GSI QP: %w", unix.EBUSY)
		}
		return nil
	}
	return fmt.Errorf("the soft engine has RC, UC, UD and GSI: %w", unix.EOPNOTSUPP)
}

// checkCap compares the sizes asked for with the engine's limits.
func checkCap(c *hostverbs.QPCap) error {
	switch {
	case c.MaxSendWR > maxQPWR || c.MaxRecvWR > maxQPWR:
		return fmt.Errorf("queues of %d and %d requests (at most %d): %w", c.MaxSendWR, c.MaxRecvWR, maxQPWR, unix.EINVAL)
	case c.MaxSendSGE > hostverbs.MaxSGE || c.MaxRecvSGE > hostverbs.MaxSGE:
		return fmt.Errorf("requests of %d and %d SGEs (at most %d): %w", c.MaxSendSGE, c.MaxRecvSGE, hostverbs.MaxSGE, unix.EINVAL)
	case c.MaxInlineData > 0:
		return fmt.Errorf("inline data of %d bytes (none possible): %w", c.MaxInlineData, unix.EINVAL)
	}
	return nil
}

// QPN returns the queue pair's number.
func (q *qp) QPN() uint32 { return q.num }

// Destroy ends the queue pair. Peers see loss.
func (q *qp) Destroy() error {
	if q.gone {
		return q.ctx.errf("destroy QP %#x: it does not exist: %w", q.num, unix.EINVAL)
	}
	q.gone = true
	q.ctx.control(q.detach)
	q.ctx.eng.giveQPN(q.num)
	q.pd.users--
	q.sendCQ.users--
	q.recvCQ.users--
	if q.srq != nil {
		q.srq.users--
	}
	delete(q.ctx.qps, q.num)
	return nil
}

// detach takes the queue pair out of everything that could still reach it. Owner's thread.
func (q *qp) detach() {
	q.silence()
	q.dead = true
	q.attr.QPState = hostverbs.StateReset
	if q.num == gsi.QPN {
		q.ctx.gsi = nil
	} else {
		delete(q.ctx.reachable, q.num)
	}
}

// silence forgets all work without completing it, and makes peers look again. Owner's thread.
func (q *qp) silence() {
	q.sq.end(q)
	q.sq.starved = false
	q.rq.have = false
	q.draining = false
	q.todo = 0
	q.pl.active.remove(q)
	q.sq.to = nil
	q.epoch++
	q.unlearn()
}

// unlearn has the queue pair at the other end forget this one: it would look again before it sends, but until then it would
// keep a guest in memory that is gone. Only the one that this one means can have found it, see resolve.
func (q *qp) unlearn() {
	c := q.pl.gids[q.attr.AHAttr.DGID]
	if c == nil || c.pl != q.pl {
		return
	}
	p := c.reachable[q.attr.DestQPNum]
	if p == nil {
		return
	}
	if p.sq.to == q {
		p.sq.to = nil
	}
}

// drop is silence for a queue pair whose device failed: peers find nobody.
func (q *qp) drop() {
	q.silence()
	q.dead = true
	q.attr.QPState = hostverbs.StateErr
}

// want asks for a turn in the next Progress.
func (q *qp) want(t todo) {
	if q.dead {
		return
	}
	q.todo |= t
	if !q.listed {
		q.pl.active.push(q)
	}
}

// visit is the queue pair's turn. It says whether that brought anything on: to try once more in vain, or to start a timer,
// does not, or an owner would never sleep while a peer has no receive.
func (q *qp) visit(now int64, b *budget) bool {
	did := q.todo&^(todoRun|todoArm) != 0
	q.running = true
	if q.take(todoFlush) && q.flush(b) {
		q.want(todoFlush)
	}
	if q.take(todoRun) {
		q.resume(b)
		did = did || q.sq.waiting == waitNone
	}
	if q.take(todoArm) {
		q.pl.timers.Arm(&q.sq.timer, now+q.sq.delay)
	}
	q.running = false
	q.offer()
	if q.take(todoReady) {
		q.sq.starved = false
		q.h.SendReady()
	}
	if q.todo == 0 {
		q.pl.active.remove(q)
	}
	return did
}

// take takes one thing off the list of what there is to do, if it is there.
func (q *qp) take(t todo) bool {
	had := q.todo&t != 0
	q.todo &^= t
	return had
}

// offer tells the device to come again if it was sent away and need not have been now.
func (q *qp) offer() {
	if q.sq.starved && q.accepts() {
		q.want(todoReady)
	}
}

// accepts says whether PostSend would take a request.
func (q *qp) accepts() bool {
	switch q.attr.QPState {
	case hostverbs.StateRTS:
		return !q.sq.busy && q.sq.waiting == waitNone
	case hostverbs.StateErr, hostverbs.StateSQE:
		return !q.sq.away
	}
	return false
}
