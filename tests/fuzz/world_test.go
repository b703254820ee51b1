// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"bytes"
	"encoding/binary"
	"flag"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"github.com/pvrdmad/pvrdmad/tests/inproc"
	"golang.org/x/sys/unix"
)

// world is a guest that does what a script says, and a neighbour that minds its own business.
type world struct {
	*inproc.Guest
	t testing.TB
	n *neighbour
	// pages are those of the guest's memory that mean something, numbers its handles and keys.
	pages   []uint64
	numbers []uint32
	// What the guest has from the start.
	ctx, pd uint32
	cq      inproc.CQ
	mr      inproc.MR
	qp, ud  inproc.QP
	kpd     uint32
	kcq     inproc.CQ
	gsi     inproc.QP
	kqp     inproc.QP
	kmr     inproc.MR
	fast    inproc.MR // for fast registration
	// srq is shared by sqp, which is connected with the neighbour's shared, and whatever a script makes.
	srq inproc.SRQ
	sqp inproc.QP
	uar []byte // its doorbell pages, nil if they are trapped
	// quiet says that nobody else writes into the guest's memory, busy that the guest has posted something.
	quiet bool
	busy  bool
	// commands counts those that were executed.
	commands int
	stop     atomic.Bool
	threads  sync.WaitGroup
	left     census
	// patience is how long is waited for what must come, and for what must go.
	patience time.Duration
}

// neighbour is the other guest. What it has allowed the first is a region and some receives; the rest is its secret.
type neighbour struct {
	*inproc.Guest
	qp, loop, loop2 inproc.QP
	shared          inproc.QP // the peer of the first guest's sqp
	cq, loopCQ      inproc.CQ
	mr              inproc.MR
	// ud and gsi take datagrams from everybody.
	ud, gsi   inproc.QP
	udCQ, kcq inproc.CQ
	kmr       inproc.MR
	// open are the pages that the device may write for the first guest's sake, secret a copy of the others.
	open   map[uint64]bool
	secret []byte
}

// gsiQKey is the Q_Key of every GSI queue pair, udQKey that of the others.
const (
	gsiQKey = 0x80010000
	udQKey  = 0x11223344
)

// few is how many objects of a kind the guest may have: a script has room for as many.
const few = 8

// memory is each guest's, in bytes: half of it from 1 MiB on, half from 4 GiB on.
const memory = 512 << 10

// fuzzing reports whether a fuzzer runs the target, and not an ordinary test over its corpus.
func fuzzing() bool {
	on := func(name string) bool {
		f := flag.Lookup(name)
		return f != nil && f.Value.String() != "" && f.Value.String() != "false"
	}
	return on("test.fuzz") || on("test.fuzzworker")
}

// newWorld boots both guests and connects them. trap makes the first one's doorbells messages.
func newWorld(t testing.TB, trap bool) *world {
	t.Helper()
	w := &world{t: t, left: count(), quiet: true, patience: 10 * time.Second}
	h := inproc.NewHost(t)
	w.Guest = h.Guest(inproc.Options{
		Name: "a", Memory: memory, Trap: trap, Limits: hostverbs.Limits{MaxQP: few, MaxCQ: few, MaxMR: few, MaxPD: few, MaxSRQ: few},
	})
	w.n = &neighbour{Guest: h.Guest(inproc.Options{Name: "b", Memory: memory}), open: map[uint64]bool{}}
	w.Probe()
	w.Bind(0)
	w.ctx = w.UC(1)
	w.pd, w.cq = w.PD(w.ctx), w.CQ(w.ctx, 64)
	w.mr = w.MR(w.pd, 15, 4)
	w.qp = w.QP(w.pd, w.cq.Handle, w.cq.Handle, "RC")
	w.srq = w.SRQ(w.pd)
	w.sqp = w.sharing()
	w.kpd, w.kcq = w.PD(0), w.CQ(0, 64)
	w.gsi = w.QP(w.kpd, w.kcq.Handle, w.kcq.Handle, "GSI")
	w.kernel()
	w.ud = w.QP(w.pd, w.cq.Handle, w.cq.Handle, "UD")
	ready(w.Guest, w.gsi.Handle, gsiQKey)
	ready(w.Guest, w.ud.Handle, udQKey)
	w.n.boot()
	w.Connect(w.qp, inproc.Peer{GID: w.n.GID(0), QPN: w.n.qp.QPN})
	w.n.Connect(w.n.qp, inproc.Peer{GID: w.GID(0), QPN: w.qp.QPN})
	w.Connect(w.sqp, inproc.Peer{GID: w.n.GID(0), QPN: w.n.shared.QPN})
	w.n.Connect(w.n.shared, inproc.Peer{GID: w.GID(0), QPN: w.sqp.QPN})
	w.n.hide()
	w.know()
	w.mapDoorbells()
	w.Ready()
	w.n.Ready()
	return w
}

