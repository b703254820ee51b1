// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"github.com/pvrdmad/pvrdmad/pvrdma"
	"github.com/pvrdmad/pvrdmad/tests/inproc"
	"golang.org/x/sys/unix"
)

// codes are all codes of commands, and some that are none: behind the last, responses, and more.
func codes(l *layout.Layout) map[string]uint32 {
	m := map[string]uint32{}
	for _, name := range requests(l) {
		m[name] = l.Const("PVRDMA_CMD_" + strings.ToUpper(name))
	}
	for _, c := range []uint32{21, 22, 255, 256, 1 << 16, 1<<31 - 1, 1 << 31, 1<<31 + 6, 1<<31 + 21, 1<<32 - 1} {
		m[fmt.Sprintf("code %#x", c)] = c
	}
	return m
}

func TestACodeThatIsNoCommandIsRefused(t *testing.T) {
	b := newBoard(t)
	defer b.Close()
	r := &run{t: t, b: b, refusals: map[unix.Errno]int{}}
	for name, code := range codes(b.L) {
		if code < b.Const("PVRDMA_CMD_MAX") && !slices.Contains(absent, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			req := b.L.New("pvrdma_cmd_modify_qp").Set("hdr.cmd", uint64(code)).Set("hdr.response", token)
			r.refuse(t, req, unix.EOPNOTSUPP)
		})
	}
}

// outside are the states of the device in which it executes nothing, each with the way there.
func outside() map[string]func(g *inproc.Guest) {
	return map[string]func(g *inproc.Guest){
		"after power-on": func(g *inproc.Guest) { g.Layout() },
		"with a shared region, before ACTIVATE": func(g *inproc.Guest) {
			g.Layout()
			g.LoadDSR()
		},
		"after RESET": func(g *inproc.Guest) {
			g.Probe()
			g.Control("RESET")
		},
		"after the machine's reset": func(g *inproc.Guest) {
			g.Probe()
			_ = g.Device.Reset()
			g.BusMaster(true)
		},
		"after a shared region that was refused": func(g *inproc.Guest) {
			g.Probe()
			g.SetReg("DSRLOW", 3)
			g.SetReg("DSRHIGH", 0)
		},
		"with bus mastering off": func(g *inproc.Guest) {
			g.Probe()
			g.BusMaster(false)
		},
		"after bus mastering was off": func(g *inproc.Guest) {
			g.Probe()
			g.BusMaster(false)
			g.BusMaster(true)
		},
		"after a failed ACTIVATE": func(g *inproc.Guest) {
			g.Layout()
			g.DSR.Set("cq_ring_pages.pdir_dma", 3<<30)
			g.LoadDSR()
			g.Control("ACTIVATE")
		},
	}
}

func TestNoCommandIsExecutedOutsideOfActive(t *testing.T) {
	for _, state := range slices.Sorted(maps.Keys(outside())) {
		h := inproc.NewHost(t)
		b := &board{t: t, Guest: h.Guest(inproc.Options{Name: "a"}), other: h.Guest(inproc.Options{Name: "b"})}
		b.other.Probe()
		b.other.Ready()
		outside()[state](b.Guest)
		b.SetReg("REQUEST", 0) // the first one may name the state that the device is in from now on
		all := table(t)
		for name, code := range codes(b.L) {
			t.Run(state+"/"+name, func(t *testing.T) {
				slot := b.Bytes(b.CmdSlot, b.L.Size("pvrdma_cmd_req"))
				copy(slot, fill(len(slot)))
				if _, known := all[name]; known {
					copy(slot, b.Request(name).Bytes())
				}
				b.L.View("pvrdma_cmd_hdr", slot).Set("cmd", uint64(code)).Set("response", token)
				b.Ready()
				before := b.look(nil)
				slotBefore := slices.Clone(b.Answer().Slot)
				b.SetReg("REQUEST", 0)
				if a := b.Answer(); a.Reg != uint32(unix.ENODEV) || !slices.Equal(a.Slot, slotBefore) {
					t.Errorf("ERR is %d, want ENODEV, and the response slot as it was: % x", a.Reg, a.Slot)
				}
				if icr := b.Reg("ICR"); icr != 0 {
					t.Errorf("interrupt causes %#x", icr)
				}
				b.moved(t, inproc.ProtocolCounter(pvrdma.BadState))
				b.same(t, before)
			})
		}
		h.Close()
	}
}

