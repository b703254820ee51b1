// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// TestEveryTableHasALimit makes objects of each kind until one is refused. All handles are ones that the driver can index
// its tables with, and after one object is gone one more can be made.
func TestEveryTableHasALimit(t *testing.T) {
	cfg := defaultConfig()
	cfg.Limits = hostverbs.Limits{MaxQP: 5, MaxCQ: 6, MaxMR: 4, MaxPD: 3, MaxSRQ: 4}
	r := newRig(t)
	g := r.idleGuest(cfg, false)
	g.activate()
	caps := g.dev.Caps()
	pd, c := g.createPD(0), g.createCQ(0, 8)
	cases := []struct {
		name    string
		make    func() request
		handle  func(*Response) uint32
		below   uint32 // handles are below it
		most    int    // can be made, besides those above
		destroy func(h uint32) request
	}{
		{
			"protection domains", func() request { return &abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD)} }, word(16), 1 << 24, 2,
			func(h uint32) request { return &abi.CmdDestroyPDReq{Hdr: hdr(abi.CmdDestroyPD), PDHandle: h} },
		},
		{
			"memory regions", func() request { return g.userMR(pd, 1) }, word(16), 1 << 31, 4,
			func(h uint32) request { return &abi.CmdDestroyMRReq{Hdr: hdr(abi.CmdDestroyMR), MRHandle: h} },
		},
		{
			"completion queues", func() request { return g.cqReq(0, 8) }, word(16), caps.MaxCQ, 4,
			func(h uint32) request { return &abi.CmdDestroyCQReq{Hdr: hdr(abi.CmdDestroyCQ), CQHandle: h} },
		},
		{
			"queue pairs", func() request { return g.qpReq(pd, c, c) }, word(20), caps.MaxQP, 4,
			func(h uint32) request { return &abi.CmdDestroyQPReq{Hdr: hdr(abi.CmdDestroyQP), QPHandle: h} },
		},
		{
			"shared receive queues", func() request { return g.srqReq(pd, 8, 2) }, word(16), caps.MaxSRQ, 3,
			func(h uint32) request { return &abi.CmdDestroySRQReq{Hdr: hdr(abi.CmdDestroySRQ), SRQHandle: h} },
		},
	}
	for _, cs := range cases {
		t.Run(cs.name, func(t *testing.T) {
			var made []uint32
			for range cs.most {
				b, err := g.exec(cs.make())
				if err != nil {
					t.Fatalf("number %d: %v", len(made)+1, err)
				}
				h := cs.handle(b)
				if h == 0 || h >= cs.below {
					t.Errorf("handle %d, want 1 to %d", h, cs.below-1)
				}
				made = append(made, h)
			}
			g.refused(cs.make(), unix.ENOMEM)
			g.must(cs.destroy(made[0]), nil)
			if b, err := g.exec(cs.make()); err != nil || cs.handle(b) != made[0] {
				t.Errorf("after one is gone: handle %d, %v", cs.handle(b), err)
			}
			g.refused(cs.make(), unix.ENOMEM)
		})
	}
}

// word returns the function that reads a 32-bit word of a response.
func word(off int) func(*Response) uint32 {
	return func(b *Response) uint32 {
		return uint32(b[off]) | uint32(b[off+1])<<8 | uint32(b[off+2])<<16 | uint32(b[off+3])<<24
	}
}

func TestFailingCommandsLeakNothing(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	pd, c := g.createPD(0), g.createCQ(0, 8)
	reqs := map[string]request{
		"CreateQP": g.qpReq(pd, c, c), "CreateCQ": g.cqReq(0, 64), "RegMR": g.userMR(pd, 4),
		"CreateSRQ": g.srqReq(pd, 8, 2),
		"AllocPD":   &abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD)},
	}
	for method, req := range reqs {
		r.engine.refuseWith(method, unix.ENOMEM)
		for range 100 {
			g.refused(req, unix.ENOMEM)
		}
		r.engine.refuseWith(method, nil)
		g.must(req, nil)
	}
}
