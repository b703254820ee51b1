// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"bytes"
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
)

// asks compares fields of what the device says of a queue pair.
func asks(t *testing.T, what string, q *verbs.QP, want map[string]uint32) {
	t.Helper()
	v, err := q.Query()
	if err != nil {
		t.Fatal(err)
	}
	for field, value := range want {
		if got := v.Get32(field); got != value {
			t.Errorf("%s: %s is %#x, want %#x", what, field, got, value)
		}
	}
}

// TestAQueryReturnsEveryAttributeAsItIs sets each attribute to a value that no other has, and looks again when it has changed.
func TestAQueryReturnsEveryAttributeAsItIs(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		a, b := d.endpoints(testguest.Shape{})
		g := a.P.G
		b.ConnectTo(a.Address())
		tune := verbs.Tuning{
			Access: g.Const("PVRDMA_ACCESS_REMOTE_READ"), MTU: g.Const("PVRDMA_MTU_2048"), Timeout: 17, RetryCnt: 5, RNRRetry: 3,
			MinRNRTimer: 11, RDAtomic: 7, DestRDAtomic: 13,
		}
		if err := a.QP.ToInit(tune); err != nil {
			t.Fatal(err)
		}
		asks(t, "in INIT", a.QP, map[string]uint32{"qp_state": g.Const("PVRDMA_QPS_INIT"), "qp_access_flags": tune.Access, "port_num": 1, "pkey_index": 0})
		path := a.PathTo(b.Address())
		rtr := a.QP.RTRAttr(path, tune)
		rtr.Set("ah_attr.grh.flow_label", 0xabcde).Set("ah_attr.grh.hop_limit", 9).Set("ah_attr.grh.traffic_class", 0x5a).
			Set("ah_attr.sl", 6).Set("ah_attr.src_path_bits", 0).Set("ah_attr.static_rate", 3)
		dmac := []byte{2, 3, 5, 7, 11, 13}
		rtr.SetBytes("ah_attr.dmac", dmac)
		if err := a.QP.Modify(rtr); err != nil {
			t.Fatal(err)
		}
		if err := a.QP.ToRTS(path, tune); err != nil {
			t.Fatal(err)
		}
		connected := map[string]uint32{
			"qp_state": g.Const("PVRDMA_QPS_RTS"), "cur_qp_state": g.Const("PVRDMA_QPS_RTS"), "path_mtu": tune.MTU,
			"rq_psn": path.PSN, "sq_psn": path.OwnPSN, "dest_qp_num": path.QPN, "qp_access_flags": tune.Access,
			"timeout": 17, "retry_cnt": 5, "rnr_retry": 3, "min_rnr_timer": 11, "max_rd_atomic": 7, "max_dest_rd_atomic": 13,
			"sq_draining": 0, "en_sqd_async_notify": 0, "port_num": 1, "pkey_index": 0,
			"ah_attr.grh.flow_label": 0xabcde, "ah_attr.grh.hop_limit": 9, "ah_attr.grh.traffic_class": 0x5a,
			"ah_attr.grh.sgid_index": 0, "ah_attr.sl": 6, "ah_attr.static_rate": 3, "ah_attr.port_num": 1,
			"ah_attr.ah_flags": g.Const("PVRDMA_AH_GRH"), "cap.max_send_wr": a.QP.Init.MaxSendWR, "cap.max_recv_wr": a.QP.Init.MaxRecvWR,
			"cap.max_send_sge": a.QP.Init.MaxSendSGE, "cap.max_recv_sge": a.QP.Init.MaxRecvSGE, "cap.max_inline_data": 0,
		}
		asks(t, "in RTS", a.QP, connected)
		if v, err := a.QP.Query(); err != nil || !bytes.Equal(v.Slice("ah_attr.dmac"), dmac) {
			t.Errorf("the path's station is % x, %v", v.Slice("ah_attr.dmac"), err)
		}

		if err := a.QP.Modify(a.QP.Attr().WithState("SQD").With("EN_SQD_ASYNC_NOTIFY", "en_sqd_async_notify", 1)); err != nil {
			t.Fatal(err)
		}
		awaitEvent(t, g, "SQ_DRAINED", a.QP.Handle)
		asks(t, "in SQD", a.QP, map[string]uint32{"qp_state": g.Const("PVRDMA_QPS_SQD"), "sq_draining": 0, "en_sqd_async_notify": 1, "timeout": 17})
		if err := a.QP.ToErr(); err != nil {
			t.Fatal(err)
		}
		asks(t, "in ERR", a.QP, map[string]uint32{"qp_state": g.Const("PVRDMA_QPS_ERR"), "dest_qp_num": path.QPN})
	})
}

// TestAQuerySaysThatASharedQueueTakesTheReceives: the queue pair has none of its own.
func TestAQuerySaysThatASharedQueueTakesTheReceives(t *testing.T) {
	d := startDaemon(t, "poll")
	p := newPool(t, d.guest("a"), d.guest("b"), 1)
	q := p.b[0].QP
	asks(t, "with a shared queue", q, map[string]uint32{
		"cap.max_recv_wr": 0, "cap.max_recv_sge": 0, "cap.max_send_wr": q.Init.MaxSendWR, "cap.max_send_sge": q.Init.MaxSendSGE,
	})
	v, err := p.b[0].P.G.Dev.QuerySRQ(p.srq.Handle)
	if err != nil || v.Get32("max_wr") != poolWR || v.Get32("max_sge") != 2 || v.Get32("srq_limit") != 0 {
		t.Errorf("the shared queue is %d by %d, limit %d, %v", v.Get32("max_wr"), v.Get32("max_sge"), v.Get32("srq_limit"), err)
	}
}
