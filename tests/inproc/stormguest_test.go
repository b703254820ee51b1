// SPDX-License-Identifier: Apache-2.0

package inproc

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"github.com/pvrdmad/pvrdmad/pvrdma"
	"github.com/pvrdmad/pvrdmad/vfiouser"
)

const (
	sendStride, recvStride = 256, 128
	// hostileRegion is how many pages a hostile guest's regions have.
	hostileRegion = 40
	// few is how many objects of a kind it remembers.
	few = 6
)

// hostile is a guest that does anything.
type hostile struct {
	*Guest
	s   *storm
	n   int
	rnd *rand.Rand
	// spare is memory for objects of three pages, big that for regions.
	spare []Object
	big   []Object
	// What it has, or had: each has few, some of them zero.
	ctxs, pds, mrs, fast, cqs, srqs [few]uint32
	keys, fkeys                     [few]uint32
	qps                             [few]QP
	srqMem, cqMem                   [few]Object
	uar                             atomic.Pointer[[]byte]
	version                         uint64
	// due: the last one of its requests about regions for fast registration was a registration.
	due bool
	// image is its memory as it is at first.
	image []byte
}

func newHostile(s *storm, n int, rnd *rand.Rand) *hostile {
	x := &hostile{Guest: s.Guest(Options{Name: string(rune('x' + n)), Memory: 4 << 20}), s: s, n: n, rnd: rnd, version: 20}
	x.Layout() // in the lower half of its memory, which stays
	for range 3 * few {
		x.spare = append(x.spare, x.Object(3))
	}
	for range 3 {
		x.big = append(x.big, x.Object(hostileRegion))
	}
	x.image = bytes.Clone(x.RAM.All())
	x.start()
	return x
}