// sharing makes a queue pair that receives from the shared queue.
func (w *world) sharing() inproc.QP {
	w.t.Helper()
	q := inproc.QP{Object: w.Object(3)}
	r := w.L.View("pvrdma_cmd_create_qp_resp_v2", w.Post(w.sharedQP(q.Object).Bytes()).Slot)
	q.Handle, q.QPN = r.Get32("qp_handle"), r.Get32("qpn")
	return q
}

// sharedQP is the command that makes one.
func (w *world) sharedQP(o inproc.Object) layout.View {
	return w.QPRequest(w.pd, w.cq.Handle, w.cq.Handle, o).Set("is_srq", 1).Set("srq_handle", uint64(w.srq.Handle)).
		Set("max_recv_wr", 0).Set("max_recv_sge", 0)
}

// ready takes a queue pair of datagrams, of which the GSI has no port, from RESET to ready to send.
func ready(g *inproc.Guest, qp, qkey uint32) {
	g.T.Helper()
	mask := g.Mask("STATE", "PKEY_INDEX", "QKEY")
	if qkey != gsiQKey {
		mask |= g.Mask("PORT")
	}
	g.Must(g.ToInit(qp).Set("attr_mask", mask).Set("attrs.qkey", uint64(qkey)), "", "")
	g.Must(g.ToState(qp, "RTR"), "", "")
	g.Must(g.ToRTS(qp).Set("attr_mask", g.Mask("STATE", "SQ_PSN")), "", "")
}

// know collects the pages and numbers that scripts name.
func (w *world) know() {
	w.pages = append(w.pages, w.DSRAddr, w.CmdSlot, w.RespSlot, w.cq.Dir.Addr(), w.qp.Dir.Addr(), w.mr.Dir.Addr(),
		w.srq.Dir.Addr(), w.sqp.Dir.Addr(), w.DSR.Get("async_ring_pages.pdir_dma"), w.DSR.Get("cq_ring_pages.pdir_dma"))
	for _, ring := range []string{"async_ring_pages", "cq_ring_pages"} { // the rings' tables and first pages
		table := w.entry(w.DSR.Get(ring + ".pdir_dma"))
		w.pages = append(w.pages, table, w.entry(table))
	}
	for _, o := range []inproc.Object{w.fast.Object, w.kqp.Object, w.qp.Object, w.cq.Object, w.mr.Object, w.gsi.Object, w.kcq.Object, w.srq.Object, w.sqp.Object, w.ud.Object} {
		w.pages = append(w.pages, w.entry(o.Dir.Addr()))
		w.pages = append(w.pages, o.Pages...)
	}
	w.numbers = []uint32{
		w.ctx, w.pd, w.cq.Handle, w.mr.Handle, w.mr.LKey, w.qp.Handle, w.qp.QPN, w.n.mr.RKey, w.n.mr.LKey, w.n.qp.QPN,
		w.kpd, w.kcq.Handle, w.gsi.Handle, w.srq.Handle, w.sqp.Handle,
		w.ud.Handle, w.n.ud.QPN, udQKey, inproc.UARPFN, inproc.UARPFN + 1, inproc.UARPFN + 2,
	}
}

