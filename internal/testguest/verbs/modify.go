// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
)

// Path leads from one queue pair to another.
type Path struct {
	// DGID is the peer's GID, SGIDIndex the place of ours in the guest's table.
	DGID      [16]byte
	SGIDIndex uint8
	DMAC      [6]byte
	// QPN is the peer's.
	QPN uint32
	// PSN is where the peer's packets begin, OwnPSN where ours do: 24 bits.
	PSN, OwnPSN uint32
}

// Tuning is what a connection is made with beside its path.
type Tuning struct {
	// Access is what the peer may do: PVRDMA_ACCESS_*.
	Access uint32
	// MTU is PVRDMA_MTU_*; Timeout, MinRNRTimer are the codes of ibv_modify_qp(3).
	MTU                                      uint32
	Timeout, RetryCnt, RNRRetry, MinRNRTimer uint8
	RDAtomic, DestRDAtomic                   uint8
}

// Attr begins a set of attributes. What is not set holds what a kernel's stack might hold.
func (q *QP) Attr() Attr {
	v := q.l.New("pvrdma_qp_attr")
	for i := range v.Bytes() {
		v.Bytes()[i] = 0xee
	}
	return Attr{View: v, l: q.l}
}

// Attr is a set of attributes and the mask that selects them.
type Attr struct {
	layout.View
	Mask uint32
	l    *layout.Layout
}

// With sets an attribute and selects it: field is of struct pvrdma_qp_attr, mask the end of PVRDMA_QP_<mask>.
func (a Attr) With(mask, field string, v uint64) Attr {
	a.Set(field, v)
	a.Mask |= a.l.Const("PVRDMA_QP_" + mask)
	return a
}

// WithState selects the state to go to: the end of PVRDMA_QPS_<state>.
func (a Attr) WithState(state string) Attr {
	return a.With("STATE", "qp_state", uint64(a.l.Const("PVRDMA_QPS_"+state)))
}

// WithPath sets the address of the peer.
func (a Attr) WithPath(p Path) Attr {
	clear(a.Slice("ah_attr"))
	a.SetBytes("ah_attr.grh.dgid", p.DGID[:]).Set("ah_attr.grh.sgid_index", uint64(p.SGIDIndex)).
		Set("ah_attr.grh.hop_limit", 64).Set("ah_attr.port_num", 1).SetBytes("ah_attr.dmac", p.DMAC[:]).
		Set("ah_attr.ah_flags", uint64(a.l.Const("PVRDMA_AH_GRH")))
	a.Mask |= a.l.Const("PVRDMA_QP_AV")
	return a
}

// State is the state as the driver caches it.
func (q *QP) State() uint32 {
	q.stateMu.Lock()
	defer q.stateMu.Unlock()
	return q.state
}

// Modify changes the queue pair as pvrdma_modify_qp does, without the driver's checks: the cached state changes before
// the command and stays changed if it fails; a queue pair in RESET is not told to go there.
func (q *QP) Modify(a Attr) error {
	reset := q.l.Const("PVRDMA_QPS_RESET")
	q.stateMu.Lock()
	next := q.state
	if a.Mask&q.l.Const("PVRDMA_QP_STATE") != 0 {
		next = a.Get32("qp_state")
	}
	skip := q.state == reset && next == reset
	q.state = next
	q.stateMu.Unlock()
	if skip {
		return nil
	}
	if err := q.PD.Ctx.Dev.ModifyQP(q.Handle, a.Mask, a.View); err != nil {
		return err
	}
	if next == reset {
		q.afterReset()
	}
	return nil
}

// afterReset is what both sides of the guest do once the device has reset the queue pair.
func (q *QP) afterReset() {
	q.Init.RecvCQ.clean(q.Handle)
	q.Init.SendCQ.clean(q.Handle)
	for _, w := range []*workQueue{&q.sq, &q.rq} {
		w.mu.Lock()
		w.ring.SetProd(0)
		w.ring.SetCons(0)
		w.mu.Unlock()
	}
}

// Query asks the device for the attributes; the driver takes the state from the answer.
func (q *QP) Query() (layout.View, error) {
	v, err := q.PD.Ctx.Dev.QueryQP(q.Handle, ^uint32(0))
	if err != nil {
		return v, err
	}
	q.stateMu.Lock()
	q.state = v.Get32("qp_state")
	q.stateMu.Unlock()
	return v, nil
}

// ToInit takes an RC queue pair from RESET to INIT.
func (q *QP) ToInit(t Tuning) error {
	return q.Modify(q.Attr().WithState("INIT").With("PKEY_INDEX", "pkey_index", 0).With("PORT", "port_num", 1).
		With("ACCESS_FLAGS", "qp_access_flags", uint64(t.Access)))
}

// ToRTR makes an RC queue pair ready to receive.
func (q *QP) ToRTR(p Path, t Tuning) error { return q.Modify(q.RTRAttr(p, t)) }

// RTRAttr are the attributes that ToRTR sets.
func (q *QP) RTRAttr(p Path, t Tuning) Attr {
	return q.Attr().WithState("RTR").WithPath(p).With("PATH_MTU", "path_mtu", uint64(t.MTU)).
		With("DEST_QPN", "dest_qp_num", uint64(p.QPN)).With("RQ_PSN", "rq_psn", uint64(p.PSN)).
		With("MAX_DEST_RD_ATOMIC", "max_dest_rd_atomic", uint64(t.DestRDAtomic)).
		With("MIN_RNR_TIMER", "min_rnr_timer", uint64(t.MinRNRTimer))
}

// ToRTS makes an RC queue pair ready to send.
func (q *QP) ToRTS(p Path, t Tuning) error { return q.Modify(q.RTSAttr(p, t)) }

// RTSAttr are the attributes that ToRTS sets.
func (q *QP) RTSAttr(p Path, t Tuning) Attr {
	return q.Attr().WithState("RTS").With("TIMEOUT", "timeout", uint64(t.Timeout)).
		With("RETRY_CNT", "retry_cnt", uint64(t.RetryCnt)).With("RNR_RETRY", "rnr_retry", uint64(t.RNRRetry)).
		With("SQ_PSN", "sq_psn", uint64(p.OwnPSN)).
		With("MAX_QP_RD_ATOMIC", "max_rd_atomic", uint64(t.RDAtomic))
}

// ToErr moves the queue pair to the error state.
func (q *QP) ToErr() error { return q.Modify(q.Attr().WithState("ERR")) }

// Reset moves the queue pair to RESET.
func (q *QP) Reset() error { return q.Modify(q.Attr().WithState("RESET")) }

// AV returns an address vector for datagrams: struct pvrdma_av.
func (p *PD) AV(path Path) *layout.View {
	v := p.Ctx.l.New("pvrdma_av")
	v.Set("port_pd", uint64(p.Handle)|1<<24).SetBytes("dgid", path.DGID[:]).
		Set("src_path_bits", 0x80).Set("gid_index", uint64(path.SGIDIndex)).Set("hop_limit", 64).
		SetBytes("dmac", path.DMAC[:])
	return &v
}