// step is one command of a sequence.
type step func(b *board) layout.View

// sequences are commands in an order or a number in which no driver sends them. The last one fails.
var sequences = map[string]struct {
	steps []step
	want  unix.Errno
}{
	"a context destroyed twice":      {twice(of("destroy_uc", "ctx_handle", func(b *board) uint32 { return b.ctx2 })), unix.EINVAL},
	"a domain destroyed twice":       {twice(of("destroy_pd", "pd_handle", lastPD)), unix.EINVAL},
	"a region destroyed twice":       {twice(of("destroy_mr", "mr_handle", lastMR)), unix.EINVAL},
	"a queue destroyed twice":        {twice(of("destroy_cq", "cq_handle", func(b *board) uint32 { return b.cq2 })), unix.EINVAL},
	"a shared queue destroyed twice": {twice(of("destroy_srq", "srq_handle", func(b *board) uint32 { return b.srq2.Handle })), unix.EINVAL},
	"a shared queue armed after its end": {[]step{
		of("destroy_srq", "srq_handle", func(b *board) uint32 { return b.srq2.Handle }),
		func(b *board) layout.View {
			return modifySRQ().honest(b).Set("srq_handle", uint64(b.srq2.Handle))
		},
	}, unix.EINVAL},
	"a queue pair on a shared queue that was destroyed": {[]step{
		of("destroy_srq", "srq_handle", anySRQ),
		func(b *board) layout.View {
			v := b.QPRequest(b.pd, b.cq, b.cq, b.spare)
			beside(b, v)
			return v
		},
	}, unix.EINVAL},
	"a domain before its shared queue":               {[]step{of("destroy_pd", "pd_handle", func(b *board) uint32 { return b.pd2 })}, unix.EBUSY},
	"a shared queue of a context that was destroyed": {orphan("destroy_srq", "srq_handle", anySRQ), unix.EINVAL},
	"a queue pair destroyed twice":                   {twice(of("destroy_qp", "qp_handle", anyQP)), unix.EINVAL},
	"a GID unbound twice": {twice(func(b *board) layout.View {
		return b.Request("destroy_bind").SetBytes("dest_gid", b.GID(0))
	}), unix.ENOENT},
	"INIT to RTR twice": {twice(modifyQP().honest), unix.EINVAL},
	"RTR to RTS twice":  {twice(func(b *board) layout.View { return b.ToRTS(b.qps["RTR"].Handle) }), unix.EINVAL},
	"RTS before RTR":    {[]step{func(b *board) layout.View { return b.ToRTS(b.qps["INIT"].Handle) }}, unix.EINVAL},
	"RTS from INIT, which the guest calls RTR": {[]step{func(b *board) layout.View {
		v := b.ToRTS(b.qps["INIT"].Handle)
		return v.Set("attr_mask", v.Get("attr_mask")|b.Mask("CUR_STATE")).Set("attrs.cur_qp_state", 2)
	}}, unix.EINVAL},
	"RTR from RESET": {[]step{func(b *board) layout.View {
		return modifyQP().honest(b).Set("qp_handle", uint64(b.qps["RESET"].Handle))
	}}, unix.EINVAL},
	"ERR from RESET": {[]step{func(b *board) layout.View { return b.ToState(b.qps["RESET"].Handle, "ERR") }}, unix.EINVAL},
	"INIT from ERR":  {[]step{func(b *board) layout.View { return b.ToInit(b.qps["ERR"].Handle) }}, unix.EINVAL},
	"RTR by a GID that was unbound": {[]step{
		func(b *board) layout.View { return b.Request("destroy_bind").SetBytes("dest_gid", b.GID(0)) },
		modifyQP().honest,
	}, unix.EINVAL},
	"a second GSI queue pair": {[]step{func(b *board) layout.View {
		v := createQP().honest(b).Set("qp_type", 1)
		kernelQP(b, v)
		return v
	}}, unix.EBUSY},
	"a domain before its regions": {[]step{of("destroy_pd", "pd_handle", func(b *board) uint32 { return b.pd })}, unix.EBUSY},
	"a queue pair on a queue that was destroyed": {[]step{
		of("destroy_cq", "cq_handle", func(b *board) uint32 { return b.cq2 }),
		func(b *board) layout.View {
			return b.QPRequest(b.pd2, b.cq2, b.cq2, b.spare)
		},
	}, unix.EINVAL},
	"a queue pair in a domain that was destroyed": {[]step{
		of("destroy_pd", "pd_handle", lastPD),
		func(b *board) layout.View { return b.QPRequest(b.freePD, b.cq, b.cq, b.spare) },
	}, unix.EINVAL},
	"a region in a domain that was destroyed": {[]step{
		of("destroy_pd", "pd_handle", lastPD),
		func(b *board) layout.View { return b.MRRequest(b.freePD, 1, b.spare) },
	}, unix.EINVAL},
	"a domain of a context that was destroyed":     {orphan("destroy_pd", "pd_handle", func(b *board) uint32 { return b.pd }), unix.EINVAL},
	"a queue of a context that was destroyed":      {orphan("destroy_cq", "cq_handle", anyCQ), unix.EINVAL},
	"a region of a context that was destroyed":     {orphan("destroy_mr", "mr_handle", lastMR), unix.EINVAL},
	"a queue pair of a context that was destroyed": {orphan("destroy_qp", "qp_handle", anyQP), unix.EINVAL},
	"querying a queue pair that was destroyed":     {[]step{of("destroy_qp", "qp_handle", anyQP), of("query_qp", "qp_handle", anyQP)}, unix.EINVAL},
	"modifying a queue pair that was destroyed":    {[]step{of("destroy_qp", "qp_handle", anyQP), func(b *board) layout.View { return b.ToInit(anyQP(b)) }}, unix.EINVAL},
	"a new domain in a context that was destroyed": {orphan("create_pd", "ctx_handle", func(b *board) uint32 { return b.ctx }), unix.EINVAL},
	"a queue in a context that was destroyed":      {[]step{of("destroy_uc", "ctx_handle", func(b *board) uint32 { return b.ctx }), createCQ().honest}, unix.EINVAL},
}