// start brings the device up, for a driver of some version.
func (x *hostile) start() {
	copy(x.RAM.All(), x.image)
	x.version = 18 + uint64(x.rnd.IntN(4)) // 17 knows RoCE v1 alone
	x.DSR.Set("driver_version", x.version)
	x.LoadDSR()
	x.SetReg("IMR", 0)
	x.Control("ACTIVATE")
	if x.uar.Load() == nil {
		bar := x.Regions[2]
		b, err := unix.Mmap(bar.FD, 0, int(bar.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			x.s.fault("map doorbells: %v", err)
			return
		}
		x.uar.Store(&b)
	}
	x.ctxs, x.pds, x.mrs, x.fast, x.cqs, x.srqs = [few]uint32{}, [few]uint32{}, [few]uint32{}, [few]uint32{}, [few]uint32{}, [few]uint32{}
	x.qps = [few]QP{}
	x.command(x.BindRequest(0), "", "")
	x.command(x.BindRequest(1), "", "")
	x.pds[0] = x.command(x.Request("create_pd"), "create_pd_resp", "pd_handle")
	for i := range 2 {
		x.makeCQ(i, 0, 64)
		x.makeMR(i)
		x.makeFast(i)
	}
	x.makeSRQ(0)
	for i := range x.qps {
		x.makeQP(i)
	}
}

func (x *hostile) run() {
	for n := range *stormSteps {
		if x.s.failed.Load() {
			return
		}
		if n%300 == 299 { // what it has is worn out by then
			x.Control("RESET")
			x.start()
		}
		x.step()
	}
}

// step does one thing.
func (x *hostile) step() {
	if i := x.s.invited(x.n); i >= 0 && x.rnd.IntN(8) != 0 {
		x.connect(i)
		return
	}
	switch n := x.rnd.IntN(100); {
	case n < 12:
		x.make()
	case n < 16:
		x.destroy()
	case n < 22:
		x.move()
	case n < 82:
		x.post()
	case n < 84:
		x.bind()
	case n < 88:
		x.query()
	case n < 89:
		x.link()
	case n < 90 && x.rnd.IntN(4) == 0:
		x.memory()
	case n < 91 && x.rnd.IntN(4) == 0:
		x.restart()
	default:
		x.Settle()
	}
}

func (x *hostile) any(list [few]uint32) uint64 { return uint64(list[x.rnd.IntN(few)]) }

// one is mostly the first, which is the kernel's.
func (x *hostile) one(list [few]uint32) uint32 {
	if x.rnd.IntN(6) != 0 {
		return list[0]
	}
	return list[x.rnd.IntN(few)]
}

// object is memory for an object, mostly that of its kind and place.
func (x *hostile) object(kind, i int) Object {
	if x.rnd.IntN(40) == 0 {
		return x.spare[x.rnd.IntN(len(x.spare))]
	}
	return x.spare[kind*few+i]
}

// command executes a command and returns a field of its response, 0 if it was refused.
func (x *hostile) command(req layout.View, resp, field string) uint32 {
	a := x.Post(req.Bytes())
	if !a.OK() || field == "" {
		return 0
	}
	return x.L.View("pvrdma_cmd_"+resp, a.Slot).Get32(field)
}

// make makes an object of some kind.
func (x *hostile) make() {
	i := x.rnd.IntN(few)
	switch x.rnd.IntN(9) {
	case 0:
		page, pfn := UARPFN+1+uint64(x.rnd.IntN(MaxUAR)), "pfn64"
		if x.version < uint64(x.Const("PVRDMA_PPN64_VERSION")) {
			pfn = "pfn"
		}
		x.ctxs[i] = x.command(x.Request("create_uc").Set(pfn, page), "create_uc_resp", "ctx_handle")
	case 1:
		ctx := x.any(x.ctxs)
		x.pds[max(i, 1)] = x.command(x.Request("create_pd").Set("ctx_handle", ctx), "create_pd_resp", "pd_handle")
	case 2:
		x.makeCQ(max(i, 1), uint32(x.any(x.ctxs)), 1<<x.rnd.IntN(7))
	case 3:
		x.makeMR(i)
	case 4:
		x.makeFast(i)
	case 5:
		x.makeSRQ(i)
	default:
		x.makeQP(i)
	}
}

func (x *hostile) makeCQ(i int, ctx, cqe uint32) {
	x.cqMem[i] = x.object(0, i)
	clear(x.Bytes(x.cqMem[i].Pages[0], PageSize))
	x.cqs[i] = x.command(x.CQRequest(ctx, cqe, x.cqMem[i]), "create_cq_resp", "cq_handle")
}

func (x *hostile) makeMR(i int) {
	x.region(i, &x.mrs, x.Post(x.MRRequest(x.one(x.pds), 15, x.big[x.rnd.IntN(len(x.big))]).Bytes()))
}

func (x *hostile) makeFast(i int) {
	x.region(i, &x.fast, x.Post(x.Request("create_mr").Set("flags", uint64(x.Const("PVRDMA_MR_FLAG_FRMR"))).
		Set("pd_handle", uint64(x.one(x.pds))).Set("nchunks", hostileRegion).Bytes()))
}

func (x *hostile) makeSRQ(i int) {
	x.srqMem[i] = x.object(1, i)
	clear(x.Bytes(x.srqMem[i].Pages[0], PageSize))
	x.srqs[i] = x.command(x.SRQRequest(x.one(x.pds), x.srqMem[i]), "create_srq_resp", "srqn")
}

func (x *hostile) region(i int, list *[few]uint32, a Answer) {
	if a.OK() {
		r := x.L.View("pvrdma_cmd_create_mr_resp", a.Slot)
		list[i] = r.Get32("mr_handle")
		if list == &x.fast {
			x.fkeys[i] = r.Get32("rkey")
			return
		}
		x.keys[i] = r.Get32("rkey")
		x.s.learn(x.rnd, x.keys[i])
		x.s.mu.Lock()
		defer x.s.mu.Unlock()
		x.s.regions[x.n][i] = x.keys[i]
	}
}

func (x *hostile) makeQP(i int) {
	q := QP{Object: x.object(2, i)}
	for _, p := range q.Pages {
		clear(x.Bytes(p, PageSize))
	}
	typ := [few]string{"RC", "RC", "RC", "RC", "UD", "GSI"}[i]
	req := x.QPRequest(x.one(x.pds), x.one(x.cqs), x.one(x.cqs), q.Object).
		Set("qp_type", uint64(x.Const("PVRDMA_QPT_"+typ)))
	if s := x.one(x.srqs); s != 0 && x.rnd.IntN(3) == 0 {
		req.Set("is_srq", 1).Set("srq_handle", uint64(s))
	}
	a := x.Post(req.Bytes())
	if !a.OK() {
		return
	}
	if x.version < 20 {
		q.QPN = x.L.View("pvrdma_cmd_create_qp_resp", a.Slot).Get32("qpn")
		q.Handle = q.QPN
	} else {
		r := x.L.View("pvrdma_cmd_create_qp_resp_v2", a.Slot)
		q.Handle, q.QPN = r.Get32("qp_handle"), r.Get32("qpn")
	}
	x.qps[i] = q
	x.s.mu.Lock()
	x.s.slots[x.n][i] = Peer{GID: x.GID(0), QPN: q.QPN}
	x.s.mu.Unlock()
	x.s.meet(Peer{GID: x.GID(byte(x.rnd.IntN(2))), QPN: q.QPN})
}

// destroy ends an object of some kind, whatever still uses it.
func (x *hostile) destroy() {
	kinds := []struct {
		cmd, field string
		handle     uint64
	}{
		{"destroy_qp", "qp_handle", uint64(x.qps[x.rnd.IntN(few)].Handle)},
		{"destroy_cq", "cq_handle", x.any(x.cqs)},
		{"destroy_mr", "mr_handle", x.any(x.mrs)},
		{"destroy_mr", "mr_handle", x.any(x.fast)},
		{"destroy_srq", "srq_handle", x.any(x.srqs)},
		{"destroy_pd", "pd_handle", x.any(x.pds)},
		{"destroy_uc", "ctx_handle", x.any(x.ctxs)},
	}
	k := kinds[x.rnd.IntN(len(kinds))*x.rnd.IntN(2)] // mostly a queue pair
	x.command(x.Request(k.cmd).Set(k.field, k.handle), "", "")
}

// move takes a queue pair to another state, or all the way to RTS.
func (x *hostile) move() {
	i := x.rnd.IntN(few)
	q := x.qps[i]
	if x.rnd.IntN(4) == 0 {
		state := []string{"RESET", "ERR", "SQD", "RTS", "SQD", "RTS"}[x.rnd.IntN(6)]
		x.command(x.ToState(q.Handle, state), "", "")
		return
	}
	x.connect(i)
	x.s.invite(x.n, i)
}

// connect takes a queue pair from any state to RTS, mostly as that of its partner.
func (x *hostile) connect(i int) {
	q := x.qps[i]
	x.command(x.ToState(q.Handle, "RESET"), "", "")
	if len(q.Pages) > 0 {
		clear(x.Bytes(q.Pages[0], 16))
	}
	p := x.s.now(x.n, i)
	if x.rnd.IntN(8) == 0 || len(p.GID) == 0 {
		p = x.s.anybody(x.rnd)
	}
	x.command(x.ToInit(q.Handle), "", "")
	x.command(x.ToRTR(q.Handle, p), "", "")
	x.command(x.ToRTS(q.Handle).Set("attrs.timeout", uint64(5+x.rnd.IntN(4))).Set("attrs.retry_cnt", 7).
		Set("attrs.rnr_retry", 7-uint64(x.rnd.IntN(10)/9)), "", "")
	mask := x.Mask("STATE", "PKEY_INDEX", "QKEY", "PORT")
	x.command(x.ToInit(q.Handle).Set("attr_mask", mask).Set("attrs.qkey", stormQKey), "", "")
	x.command(x.ToState(q.Handle, "RTR"), "", "")
	x.command(x.ToRTS(q.Handle).Set("attr_mask", x.Mask("STATE", "SQ_PSN")), "", "")
}

const stormQKey = 0x1234

// bind takes an address or gives one back: its own, or one that all want.
func (x *hostile) bind() {
	n := byte(1 + x.rnd.IntN(3))
	if x.rnd.IntN(20) == 0 {
		n = 0
	}
	req := x.BindRequest(n)
	gid := x.GID(n)
	if n >= 2 {
		gid = []byte{0xfe, 0x80, 14: n, 15: 7}
	}
	if x.rnd.IntN(2) == 0 {
		x.command(req.SetBytes("new_gid", gid), "", "")
		return
	}
	x.command(x.Request("destroy_bind").Set("index", uint64(n)).SetBytes("dest_gid", gid), "", "")
}

func (x *hostile) query() {
	x.command(x.Request("query_qp").Set("qp_handle", uint64(x.qps[x.rnd.IntN(few)].Handle)), "", "")
	x.command(x.Request("query_srq").Set("srq_handle", x.any(x.srqs)), "", "")
	x.command(x.Request("modify_srq").Set("srq_handle", x.any(x.srqs)).Set("attr_mask", 2).
		Set("attrs.srq_limit", uint64(x.rnd.IntN(SRQDepth+2))), "", "")
}

// memory takes a piece of the guest's memory away and gives it back.
func (x *hostile) memory() {
	r := x.RAM.Regions()[1-x.rnd.IntN(4)/3]
	if x.Device.UnmapDMA(r.Addr, r.Size) == nil {
		m := vfiouser.DMAMap{Addr: r.Addr, Size: r.Size, FD: x.RAM.FD(), Offset: r.Offset, Flags: vfiouser.DMARead | vfiouser.DMAWrite}
		if err := x.Device.MapDMA(m); err != nil {
			x.s.fault("map: %v", err)
		}
	}
	if x.Reg("ERR") != 0 || x.rnd.IntN(4) == 0 {
		x.Control("RESET")
		x.start()
	}
}

func (x *hostile) link() {
	x.Fn.SetLink(false)
	time.Sleep(time.Duration(x.rnd.IntN(200)) * time.Microsecond)
	x.Fn.SetLink(true)
}

// restart begins anew, in one of the ways that there are.
func (x *hostile) restart() {
	switch x.rnd.IntN(4) {
	case 0:
		x.Control("RESET")
		if o := x.Fn.Objects(); o != (pvrdma.Objects{}) {
			x.s.fault("after RESET there are %+v", o)
		}
	case 1:
		x.BusMaster(false)
		x.BusMaster(true)
	case 2:
		if err := x.Device.Reset(); err != nil {
			x.s.fault("reset: %v", err)
		}
		x.BusMaster(true)
	case 3:
		x.unmap()
		x.Detach()
		x.Attach()
	}
	x.start()
}

func (x *hostile) unmap() {
	if b := x.uar.Swap(nil); b != nil {
		x.s.mu.Lock() // nobody writes there now
		defer x.s.mu.Unlock()
		if err := unix.Munmap(*b); err != nil {
			x.s.fault("unmap doorbells: %v", err)
		}
	}
}

// scribble writes into the guest's memory and its doorbell pages for as long as the storm lasts.
func (x *hostile) scribble(over *atomic.Bool) {
	rnd := rand.New(rand.NewPCG(7, uint64(x.o.Name[0])))
	mem := x.RAM.All()
	for !over.Load() && !x.s.failed.Load() {
		for range 4 {
			at := rnd.IntN(len(mem)/4) * 4
			ram.Store32(mem, at, uint32(rnd.IntN(64)))
		}
		x.s.mu.Lock()
		if b := x.uar.Load(); b != nil {
			page := 1 + rnd.IntN(MaxUAR-1)
			ram.Store32(*b, page*PageSize+rnd.IntN(3)*4, uint32(rnd.IntN(8))<<29|uint32(rnd.IntN(32)))
		}
		x.s.mu.Unlock()
		time.Sleep(time.Duration(rnd.IntN(100)) * time.Microsecond)
	}
}

// end ends the guest, and looks at what has become of it.
func (x *hostile) end() {
	x.Control("RESET")
	if o := x.Fn.Objects(); o != (pvrdma.Objects{}) {
		x.s.fault("after RESET there are %+v", o)
	}
	x.unmap()
	for name, n := range x.Seen.Counts() {
		if strings.HasPrefix(name, "guest_resets_total{") && strings.Contains(name, "fault") {
			x.s.fault("%s has moved by %d, and no memory has failed: %v", name, n, x.Seen.Last())
		}
	}
	x.Detach()
}

// rejected reports whether a counter is of something that was refused, or of an end.
func rejected(name string) bool {
	return strings.HasPrefix(name, "guest_protocol_errors_total{") || strings.HasPrefix(name, "guest_resets_total{") ||
		strings.HasPrefix(name, "async_events_total{") ||
		strings.HasPrefix(name, "commands_total{") && !strings.HasSuffix(name, ",ok}")
}
