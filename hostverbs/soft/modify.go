// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// Modify is ibv_modify_qp(3): all of it or nothing.
func (q *qp) Modify(attr *hostverbs.QPAttr, mask hostverbs.AttrMask) error {
	if q.gone {
		return q.ctx.errf("modify QP %#x: it does not exist: %w", q.num, unix.EINVAL)
	}
	var err error
	q.ctx.control(func() { err = q.modify(attr, mask) })
	if err != nil {
		return q.ctx.errf("QP %#x: %w", q.num, err)
	}
	return nil
}

// Query returns the attributes as they are now.
func (q *qp) Query() (hostverbs.QPAttr, error) {
	if q.gone {
		return hostverbs.QPAttr{}, q.ctx.errf("query QP %#x: it does not exist: %w", q.num, unix.EINVAL)
	}
	var a hostverbs.QPAttr
	q.pl.owner.Do(func() {
		a = q.attr
		a.CurQPState = a.QPState
		a.SQDraining = q.draining
	})
	return a, nil
}

// modify is Modify on the owner's thread.
func (q *qp) modify(attr *hostverbs.QPAttr, mask hostverbs.AttrMask) error {
	cur := q.attr.QPState
	next, err := hostverbs.CheckModify(q.typ, cur, attr, mask, &hostverbs.PortLimits{
		Ports: 1, ActiveMTU: activeMTU, PKeys: 1, GIDs: len(q.ctx.gids),
		MaxRdAtomic: maxRdAtom, MaxDestRdAtomic: maxRdAtom, GRHRequired: true,
	})
	if err != nil {
		return err
	}
	if mask&hostverbs.QPAV != 0 && !q.ctx.gids[attr.AHAttr.SGIDIndex].bound {
		return fmt.Errorf("modify %s QP to %s: no GID is bound as number %d: %w", q.typ, next, attr.AHAttr.SGIDIndex, unix.EINVAL)
	}
	if q.draining && next != hostverbs.StateErr && next != hostverbs.StateReset {
		return fmt.Errorf("modify %s QP to %s: the send queue is still draining: %w", q.typ, next, unix.EINVAL)
	}
	if next == hostverbs.StateReset {
		q.reset()
		return nil
	}
	if next == hostverbs.StateSQD && cur != next {
		q.attr.EnSQDAsyncNotify = false // each move asks for its event anew
	}
	q.apply(attr, mask)
	q.enter(cur, next)
	return nil
}

// apply takes over the attributes that the mask selects.
func (q *qp) apply(a *hostverbs.QPAttr, mask hostverbs.AttrMask) {
	set := func(bit hostverbs.AttrMask, assign func(*hostverbs.QPAttr)) {
		if mask&bit != 0 {
			assign(&q.attr)
		}
	}
	if mask&(hostverbs.QPAV|hostverbs.QPDestQPN) != 0 {
		q.unlearn() // who is meant no more
	}
	set(hostverbs.QPEnSQDAsyncNotify, func(t *hostverbs.QPAttr) { t.EnSQDAsyncNotify = a.EnSQDAsyncNotify })
	set(hostverbs.QPAccessFlagsMask, func(t *hostverbs.QPAttr) { t.QPAccessFlags = a.QPAccessFlags })
	set(hostverbs.QPPKeyIndex, func(t *hostverbs.QPAttr) { t.PKeyIndex = a.PKeyIndex })
	set(hostverbs.QPPort, func(t *hostverbs.QPAttr) { t.PortNum = a.PortNum })
	set(hostverbs.QPQKey, func(t *hostverbs.QPAttr) { t.QKey = a.QKey })
	set(hostverbs.QPAV, func(t *hostverbs.QPAttr) { t.AHAttr = a.AHAttr })
	set(hostverbs.QPPathMTU, func(t *hostverbs.QPAttr) { t.PathMTU = a.PathMTU })
	set(hostverbs.QPTimeout, func(t *hostverbs.QPAttr) { t.Timeout = a.Timeout })
	set(hostverbs.QPRetryCnt, func(t *hostverbs.QPAttr) { t.RetryCnt = a.RetryCnt })
	set(hostverbs.QPRNRRetry, func(t *hostverbs.QPAttr) { t.RNRRetry = a.RNRRetry })
	set(hostverbs.QPRQPSN, func(t *hostverbs.QPAttr) { t.RQPSN = hostverbs.MaskPSN(a.RQPSN) })
	set(hostverbs.QPSQPSN, func(t *hostverbs.QPAttr) { t.SQPSN = hostverbs.MaskPSN(a.SQPSN) })
	set(hostverbs.QPMaxQPRdAtomic, func(t *hostverbs.QPAttr) { t.MaxRdAtomic = a.MaxRdAtomic })
	set(hostverbs.QPMaxDestRdAtomic, func(t *hostverbs.QPAttr) { t.MaxDestRdAtomic = a.MaxDestRdAtomic })
	set(hostverbs.QPMinRNRTimer, func(t *hostverbs.QPAttr) { t.MinRNRTimer = a.MinRNRTimer })
	set(hostverbs.QPDestQPN, func(t *hostverbs.QPAttr) { t.DestQPNum = a.DestQPNum })
	set(hostverbs.QPPathMigState, func(t *hostverbs.QPAttr) { t.PathMigState = a.PathMigState })
	q.readdress()
	q.epoch++
}

// enter does what belongs to reaching a state other than RESET.
func (q *qp) enter(cur, next hostverbs.QPState) {
	if q.dead {
		return // only RESET or the end revives a queue pair whose device failed
	}
	switch {
	case next == hostverbs.StateErr:
		q.fail()
		return
	case next == hostverbs.StateSQD && cur != hostverbs.StateSQD:
		q.attr.QPState = next
		q.draining = true
		if !q.sq.busy {
			q.drained()
		}
		return
	}
	q.attr.QPState = next
	q.offer()
}

// reset forgets everything but what the queue pair was created with.
func (q *qp) reset() {
	q.silence()
	q.dead = false
	q.established, q.toldLast = false, false
	q.incarnation = q.ctx.eng.incarnate()
	q.attr = hostverbs.QPAttr{Cap: q.attr.Cap}
}

// drained reports once that a send queue in SQD has nothing under way any more.
func (q *qp) drained() {
	if !q.draining || q.sq.busy {
		return
	}
	q.draining = false
	if q.attr.QPState == hostverbs.StateSQD && q.attr.EnSQDAsyncNotify {
		q.h.Event(hostverbs.EventSQDrained)
	}
}