func twice(s step) []step { return []step{s, s} }

// of is a command that names an object.
func of(name, field string, h func(b *board) uint32) step {
	return func(b *board) layout.View { return b.Request(name).Set(field, uint64(h(b))) }
}

// orphan is a command to what went with the guest's first program.
func orphan(name, field string, h func(b *board) uint32) []step {
	return []step{of("destroy_uc", "ctx_handle", func(b *board) uint32 { return b.ctx }), of(name, field, h)}
}

func TestCommandsInTheWrongOrderAreRefused(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(sequences)) {
		t.Run(name, func(t *testing.T) {
			b := newBoard(t)
			defer b.Close()
			s := sequences[name]
			for _, first := range s.steps[:len(s.steps)-1] {
				b.Must(first(b), "", "")
			}
			b.Ready()
			r := &run{t: t, b: b}
			r.refuse(t, s.steps[len(s.steps)-1](b).Set("hdr.response", token), s.want)
		})
	}
}

// TestATableThatIsFullRefusesOneMore fills every table of a guest up to its limit.
func TestATableThatIsFullRefusesOneMore(t *testing.T) {
	h := inproc.NewHost(t)
	defer h.Close()
	b := &board{t: t, other: h.Guest(inproc.Options{Name: "b"}), Guest: h.Guest(inproc.Options{
		Name: "a", Limits: hostverbs.Limits{MaxQP: 4, MaxCQ: 4, MaxMR: 3, MaxPD: 3, MaxSRQ: 3},
	})}
	b.other.Probe()
	b.Probe()
	b.spare = b.Object(sparePages)
	ctx := b.UC(1)
	pd, cq := b.PD(ctx), b.CQ(ctx, 64).Handle
	for _, c := range []struct {
		name string
		make func() layout.View
	}{
		{"regions", func() layout.View { return b.MRRequest(pd, 1, b.spare) }},
		{"queue pairs", func() layout.View { return b.QPRequest(pd, cq, cq, b.spare) }},
		{"shared queues", func() layout.View { return b.SRQRequest(pd, b.spare) }},
		{"queues", func() layout.View { return b.CQRequest(ctx, 64, b.spare) }},
		{"domains", func() layout.View { return b.Request("create_pd").Set("ctx_handle", uint64(ctx)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range inproc.MaxUAR {
				if a := b.Post(c.make().Bytes()); !a.OK() {
					break
				}
			}
			b.Ready()
			b.other.Ready()
			r := &run{t: t, b: b}
			r.refuse(t, c.make().Set("hdr.response", token), unix.ENOMEM)
		})
	}
}
