// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"github.com/pvrdmad/pvrdmad/tests/inproc"
	"golang.org/x/sys/unix"
)

// qpCommands make, query and end queue pairs. MODIFY_QP has a file of its own.
func qpCommands() map[string]command {
	dead := func(b *board) uint32 { return b.deadQP }
	wrong := lastPD
	return map[string]command{
		"create_qp": createQP(),
		"query_qp": {
			honest: func(b *board) layout.View { return b.Request("query_qp").Set("qp_handle", uint64(b.qps["RTS"].Handle)) },
			fields: map[string][]cell{
				"qp_handle": handles(dead, wrong, 0),
				"attr_mask": ignored("query_qp copies all attributes of the answer whatever the mask says", 1, 0x1fffff, max32),
			},
		},
		"destroy_qp": destroy("destroy_qp", "qp_handle", anyQP, handles(dead, wrong, 0)),
	}
}

func createQP() command {
	fields := map[string][]cell{
		"pdir_dma": directories(true),
		"pd_handle": handles(aDeadPD, lastMR, 0, handle("another program's", func(b *board) uint32 { return b.pd2 }),
			handle("the kernel's", func(b *board) uint32 { return b.kpd })),
		"srq_handle": join(
			ignored("read only if is_srq is set: create_qp fills it then alone", 1, unknown, max32),
			with("with a shared queue", beside,
				handles(aDeadSRQ, lastPD, 0, handle("another program's", func(b *board) uint32 { return b.srq2.Handle })),
				taken(handle("its own", anySRQ)))),
		"lkey":         ignored("create_qp leaves it 0: keys are those of the work requests", 1, max32),
		"access_flags": ignored("create_qp sends LOCAL_WRITE always; rights of peers come by modify_qp", 0, 2, max32),
		"max_atomic_arg": ignored("create_qp leaves it 0, and atomics are not offered", 1,
			0xffff),
		"max_inline_data": refused(unix.EINVAL, 1, 64, 1<<31, max32),
		"is_srq":          join(refused(unix.EINVAL, 1, 2, 255), with("with a shared queue", beside, ignored("a C truth value", 2, 255))),
		"sq_sig_all":      ignored("a C truth value: whatever is not 0 is true", 1, 2, 255),
		"qp_type": join(refused(unix.EOPNOTSUPP, 0, 1, 3, 5, 6, 7, 8, 9, 10, 11, 255), taken(4),
			with("for the kernel", kernelQP, refused(unix.EBUSY, 1), taken(2, 4))),
		"reserved": reserved(3),
		"total_chunks": join(
			refused(unix.EINVAL, 0, 1, 2),
			refused(unix.EINVAL, num("more than the directory names", at(0xffff))),
			taken(4, sparePages)),
		"send_chunks": refused(unix.EINVAL, 0, 2, 3, 4, 0x7fff, 0xffff),
	}
	for _, cq := range []string{"send_cq_handle", "recv_cq_handle"} {
		fields[cq] = handles(aDeadCQ, lastPD, 0, handle("another program's", func(b *board) uint32 { return b.cq2 }),
			handle("the kernel's", func(b *board) uint32 { return b.kcq }))
	}
	for _, queue := range []string{"send", "recv"} {
		fields["max_"+queue+"_wr"] = join(
			refused(unix.EINVAL, 0, 3, inproc.QPDepth+1, 1<<12+1, 1<<13, 1<<20, 1<<31, 1<<31+inproc.QPDepth, max32),
			refused(unix.EINVAL, num("more than the pages hold", at(64))),
			with("in pages enough", wideQP(4096, queue), taken(num("the limit", at(4096)))),
			with("in pages enough", wideQP(8192, queue), refused(unix.EINVAL, num("twice the limit", at(8192)))),
			taken(1, 2))
		fields["max_"+queue+"_sge"] = join(
			refused(unix.EINVAL, 17, 32, 128, 129, 1<<28, 1<<28-5, 1<<31, max32),
			with("in pages enough", wideQP(inproc.QPDepth, queue), taken(0, num("the limit", func(b *board) uint64 { return b.cap("max_sge") }))),
			taken(1))
	}
	for _, f := range []string{"max_recv_wr", "max_recv_sge"} {
		fields[f] = append(fields[f], with("beside a shared queue", beside,
			ignored("ibv_create_qp(3): the receive queue's limits mean nothing with a shared one", 1, 3, 1<<31, max32))...)
	}
	return command{
		honest: func(b *board) layout.View { return b.QPRequest(b.pd, b.cq, b.cq, b.spare) },
		fields: fields,
	}
}

// kernelQP makes a request for a queue pair the guest kernel's.
func kernelQP(b *board, v layout.View) {
	v.Set("pd_handle", uint64(b.kpd)).Set("send_cq_handle", uint64(b.kcq)).Set("recv_cq_handle", uint64(b.kcq))
}

// wideQP gives one queue of a request room for so many work requests of the largest size.
func wideQP(wr int, queue string) func(b *board, v layout.View) {
	return func(b *board, v layout.View) {
		pages := wr * 512 / 4096
		send, recv := 1, 1
		if queue == "send" {
			send = pages
		} else {
			recv = pages
		}
		v.Set("pdir_dma", b.wide(1+send+recv)).Set("total_chunks", uint64(1+send+recv)).Set("send_chunks", uint64(send))
	}
}
