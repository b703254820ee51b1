// SPDX-License-Identifier: Apache-2.0

package inproc

import "github.com/pvrdmad/pvrdmad/internal/testguest/layout"

// Peer is whom a queue pair talks to.
type Peer struct {
	GID []byte
	QPN uint32
}

// firstPSN is where all these guests begin to count their packets.
const firstPSN = 7

// Mask returns the bits of some attributes: PVRDMA_QP_<name>.
func (g *Guest) Mask(attrs ...string) uint64 {
	m := uint64(0)
	for _, a := range attrs {
		m |= uint64(g.Const("PVRDMA_QP_" + a))
	}
	return m
}

// modify begins a modify to a state: PVRDMA_QPS_<state>.
func (g *Guest) modify(qp uint32, state string, attrs ...string) layout.View {
	return g.Request("modify_qp").Set("qp_handle", uint64(qp)).Set("attr_mask", g.Mask(append(attrs, "STATE")...)).
		Set("attrs.qp_state", uint64(g.Const("PVRDMA_QPS_"+state)))
}

// ToInit is the command that takes a queue pair from RESET to INIT.
func (g *Guest) ToInit(qp uint32) layout.View {
	return g.modify(qp, "INIT", "PKEY_INDEX", "PORT", "ACCESS_FLAGS").Set("attrs.port_num", 1).
		Set("attrs.qp_access_flags", uint64(g.Const("PVRDMA_ACCESS_REMOTE_WRITE")|g.Const("PVRDMA_ACCESS_REMOTE_READ")|
			g.Const("PVRDMA_ACCESS_REMOTE_ATOMIC")))
}

// ToRTR is the command that takes a queue pair from INIT to ready to receive.
func (g *Guest) ToRTR(qp uint32, p Peer) layout.View {
	return g.modify(qp, "RTR", "AV", "PATH_MTU", "DEST_QPN", "RQ_PSN", "MAX_DEST_RD_ATOMIC", "MIN_RNR_TIMER").
		Set("attrs.path_mtu", uint64(g.Const("PVRDMA_MTU_1024"))).Set("attrs.dest_qp_num", uint64(p.QPN)).
		Set("attrs.rq_psn", firstPSN).Set("attrs.max_dest_rd_atomic", 1).Set("attrs.min_rnr_timer", 12).
		SetBytes("attrs.ah_attr.grh.dgid.raw", p.GID).Set("attrs.ah_attr.grh.hop_limit", 64).
		Set("attrs.ah_attr.ah_flags", uint64(g.Const("PVRDMA_AH_GRH"))).Set("attrs.ah_attr.port_num", 1)
}

// ToRTS is the command that takes a queue pair from ready to receive to ready to send. It gives up on a peer that does not
// answer within milliseconds.
func (g *Guest) ToRTS(qp uint32) layout.View {
	return g.modify(qp, "RTS", "TIMEOUT", "RETRY_CNT", "RNR_RETRY", "SQ_PSN", "MAX_QP_RD_ATOMIC").
		Set("attrs.timeout", 8).Set("attrs.retry_cnt", 1).Set("attrs.rnr_retry", 1).Set("attrs.sq_psn", firstPSN).
		Set("attrs.max_rd_atomic", 1)
}

// ToState is the command that takes a queue pair to a state that needs no attributes: RESET, ERR or SQD.
func (g *Guest) ToState(qp uint32, state string) layout.View { return g.modify(qp, state) }

// Connect takes a queue pair from RESET to ready to send.
func (g *Guest) Connect(q QP, p Peer) {
	g.T.Helper()
	for _, step := range []layout.View{g.ToInit(q.Handle), g.ToRTR(q.Handle, p), g.ToRTS(q.Handle)} {
		g.Must(step, "", "")
	}
}