// entry is the first entry of a directory or table page.
func (w *world) entry(addr uint64) uint64 { return binary.LittleEndian.Uint64(w.Bytes(addr, 8)) }

func (w *world) mapDoorbells() {
	bar := w.Regions[2]
	if len(bar.MMapAreas) == 0 {
		return
	}
	var err error
	if w.uar, err = unix.Mmap(bar.FD, 0, int(bar.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		w.t.Fatal(err)
	}
}

// boot gives the neighbour a queue pair for the first guest and two that talk to each other.
func (n *neighbour) boot() {
	n.Probe()
	n.Bind(0)
	ctx := n.UC(1)
	pd, own := n.PD(ctx), n.PD(ctx)
	n.cq, n.loopCQ = n.CQ(ctx, 64), n.CQ(ctx, 64)
	n.qp = n.QP(pd, n.cq.Handle, n.cq.Handle, "RC")
	n.shared = n.QP(pd, n.cq.Handle, n.cq.Handle, "RC")
	n.mr = n.MR(pd, 15, 2)
	n.loop, n.loop2 = n.QP(own, n.loopCQ.Handle, n.loopCQ.Handle, "RC"), n.QP(own, n.loopCQ.Handle, n.loopCQ.Handle, "RC")
	n.Connect(n.loop, inproc.Peer{GID: n.GID(0), QPN: n.loop2.QPN})
	n.Connect(n.loop2, inproc.Peer{GID: n.GID(0), QPN: n.loop.QPN})
	n.postRecvs(n.qp, n.mr)
	n.udCQ = n.CQ(ctx, 64)
	n.ud = n.QP(pd, n.udCQ.Handle, n.udCQ.Handle, "UD")
	ready(n.Guest, n.ud.Handle, udQKey)
	n.postRecvs(n.ud, n.mr)
	kpd := n.PD(0)
	n.kcq, n.kmr = n.CQ(0, 64), n.MR(kpd, 7, 1)
	n.gsi = n.QP(kpd, n.kcq.Handle, n.kcq.Handle, "GSI")
	ready(n.Guest, n.gsi.Handle, gsiQKey)
	n.postRecvs(n.gsi, n.kmr)
}

// postRecvs posts receives of a page of a region.
func (n *neighbour) postRecvs(q inproc.QP, mr inproc.MR) {
	const some = inproc.QPDepth / 2
	for i := range uint64(some) {
		slot := n.Bytes(q.Pages[2]+i*recvStride, recvStride)
		n.L.View("pvrdma_rq_wqe_hdr", slot).Set("wr_id", i).Set("num_sge", 1)
		n.L.View("pvrdma_sge", slot[n.L.Size("pvrdma_rq_wqe_hdr"):]).Set("addr", mr.Start).Set("length", 4096).
			Set("lkey", uint64(mr.LKey))
	}
	ram.Store32(n.Bytes(q.Pages[0], 16), 8, some)
}

// hide fills what the first guest must not see, and remembers it.
func (n *neighbour) hide() {
	for _, o := range []inproc.Object{
		n.mr.Object, n.qp.Object, n.shared.Object, n.cq.Object, n.ud.Object, n.udCQ.Object, n.kmr.Object, n.gsi.Object, n.kcq.Object,
	} {
		for _, p := range o.Pages {
			n.open[p] = true
		}
	}
	for _, p := range n.Pages(8) { // memory that is registered nowhere
		fillSecret(n.Bytes(p, 4096))
	}
	n.secret = bytes.Clone(n.RAM.All())
}

// secretWord is what the neighbour's memory is full of. No script has it by chance.
const secretWord = 0x9e3779b97f4a7c15

func fillSecret(b []byte) {
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], secretWord)
	}
}

const (
	sendStride = 256 // of four elements
	recvStride = 128
)
