// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/testguest/driver"
	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"github.com/pvrdmad/pvrdmad/tests/inproc"
)

// board is a guest with some of everything, and another guest that has more of each.
type board struct {
	*inproc.Guest
	t     testing.TB
	other *inproc.Guest

	// Of the guest's first program, or its kernel's if the name begins with k; a program's second objects end in 2.
	ctx, pd, cq, freePD, kpd, kcq uint32
	ctx2, pd2, cq2                uint32
	mr                            inproc.MR
	srq, srq2                     inproc.SRQ
	qps                           map[string]inproc.QP // by state
	gsi                           inproc.QP
	// Handles that are not used any more, and how many objects of a kind the other guest has.
	deadCtx, deadPD, deadMR, deadCQ, deadQP, deadSRQ uint32
	// spare is memory that honest requests use; temporary are directories of one row.
	spare     inproc.Object
	temporary []*driver.PageDir
}

const (
	sparePages = 12
	domains    = 8
	regions    = 14
	// others is how many objects of each kind the other guest has: more than the guest, so that the last one's handle is
	// none of the guest's.
	others = 20
	// unknown is a handle of nobody, one that fits the 24 bits of a doorbell.
	unknown = 0xabcdef
)

// states are those that the guest has a queue pair in.
var states = []string{"RESET", "INIT", "RTR", "RTS", "SQD", "ERR"}

func newBoard(t testing.TB) *board {
	t.Helper()
	h := inproc.NewHost(t)
	b := &board{t: t, Guest: h.Guest(inproc.Options{Name: "a"}), other: h.Guest(inproc.Options{Name: "b"}), qps: map[string]inproc.QP{}}
	b.fillOther()
	b.Probe()
	b.Bind(0)
	b.spare = b.Object(sparePages)
	b.kpd, b.kcq = b.PD(0), b.CQ(0, 64).Handle
	b.gsi = b.Guest.QP(b.kpd, b.kcq, b.kcq, "GSI")
	b.ctx, b.ctx2 = b.UC(1), b.UC(2)
	b.pd, b.cq = b.PD(b.ctx), b.CQ(b.ctx, 64).Handle
	b.pd2, b.cq2 = b.PD(b.ctx2), b.CQ(b.ctx2, 64).Handle
	// The last domain's handle is that of nothing else but a region, and the last region's that of nothing else.
	for range domains {
		b.freePD = b.PD(b.ctx)
	}
	for range regions {
		b.Must(b.MRRequest(b.pd, 1, b.spare), "", "")
	}
	b.mr = b.MR(b.pd, b.Const("PVRDMA_ACCESS_LOCAL_WRITE"), 4)
	for _, s := range states {
		b.qps[s] = b.Guest.QP(b.pd, b.cq, b.cq, "RC")
		b.bring(b.qps[s], s)
	}
	b.srq, b.srq2 = b.SRQ(b.pd), b.SRQ(b.pd2)
	b.srq.Post(b.Guest, srqPosted)
	v := b.QPRequest(b.pd, b.cq, b.cq, b.spare)
	beside(b, v)
	b.Must(v, "", "")
	b.bury()
	b.Ready()
	b.other.Ready()
	return b
}

// bring takes a queue pair from RESET to a state.
func (b *board) bring(q inproc.QP, state string) {
	b.t.Helper()
	peer := inproc.Peer{GID: b.GID(0), QPN: b.qps["RESET"].QPN}
	ready := []layout.View{b.ToInit(q.Handle), b.ToRTR(q.Handle, peer), b.ToRTS(q.Handle)}
	for _, step := range map[string][]layout.View{
		"INIT": ready[:1], "RTR": ready[:2], "RTS": ready, "SQD": append(ready, b.ToState(q.Handle, "SQD")),
		"ERR": append(ready[:1:1], b.ToState(q.Handle, "ERR")),
	}[state] {
		b.Must(step, "", "")
	}
}

// bury makes an object of each kind and destroys it.
func (b *board) bury() {
	b.t.Helper()
	b.deadCtx = b.UC(3)
	b.deadPD, b.deadCQ = b.PD(b.deadCtx), b.CQ(b.deadCtx, 64).Handle
	b.deadMR = b.MR(b.deadPD, 1, 1).Handle
	b.deadQP = b.Guest.QP(b.deadPD, b.deadCQ, b.deadCQ, "RC").Handle
	b.deadSRQ = b.SRQ(b.deadPD).Handle
	b.Must(b.Request("destroy_srq").Set("srq_handle", uint64(b.deadSRQ)), "", "")
	b.Must(b.Request("destroy_qp").Set("qp_handle", uint64(b.deadQP)), "", "")
	b.Must(b.Request("destroy_mr").Set("mr_handle", uint64(b.deadMR)), "", "")
	b.Must(b.Request("destroy_cq").Set("cq_handle", uint64(b.deadCQ)), "", "")
	b.Must(b.Request("destroy_pd").Set("pd_handle", uint64(b.deadPD)), "", "")
	b.Must(b.Request("destroy_uc").Set("ctx_handle", uint64(b.deadCtx)), "", "")
}

// fillOther gives the other guest its objects, all in the same memory.
func (b *board) fillOther() {
	b.t.Helper()
	o := b.other
	o.Probe()
	o.Bind(0)
	var ctx uint32
	for page := 1; page < inproc.MaxUAR; page++ {
		ctx = o.UC(page)
	}
	mem := o.Object(3)
	for range others {
		pd := o.PD(ctx)
		cq := o.Must(o.CQRequest(ctx, 64, mem), "create_cq_resp", "cq_handle")
		o.Must(o.MRRequest(pd, 1, mem), "", "")
		o.Must(o.QPRequest(pd, cq, cq, mem), "", "")
		o.Must(o.SRQRequest(pd, mem), "", "")
	}
}

// cap is a capability that the device has told.
func (b *board) cap(name string) uint64 { return b.DSR.Get("caps." + name) }

// spoiled returns the directory of the spare pages after something was done to it.
func (b *board) spoiled(spoil func(*driver.PageDir)) uint64 {
	d := b.directory(b.spare.Pages)
	spoil(d)
	return d.Addr()
}

// directory makes one that lives as long as the row.
func (b *board) directory(pages []uint64) *driver.PageDir {
	d := b.Dir(pages)
	b.temporary = append(b.temporary, d)
	return d
}

// sweep frees what the row made.
func (b *board) sweep() {
	for _, d := range b.temporary {
		d.Free()
	}
	b.temporary = nil
}

// wide returns the directory of n pages, all of which are the same spare one, and so are all its tables.
func (b *board) wide(n int) uint64 {
	pages := make([]uint64, min(n, 512))
	for i := range pages {
		pages[i] = b.spare.Pages[0]
	}
	d := b.directory(pages)
	first := b.Bytes(d.Addr(), 8)
	for i := 1; i < (n+511)/512; i++ {
		copy(b.Bytes(d.Addr()+uint64(8*i), 8), first)
	}
	return d.Addr()
}
