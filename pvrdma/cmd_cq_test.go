// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

func TestACompletionQueueHasTheEntriesAskedFor(t *testing.T) {
	g := newRig(t).newGuest()
	for _, n := range []uint32{1, 2, 64, 512, 8192} {
		c := g.createCQ(0, n)
		if got := c.dev().engine.(*fakeCQ).cqe; got != int(n) {
			t.Errorf("the engine got %d entries, want %d", got, n)
		}
		if c.handle == 0 || c.handle >= g.dev.Caps().MaxCQ {
			t.Errorf("handle %d of %d", c.handle, g.dev.Caps().MaxCQ)
		}
		g.must(&abi.CmdDestroyCQReq{Hdr: hdr(abi.CmdDestroyCQ), CQHandle: c.handle}, nil)
	}
	if b := g.books(); b.CQs != 0 || b.Pinned != 0 || b.Engine["cq"] != 0 || b.Attached != 0 {
		t.Errorf("left behind: %+v", b)
	}
}

func TestACompletionQueueThatCannotBeIsRefused(t *testing.T) {
	r := newRig(t)
	g := r.newGuest()
	cases := []struct {
		name  string
		spoil func(*abi.CmdCreateCQReq)
		want  unix.Errno
	}{
		{"no entries", func(q *abi.CmdCreateCQReq) { q.CQE = 0 }, unix.EINVAL},
		{"500 entries", func(q *abi.CmdCreateCQReq) { q.CQE = 500 }, unix.EINVAL},
		{"more entries than the capability", func(q *abi.CmdCreateCQReq) { q.CQE = 16384 }, unix.EINVAL},
		{"2^31 entries", func(q *abi.CmdCreateCQReq) { q.CQE = 1 << 31 }, unix.EINVAL},
		{"no pages", func(q *abi.CmdCreateCQReq) { q.NChunks = 0 }, unix.EINVAL},
		{"one page", func(q *abi.CmdCreateCQReq) { q.NChunks = 1 }, unix.EINVAL},
		{"one page too few", func(q *abi.CmdCreateCQReq) { q.NChunks-- }, unix.EINVAL},
		{"more pages than two levels hold", func(q *abi.CmdCreateCQReq) { q.NChunks = abi.MaxPages + 1 }, unix.EINVAL},
		{"as many pages as 32 bits count", func(q *abi.CmdCreateCQReq) { q.NChunks = 0xffffffff }, unix.EINVAL},
		{"no directory", func(q *abi.CmdCreateCQReq) { q.PDirDMA = 0 }, unix.EINVAL},
		{"directory misaligned", func(q *abi.CmdCreateCQReq) { q.PDirDMA++ }, unix.EINVAL},
		{"directory in a hole", func(q *abi.CmdCreateCQReq) { q.PDirDMA = 0x1000 }, unix.EFAULT},
		{"a page of 0", func(q *abi.CmdCreateCQReq) { g.write64(tableOf(g.memory, q.PDirDMA)+8, 0) }, unix.EINVAL},
	}
	for _, c := range cases {
		t.Run(c.name, func(*testing.T) {
			q := g.cqReq(0, 512)
			c.spoil(q)
			g.refused(q, c.want)
		})
	}
	r.engine.refuseWith("CreateCQ", unix.ENOMEM)
	g.refused(g.cqReq(0, 512), unix.ENOMEM)
}

func TestACompletionQueueMayHaveMorePagesThanItNeeds(t *testing.T) {
	g := newRig(t).newGuest()
	q := g.cqReq(0, 64)
	q.NChunks = 100
	g.must(q, nil)
	if g.dev.pinned != 2 {
		t.Errorf("%d pages are pinned, want 2", g.dev.pinned)
	}
}
