// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"fmt"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

func (d *Device) modifyQP(req *Request, _ *Response) error {
	var r abi.CmdModifyQPReq
	if err := r.Decode(req[:]); err != nil {
		return err
	}
	q := d.qps.get(r.QPHandle)
	if q == nil {
		return noSuch("queue pair", r.QPHandle)
	}
	attr, mask := qpAttrFromGuest(&r.Attrs), hostverbs.AttrMask(r.AttrMask)
	if mask&hostverbs.QPStateMask == 0 {
		return d.modify(q, &attr, mask)
	}
	if err := q.mayMove(attr.QPState); err != nil {
		return fmt.Errorf("queue pair %d to %s: %w", q.handle, attr.QPState, err)
	}
	parked := q.parked // which commands alone change
	if attr.QPState == hostverbs.StateReset {
		d.worker.Do(func() { q.parked = true })
	}
	if err := d.modify(q, &attr, mask); err != nil {
		if !parked {
			d.do(q.unpark)
		}
		return err
	}
	same := !parked && q.reported == attr.QPState
	d.reportState(q, &attr, mask)
	if same {
		return nil // nothing was posted that could not be served before
	}
	if !d.do(func() { q.moved(attr.QPState) }) {
		return fmt.Errorf("queue pair %d: %w", q.handle, errFailed)
	}
	return nil
}

// mayMove says what the queue pair needs in a state and has lost. Without its memory, or a queue of others', it would look as
// if it worked, and complete nothing: it can only come to rest.
func (q *queuePair) mayMove(to hostverbs.QPState) (err error) {
	switch {
	case to == hostverbs.StateReset || to == hostverbs.StateErr:
	case q.pages.Revoked():
		err = guestmem.ErrRevoked
	default:
		q.dev.worker.Do(func() { err = q.lacks() })
	}
	return err
}

func (d *Device) modify(q *queuePair, attr *hostverbs.QPAttr, mask hostverbs.AttrMask) error {
	if err := q.engine.Modify(attr, mask); err != nil {
		return fmt.Errorf("queue pair %d: %w", q.handle, err)
	}
	return nil
}

// moved follows the engine into a new state: RESET forgets the rings' positions, as the guest does; in all others what was
// posted before may have to be served now. Runs inside Device.do.
func (q *queuePair) moved(to hostverbs.QPState) {
	if to == hostverbs.StateReset {
		q.restart()
		return
	}
	q.unpark()
}

// reportState tells the Observer of a new state, with the peer once there is one.
func (d *Device) reportState(q *queuePair, attr *hostverbs.QPAttr, mask hostverbs.AttrMask) {
	e := QPStateChanged{
		Guest: d.guest(), Handle: q.handle, QPN: q.engine.QPN(), Type: hostverbs.QPType(q.typ), From: q.reported,
		To: attr.QPState,
	}
	const peer = hostverbs.QPAV | hostverbs.QPDestQPN
	if mask&peer == peer { // what the mask does not select can be anything
		e.DestQPN, e.DGID = attr.DestQPNum, attr.AHAttr.DGID
	}
	q.reported = attr.QPState
	d.observe(e)
}

func (d *Device) queryQP(req *Request, resp *Response) error {
	var r abi.CmdQueryQPReq
	if err := r.Decode(req[:]); err != nil {
		return err
	}
	q := d.qps.get(r.QPHandle)
	if q == nil {
		return noSuch("queue pair", r.QPHandle)
	}
	d.worker.Do(q.settle)
	attr, err := q.engine.Query()
	if err != nil {
		return fmt.Errorf("queue pair %d: %w", q.handle, err)
	}
	a := abi.CmdQueryQPResp{Hdr: ack(abi.CmdQueryQP), Attrs: qpAttrToGuest(&attr)}
	a.Encode(resp[:])
	return nil
}
