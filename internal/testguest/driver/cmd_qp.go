// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"golang.org/x/sys/unix"
)

// QPParams are the arguments of CREATE_QP.
type QPParams struct {
	PDir                                         uint64
	PD, SendCQ, RecvCQ, SRQ                      uint32
	MaxSendWR, MaxRecvWR, MaxSendSGE, MaxRecvSGE uint32
	TotalChunks, SendChunks                      uint16
	SignalAll, IsSRQ                             bool
	Type                                         uint8
}

// CreateQP makes a queue pair. Below device version 20 the number is the handle.
func (d *Device) CreateQP(p QPParams) (qpn, handle uint32, err error) {
	c := d.newCommand("create_qp", "CREATE_QP")
	c.req.Set("pdir_dma", p.PDir).Set("pd_handle", uint64(p.PD)).
		Set("send_cq_handle", uint64(p.SendCQ)).Set("recv_cq_handle", uint64(p.RecvCQ)).
		Set("srq_handle", uint64(p.SRQ)).Set("is_srq", bit(p.IsSRQ)).
		Set("max_send_wr", uint64(p.MaxSendWR)).Set("max_recv_wr", uint64(p.MaxRecvWR)).
		Set("max_send_sge", uint64(p.MaxSendSGE)).Set("max_recv_sge", uint64(p.MaxRecvSGE)).
		Set("total_chunks", uint64(p.TotalChunks)).Set("send_chunks", uint64(p.SendChunks)).
		Set("access_flags", uint64(d.L.Const("PVRDMA_ACCESS_LOCAL_WRITE"))).
		Set("sq_sig_all", bit(p.SignalAll)).Set("qp_type", uint64(p.Type))
	c.ack = "CREATE_QP_RESP"
	b, err := d.run(c)
	if err != nil {
		return 0, 0, err
	}
	if d.Effective() < d.L.Const("PVRDMA_QPHANDLE_VERSION") {
		n := d.resp("create_qp_resp", b).Get32("qpn")
		return n, n, nil
	}
	r := d.resp("create_qp_resp_v2", b)
	return r.Get32("qpn"), r.Get32("qp_handle"), nil
}

func bit(v bool) uint64 {
	if v {
		return 1
	}
	return 0
}

// ModifyQP changes a queue pair. attr is a struct pvrdma_qp_attr of which all is sent, whatever the mask selects.
func (d *Device) ModifyQP(handle, mask uint32, attr layout.View) error {
	c := d.newCommand("modify_qp", "MODIFY_QP")
	c.req.Set("qp_handle", uint64(handle)).Set("attr_mask", uint64(mask)).SetBytes("attrs", attr.Bytes())
	c.ack = "MODIFY_QP_RESP"
	b, err := d.run(c)
	if err != nil {
		return err
	}
	h := d.L.View("pvrdma_cmd_resp_hdr", b)
	if e := uint8(h.Get32("err")); e != 0 { // the one response whose err the driver looks at
		return &CommandError{Name: "MODIFY_QP", Ack: h.Get32("ack"), Err: e, Guest: unix.EINVAL}
	}
	return nil
}

// QueryQP returns a queue pair's struct pvrdma_qp_attr.
func (d *Device) QueryQP(handle, mask uint32) (layout.View, error) {
	c := d.newCommand("query_qp", "QUERY_QP")
	c.req.Set("qp_handle", uint64(handle)).Set("attr_mask", uint64(mask))
	c.ack = "QUERY_QP_RESP"
	b, err := d.run(c)
	if err != nil {
		return layout.View{}, err
	}
	return d.sub(d.resp("query_qp_resp", b), "attrs", "pvrdma_qp_attr"), nil
}

// DestroyQP ends a queue pair.
func (d *Device) DestroyQP(handle uint32) error {
	return d.destroy("destroy_qp", "DESTROY_QP", "qp_handle", handle)
}

// SRQParams are the arguments of CREATE_SRQ.
type SRQParams struct {
	PDir                 uint64
	PD, Chunks           uint32
	MaxWR, MaxSGE, Limit uint32
}

// CreateSRQ makes a shared receive queue.
func (d *Device) CreateSRQ(p SRQParams) (uint32, error) {
	c := d.newCommand("create_srq", "CREATE_SRQ")
	c.req.Set("pdir_dma", p.PDir).Set("pd_handle", uint64(p.PD)).Set("nchunks", uint64(p.Chunks)).
		Set("attrs.max_wr", uint64(p.MaxWR)).Set("attrs.max_sge", uint64(p.MaxSGE)).
		Set("attrs.srq_limit", uint64(p.Limit))
	c.ack = "CREATE_SRQ_RESP"
	b, err := d.run(c)
	if err != nil {
		return 0, err
	}
	return d.resp("create_srq_resp", b).Get32("srqn"), nil
}

// srqLimit is IB_SRQ_LIMIT of the kernel's verbs, the mask bit that MODIFY_SRQ carries.
const srqLimit = 2

// ModifySRQ arms the limit event of a shared receive queue; 0 disarms it.
func (d *Device) ModifySRQ(handle, limit uint32) error {
	c := d.newCommand("modify_srq", "MODIFY_SRQ")
	c.req.Set("srq_handle", uint64(handle)).Set("attr_mask", srqLimit).Set("attrs.srq_limit", uint64(limit))
	c.failure = unix.EINVAL
	_, err := d.run(c)
	return err
}

// QuerySRQ returns a shared receive queue's struct pvrdma_srq_attr.
func (d *Device) QuerySRQ(handle uint32) (layout.View, error) {
	c := d.newCommand("query_srq", "QUERY_SRQ")
	c.req.Set("srq_handle", uint64(handle))
	c.ack = "QUERY_SRQ_RESP"
	c.failure = unix.EINVAL
	b, err := d.run(c)
	if err != nil {
		return layout.View{}, err
	}
	return d.sub(d.resp("query_srq_resp", b), "attrs", "pvrdma_srq_attr"), nil
}

// DestroySRQ ends a shared receive queue.
func (d *Device) DestroySRQ(handle uint32) error {
	return d.destroy("destroy_srq", "DESTROY_SRQ", "srq_handle", handle)
}
