// SPDX-License-Identifier: Apache-2.0

package inproc

import (
	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
)

// SRQ is a shared receive queue of a guest: a page of indices, one of requests, and one that the provider allocates for nothing.
type SRQ struct {
	Object
	Handle uint32
}

// SRQDepth is the length of these guests' shared receive queues; a request has QPSGE elements.
const SRQDepth = 16

// SRQRequest is the command that makes a shared receive queue in an object's memory.
func (g *Guest) SRQRequest(pd uint32, o Object) layout.View {
	return g.Request("create_srq").Set("pdir_dma", o.Dir.Addr()).Set("pd_handle", uint64(pd)).
		Set("nchunks", uint64(len(o.Pages))).Set("attrs.max_wr", SRQDepth).Set("attrs.max_sge", QPSGE)
}

// SRQ makes a shared receive queue.
func (g *Guest) SRQ(pd uint32) SRQ {
	g.T.Helper()
	s := SRQ{Object: g.Object(3)}
	s.Handle = g.Must(g.SRQRequest(pd, s.Object), "create_srq_resp", "srqn")
	return s
}

// Post moves the producer's index of an empty queue as if n receives had been written.
func (s SRQ) Post(g *Guest, n uint32) {
	g.T.Helper()
	ram.Store32(g.Bytes(s.Pages[0], 16), srqProdTail, n)
}

// srqProdTail is where the index lies: rx.prod_tail of struct pvrdma_ring_state (pvrdma_ring.h).
const srqProdTail = 8
