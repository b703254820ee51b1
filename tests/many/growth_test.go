// SPDX-License-Identifier: Apache-2.0

package many

import (
	"math"
	"testing"
	"time"
)

const (
	fewObjects = 16
	// flat is how many times as long something may take among many objects as among few: a look at each of 4096 would make a
	// command twice as long.
	flat = 1.5
	// growthRounds is how often each is measured in turns, at least and at most; the quickest counts, since what else runs on
	// the machine makes a round slower, never faster.
	growthRounds, growthTries = 50, 1000
	// growthCalls is how many calls are one measurement.
	growthCalls = 20
)

// deed is something that a guest does with one of its objects.
type deed struct {
	name string
	do   func(c *crowd, i int)
}

var deeds = []deed{
	{"query_qp", func(c *crowd, i int) {
		c.Must(c.Request("query_qp").Set("qp_handle", uint64(c.qps[i%len(c.qps)].Handle)).Set("attr_mask", 1), "", "")
	}},
	{"modify_qp", func(c *crowd, i int) { c.Must(c.ToInit(c.qps[i%len(c.qps)].Handle), "", "") }},
	{"a queue pair comes and goes", func(c *crowd, _ int) {
		q := c.Must(c.QPRequest(c.pd, c.cq.Handle, c.cq.Handle, c.ring), "create_qp_resp_v2", "qp_handle")
		c.Must(c.Request("destroy_qp").Set("qp_handle", uint64(q)), "", "")
	}},
	{"a region comes and goes", func(c *crowd, _ int) {
		m := c.Must(c.MRRequest(c.pd, 1, c.region), "create_mr_resp", "mr_handle")
		c.Must(c.Request("destroy_mr").Set("mr_handle", uint64(m)), "", "")
	}},
	{"a completion queue comes and goes", func(c *crowd, _ int) {
		q := c.Must(c.CQRequest(c.ctx, 64, c.ring), "create_cq_resp", "cq_handle")
		c.Must(c.Request("destroy_cq").Set("cq_handle", uint64(q)), "", "")
	}},
	{"a doorbell by message", func(c *crowd, i int) {
		c.Doorbell(page, c.Const("PVRDMA_UAR_QP_OFFSET"), c.qps[i%len(c.qps)].Handle|c.Const("PVRDMA_UAR_QP_SEND"))
		c.Settle()
	}},
}

// Each guest is one of few or of many objects; all else is the same.
func TestWorkWithOneObjectDoesNotDependOnHowManyThereAre(t *testing.T) {
	few, many := newCrowd(newHost(t), "a"), newCrowd(newHost(t), "b")
	few.makeQPs(fewObjects)
	few.makeMRs(fewObjects)
	few.makeCQs(fewObjects)
	many.makeQPs(manyQPs)
	many.makeMRs(manyMRs)
	many.makeCQs(manyQPs)
	for _, d := range deeds {
		quickest := func(c *crowd, best time.Duration) time.Duration {
			began := time.Now()
			for i := range growthCalls {
				d.do(c, i*997)
			}
			return min(best, time.Since(began))
		}
		a, b := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
		grows := func() bool { return float64(b) > flat*float64(a) }
		for n := 0; n < growthRounds || grows() && n < growthTries; n++ {
			a, b = quickest(few, a), quickest(many, b)
		}
		t.Logf("%s: %v among %d, %v among %d", d.name, a/growthCalls, fewObjects, b/growthCalls, manyQPs)
		if grows() {
			t.Errorf("%s takes %v among %d and %v among %d objects", d.name, a/growthCalls, fewObjects, b/growthCalls, manyQPs)
		}
	}
}
