// SPDX-License-Identifier: Apache-2.0

package many

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/tests/inproc"
)

// crowd is a guest with many objects, which belong to one process and use the same memory again and again: it is the
// device's memory that counts here.
type crowd struct {
	*inproc.Guest
	ctx, pd uint32
	cq      inproc.CQ
	ring    inproc.Object // of every queue pair
	region  inproc.Object // of every region
	qps     []inproc.QP
	mrs     []uint32
	cqs     []uint32
}

const (
	guestMemory = 8 << 20
	page        = 1 // doorbell page of the process
)

func newCrowd(h *inproc.Host, name string) *crowd {
	g := h.Guest(inproc.Options{Name: name, Memory: guestMemory})
	g.Probe()
	g.Bind(0)
	c := &crowd{Guest: g, ctx: g.UC(page)}
	c.pd = g.PD(c.ctx)
	c.cq = g.CQ(c.ctx, 64)
	c.ring, c.region = g.Object(3), g.Object(1)
	return c
}

// makeQPs adds queue pairs until there are n.
func (c *crowd) makeQPs(n int) {
	c.T.Helper()
	req := c.QPRequest(c.pd, c.cq.Handle, c.cq.Handle, c.ring).Bytes()
	for len(c.qps) < n {
		a := c.Post(req)
		if !a.OK() {
			c.T.Fatalf("queue pair %d: ERR %d, %v", len(c.qps)+1, a.Reg, c.Seen.Last())
		}
		r := c.L.View("pvrdma_cmd_create_qp_resp_v2", a.Slot)
		c.qps = append(c.qps, inproc.QP{Object: c.ring, Handle: r.Get32("qp_handle"), QPN: r.Get32("qpn")})
	}
}

// makeMRs adds regions until there are n.
func (c *crowd) makeMRs(n int) {
	c.T.Helper()
	req := c.MRRequest(c.pd, c.Const("PVRDMA_ACCESS_LOCAL_WRITE"), c.region).Bytes()
	for len(c.mrs) < n {
		a := c.Post(req)
		if !a.OK() {
			c.T.Fatalf("memory region %d: ERR %d, %v", len(c.mrs)+1, a.Reg, c.Seen.Last())
		}
		c.mrs = append(c.mrs, c.L.View("pvrdma_cmd_create_mr_resp", a.Slot).Get32("mr_handle"))
	}
}

// makeCQs adds completion queues until there are n, besides the one of the queue pairs.
func (c *crowd) makeCQs(n int) {
	c.T.Helper()
	req := c.CQRequest(c.ctx, 64, c.ring)
	for len(c.cqs) < n {
		c.cqs = append(c.cqs, c.Must(req, "create_cq_resp", "cq_handle"))
	}
}

// What one guest may have, besides what its kernel has.
const (
	manyQPs = 4096
	manyMRs = 65536
)

func newHost(t *testing.T) *inproc.Host {
	t.Helper()
	h := inproc.NewHost(t)
	t.Cleanup(h.Close)
	return h
}
