// SPDX-License-Identifier: Apache-2.0

package soft_test

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/hostverbs/verbstest"
)

// ignored are engines that take an attribute and act as if it was another: what nobody notices is an attribute that has no
// effect. pkey_index and port_num have one value each; what the state table says of all is tested there.
func ignored() []mutant {
	const (
		requester = "what a requester is told in SQD holds from then on"
		responder = "what a responder is told in SQD holds from then on"
		live      = "what a responder is told in RTS holds from then on"
		rnr       = "a message without a receive waits the responder's time, as often as the requester tries"
		silent    = "a peer that does not answer ends in a retry error after all timeouts"
		rights    = "an atomic operation needs its rights on both sides"
	)
	type attr = hostverbs.QPAttr
	always := func(name, promise string, set func(a *attr)) mutant {
		return mutant{name: name, promise: promise, told: set}
	}
	return []mutant{
		always("qp_access_flags: everything", "an operation that the queue pair does not allow is an invalid request", func(a *attr) { a.QPAccessFlags = 0xf }),
		always("qp_access_flags: everything, in SQD", responder, func(a *attr) { a.QPAccessFlags = 0xf }),
		always("qp_access_flags: everything, in RTS", live, func(a *attr) { a.QPAccessFlags = 0xf }),
		always("qp_access_flags: atomics too", rights, func(a *attr) { a.QPAccessFlags |= hostverbs.AccessRemoteAtomic }),
		always("path_mtu: 1024", "the path MTU cuts messages into packets", func(a *attr) { a.PathMTU = hostverbs.MTU1024 }),
		always("path_mtu: that of the peer", "ends of different path MTUs exchange messages of one packet", func(a *attr) { a.PathMTU = hostverbs.MTU4096 }),
		always("timeout: 8", "a timeout is as long as its code says", func(a *attr) { a.Timeout = 8 }),
		always("timeout: 8, in SQD", requester, func(a *attr) { a.Timeout = 8 }),
		always("timeout: never none", "without a timeout a request waits for ever", func(a *attr) { a.Timeout = max(a.Timeout, 14) }),
		always("retry_cnt: 3", silent, func(a *attr) { a.RetryCnt = 3 }),
		always("retry_cnt: 3, in SQD", requester, func(a *attr) { a.RetryCnt = 3 }),
		always("rnr_retry: 3", rnr, func(a *attr) { a.RNRRetry = 3 }),
		always("rnr_retry: 3, in SQD", requester, func(a *attr) { a.RNRRetry = 3 }),
		always("rnr_retry: never for ever", "seven RNR retries are for ever", func(a *attr) { a.RNRRetry = min(a.RNRRetry, 6) }),
		always("min_rnr_timer: 12", rnr, func(a *attr) { a.MinRNRTimer = 12 }),
		always("min_rnr_timer: 1, in SQD", responder, func(a *attr) { a.MinRNRTimer = 1 }),
		always("min_rnr_timer: 1, in RTS", live, func(a *attr) { a.MinRNRTimer = 1 }),
		always("sq_psn: 5", silent, func(a *attr) { a.SQPSN, a.RQPSN = 5, 5 }),
		always("rq_psn: 5", "requests complete in the order in which they were posted", func(a *attr) { a.RQPSN = 5 }),
		always("max_rd_atomic: 16", rights, func(a *attr) { a.MaxRdAtomic = 16 }),
		always("max_rd_atomic: 16, in SQD", requester, func(a *attr) { a.MaxRdAtomic = 16 }),
		always("max_dest_rd_atomic: 16", rights, func(a *attr) { a.MaxDestRdAtomic = 16 }),
		always("max_dest_rd_atomic: 16, in SQD", responder, func(a *attr) { a.MaxDestRdAtomic = 16 }),
		always("dest_qp_num: the next one", "requests complete in the order in which they were posted", func(a *attr) { a.DestQPNum++ }),
		always("en_sqd_async_notify: always", "SQD stops new requests until RTS", func(a *attr) { a.EnSQDAsyncNotify = true }),
		always("en_sqd_async_notify: never", "SQD says once that the queue is drained, if asked", func(a *attr) { a.EnSQDAsyncNotify = false }),
		always("ah_attr: sgid_index 0", "an address number that nothing is bound to is refused", func(a *attr) { a.AHAttr.SGIDIndex = 0 }),
		always("ah_attr: the first address of the peer", "an address that is changed in SQD is where messages go", func(a *attr) { a.AHAttr.DGID[14] = 0 }),
	}
}

func TestTheContractNoticesEveryAttributeThatIsIgnored(t *testing.T) {
	promises := map[string]verbstest.Case{}
	for _, c := range verbstest.Cases() {
		promises[c.Name] = c
	}
	for _, m := range ignored() {
		t.Run(m.name, func(t *testing.T) {
			c, ok := promises[m.promise]
			switch {
			case !ok:
				t.Fatalf("the contract has no promise %q", m.promise)
			case breaks(t, c, mutant{}):
				t.Errorf("%q fails without a fault", m.promise)
			case !breaks(t, c, m):
				t.Errorf("nothing fails at %q", m.promise)
			}
		})
	}
}
