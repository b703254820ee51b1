// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"github.com/pvrdmad/pvrdmad/tests/inproc"
	"golang.org/x/sys/unix"
)

func anySRQ(b *board) uint32   { return b.srq.Handle }
func aDeadSRQ(b *board) uint32 { return b.deadSRQ }

// srqCommands make, change, query and end shared receive queues.
func srqCommands() map[string]command {
	return map[string]command{
		"create_srq": createSRQ(),
		"modify_srq": modifySRQ(),
		"query_srq": {
			honest: func(b *board) layout.View { return b.Request("query_srq").Set("srq_handle", uint64(anySRQ(b))) },
			fields: map[string][]cell{"srq_handle": handles(aDeadSRQ, lastPD, 0), "reserved": reserved(4)},
		},
		"destroy_srq": destroy("destroy_srq", "srq_handle", func(b *board) uint32 { return b.srq2.Handle }, join(
			handles(aDeadSRQ, lastPD, 0),
			taken(handle("with a queue pair, whose guest frees it whatever we say", anySRQ)))),
	}
}

func createSRQ() command {
	wide := func(wr, pages int) func(b *board, v layout.View) {
		return func(b *board, v layout.View) {
			v.Set("attrs.max_wr", uint64(wr)).Set("nchunks", uint64(pages)).Set("pdir_dma", b.wide(pages))
		}
	}
	return command{
		honest: func(b *board) layout.View { return b.SRQRequest(b.pd, b.spare).Set("nchunks", 2) },
		fields: map[string][]cell{
			"pdir_dma": directories(true),
			"pd_handle": join(handles(aDeadPD, lastMR, 0), taken(
				handle("another program's, which its kernel vouches for", func(b *board) uint32 { return b.pd2 }),
				handle("the kernel's", func(b *board) uint32 { return b.kpd }))),
			"nchunks": join(
				refused(unix.EINVAL, 0, 1, 1<<18+1, 1<<31, max32),
				with("for 4096 requests", wide(4096, 129), refused(unix.EINVAL, 2, 128)),
				ignored("more pages than the requests need: the provider allocates twice as many", 3, sparePages, 1<<18)),
			"attrs.max_wr": join(
				refused(unix.EINVAL, 0, 3, inproc.SRQDepth-1, inproc.SRQDepth+1, 1<<12+1, 1<<13, 1<<20, 1<<31, 1<<31+inproc.SRQDepth, max32),
				refused(unix.EINVAL, num("more than the pages hold", at(64))),
				with("in pages enough", wide(0, 257), refused(unix.EINVAL, num("twice the limit", func(b *board) uint64 {
					return 2 * b.cap("max_srq_wr")
				}))),
				with("in pages enough", wide(0, 129), taken(num("the limit", func(b *board) uint64 { return b.cap("max_srq_wr") }))),
				taken(1, 2)),
			"attrs.max_sge": join(
				refused(unix.EINVAL, 17, 32, 128, 255, 256, 1<<28, 1<<28-1, 1<<31, max32),
				taken(0, 1),
				with("in pages enough", wide(inproc.SRQDepth, 3), taken(num("the limit", func(b *board) uint64 { return b.cap("max_srq_sge") })))),
			"attrs.srq_limit": ignored("ibv_create_srq(3): the limit is irrelevant there", 1, inproc.SRQDepth, max32),
			"attrs.reserved":  reserved(4),
			"srq_type":        refused(unix.EOPNOTSUPP, 1, 2, 255),
			"reserved":        reserved(7),
		},
	}
}

func modifySRQ() command {
	return command{
		honest: func(b *board) layout.View {
			return b.Request("modify_srq").Set("srq_handle", uint64(anySRQ(b))).Set("attr_mask", 2).Set("attrs.srq_limit", 3)
		},
		fields: map[string][]cell{
			"srq_handle": handles(aDeadSRQ, lastPD, 0),
			"attr_mask":  join(refused(unix.EINVAL, 0, 4, 6, 7, 1<<31, max32), refused(unix.EOPNOTSUPP, 1, 3)),
			"attrs.srq_limit": join(
				refused(unix.EINVAL, inproc.SRQDepth+1, 1<<31, max32),
				taken(0, 1, srqPosted, num("one more than are posted", at(srqPosted+1)), inproc.SRQDepth)),
			"attrs.max_wr":   ignored("modify_srq selects the limit alone", 1, 32, max32),
			"attrs.max_sge":  ignored("no bit of the mask selects it", 1, max32),
			"attrs.reserved": reserved(4),
		},
	}
}

// srqPosted is how many receives are posted in the board's shared receive queue.
const srqPosted = 8

// beside makes a request for a queue pair one that receives from a shared queue, as user space sends it.
func beside(b *board, v layout.View) {
	v.Set("is_srq", 1).Set("srq_handle", uint64(anySRQ(b))).Set("max_recv_wr", 0).Set("max_recv_sge", 0)
}
