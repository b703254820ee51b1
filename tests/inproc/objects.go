// SPDX-License-Identifier: Apache-2.0

package inproc

import (
	"github.com/pvrdmad/pvrdmad/internal/testguest/driver"
	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
)

// Object is memory that a guest shares with the device through a page directory.
type Object struct {
	Dir   *driver.PageDir
	Pages []uint64
}

// Object allocates n pages and their directory.
func (g *Guest) Object(n int) Object {
	g.T.Helper()
	p := g.Pages(n)
	return Object{g.Dir(p), p}
}

// UC opens the device for a process with a doorbell page.
func (g *Guest) UC(page int) uint32 {
	g.T.Helper()
	return g.Must(g.Request("create_uc").Set(g.FrameField(), UARPFN+uint64(page)), "create_uc_resp", "ctx_handle")
}

// PD allocates a protection domain of a context.
func (g *Guest) PD(ctx uint32) uint32 {
	g.T.Helper()
	return g.Must(g.Request("create_pd").Set("ctx_handle", uint64(ctx)), "create_pd_resp", "pd_handle")
}

// CQ is a completion queue of a guest.
type CQ struct {
	Object
	Handle, CQE uint32
}

// CQRequest is the command that makes a completion queue in an object's memory.
func (g *Guest) CQRequest(ctx, cqe uint32, o Object) layout.View {
	return g.Request("create_cq").Set("pdir_dma", o.Dir.Addr()).Set("ctx_handle", uint64(ctx)).Set("cqe", uint64(cqe)).
		Set("nchunks", uint64(len(o.Pages)))
}

// CQ makes a completion queue of up to 64 entries.
func (g *Guest) CQ(ctx, cqe uint32) CQ {
	g.T.Helper()
	o := g.Object(2)
	return CQ{Object: o, CQE: cqe, Handle: g.Must(g.CQRequest(ctx, cqe, o), "create_cq_resp", "cq_handle")}
}

// MR is registered memory of a guest.
type MR struct {
	Object
	Handle, LKey, RKey uint32
	Start, Len         uint64
}

// MRStart is the address at which programs of these guests have their memory.
const MRStart = 0x7f00_0000_0000

// MRRequest is the command that registers an object's memory.
func (g *Guest) MRRequest(pd, access uint32, o Object) layout.View {
	return g.Request("create_mr").Set("start", MRStart).Set("length", uint64(len(o.Pages))*PageSize).
		Set("pdir_dma", o.Dir.Addr()).Set("pd_handle", uint64(pd)).Set("access_flags", uint64(access)).
		Set("nchunks", uint64(len(o.Pages)))
}

// MR registers some pages.
func (g *Guest) MR(pd, access uint32, pages int) MR {
	g.T.Helper()
	m := MR{Object: g.Object(pages), Start: MRStart, Len: uint64(pages) * PageSize}
	a := g.Post(g.MRRequest(pd, access, m.Object).Bytes())
	if !a.OK() {
		g.T.Fatalf("CREATE_MR: ERR %d, %v", a.Reg, g.Seen.Last())
	}
	r := g.L.View("pvrdma_cmd_create_mr_resp", a.Slot)
	m.Handle, m.LKey, m.RKey = r.Get32("mr_handle"), r.Get32("lkey"), r.Get32("rkey")
	return m
}

// FastMR makes a region for fast registration of up to so many pages. Its object's directory is what registrations name.
func (g *Guest) FastMR(pd uint32, pages int) MR {
	g.T.Helper()
	m := MR{Object: g.Object(pages)}
	a := g.Post(g.Request("create_mr").Set("flags", uint64(g.Const("PVRDMA_MR_FLAG_FRMR"))).Set("pd_handle", uint64(pd)).
		Set("nchunks", uint64(pages)).Bytes())
	if !a.OK() {
		g.T.Fatalf("CREATE_MR for fast registration: ERR %d, %v", a.Reg, g.Seen.Last())
	}
	r := g.L.View("pvrdma_cmd_create_mr_resp", a.Slot)
	m.Handle, m.LKey, m.RKey = r.Get32("mr_handle"), r.Get32("lkey"), r.Get32("rkey")
	return m
}

// QP is a queue pair of a guest: a page of indices, one of send and one of receive requests.
type QP struct {
	Object
	Handle, QPN uint32
}

const (
	// QPDepth is the length of both work queues of these guests' queue pairs, QPSGE the elements of a request.
	QPDepth = 16
	QPSGE   = 4
)

// QPRequest is the command that makes a queue pair in an object's memory.
func (g *Guest) QPRequest(pd, sendCQ, recvCQ uint32, o Object) layout.View {
	return g.Request("create_qp").Set("pdir_dma", o.Dir.Addr()).Set("pd_handle", uint64(pd)).
		Set("send_cq_handle", uint64(sendCQ)).Set("recv_cq_handle", uint64(recvCQ)).
		Set("max_send_wr", QPDepth).Set("max_recv_wr", QPDepth).Set("max_send_sge", QPSGE).Set("max_recv_sge", QPSGE).
		Set("total_chunks", 3).Set("send_chunks", 1).Set("sq_sig_all", 1).
		Set("qp_type", uint64(g.Const("PVRDMA_QPT_RC"))).
		Set("access_flags", uint64(g.Const("PVRDMA_ACCESS_LOCAL_WRITE")))
}

// QP makes a queue pair of a type: "RC", "UD" or "GSI".
func (g *Guest) QP(pd, sendCQ, recvCQ uint32, typ string) QP {
	g.T.Helper()
	q := QP{Object: g.Object(3)}
	a := g.Post(g.QPRequest(pd, sendCQ, recvCQ, q.Object).Set("qp_type", uint64(g.Const("PVRDMA_QPT_"+typ))).Bytes())
	if !a.OK() {
		g.T.Fatalf("CREATE_QP: ERR %d, %v", a.Reg, g.Seen.Last())
	}
	q.Handle, q.QPN = g.madeQP(a)
	return q
}

// madeQP reads the answer to CREATE_QP. A driver below version 20 takes the number for the handle.
func (g *Guest) madeQP(a Answer) (handle, qpn uint32) {
	if DeviceVersion() < g.Const("PVRDMA_QPHANDLE_VERSION") {
		qpn = g.L.View("pvrdma_cmd_create_qp_resp", a.Slot).Get32("qpn")
		return qpn, qpn
	}
	r := g.L.View("pvrdma_cmd_create_qp_resp_v2", a.Slot)
	return r.Get32("qp_handle"), r.Get32("qpn")
}

// GID returns a GID of a guest that no other has.
func (g *Guest) GID(n byte) []byte {
	return []byte{0xfe, 0x80, 13: g.o.Name[0], 14: n, 15: 1}
}

// Bind binds GID number n of a guest at that index.
func (g *Guest) Bind(n byte) {
	g.T.Helper()
	g.Must(g.BindRequest(n), "", "")
}

// BindRequest is the command that binds GID number n at that index.
func (g *Guest) BindRequest(n byte) layout.View {
	return g.Request("create_bind").Set("mtu", 1024).Set("vlan", 0xfff).Set("index", uint64(n)).SetBytes("new_gid", g.GID(n)).
		Set("gid_type", uint64(GIDType()))
}
