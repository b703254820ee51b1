// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"github.com/pvrdmad/pvrdmad/tests/inproc"
	"golang.org/x/sys/unix"
)

// command is a command's honest request and the cells of its fields. The header's have theirs in headerFields.
type command struct {
	honest func(b *board) layout.View
	fields map[string][]cell
}

// reserved fields are zeroed by the driver with the rest of the command's structure (memset before every pvrdma_cmd_post)
// and have no meaning yet.
func reserved(n int) []cell {
	ones := make([]byte, n)
	for i := range ones {
		ones[i] = 0xff
	}
	return ignored("reserved: the driver zeroes it, the header gives it no meaning", ones)
}

func anyCQ(b *board) uint32   { return b.cq }
func anyQP(b *board) uint32   { return b.qps["RESET"].Handle }
func lastPD(b *board) uint32  { return b.freePD }
func lastMR(b *board) uint32  { return b.mr.Handle }
func aKey(b *board) uint32    { return b.mr.LKey }
func aDeadPD(b *board) uint32 { return b.deadPD }
func aDeadCQ(b *board) uint32 { return b.deadCQ }

// objectCommands make and end contexts, protection domains, memory regions and completion queues.
func objectCommands() map[string]command {
	return map[string]command{
		"create_uc":  createUC(),
		"destroy_uc": destroy("destroy_uc", "ctx_handle", func(b *board) uint32 { return b.ctx2 }, contexts()),
		"create_pd": {
			honest: func(b *board) layout.View { return b.Request("create_pd").Set("ctx_handle", uint64(b.ctx)) },
			fields: map[string][]cell{
				"ctx_handle": join(handles(func(b *board) uint32 { return b.deadCtx }, lastPD), taken(num("the kernel's", at(0)))),
				"reserved":   reserved(4),
			},
		},
		"destroy_pd": destroy("destroy_pd", "pd_handle", func(b *board) uint32 { return b.freePD }, join(
			handles(aDeadPD, lastMR, 0),
			refused(unix.EBUSY, handle("with regions and queue pairs", func(b *board) uint32 { return b.pd }),
				handle("with the GSI queue pair", func(b *board) uint32 { return b.kpd })))),
		"create_mr": createMR(),
		"destroy_mr": destroy("destroy_mr", "mr_handle", func(b *board) uint32 { return b.mr.Handle },
			handles(func(b *board) uint32 { return b.deadMR }, aKey, 0)),
		"create_cq": createCQ(),
		"destroy_cq": destroy("destroy_cq", "cq_handle", func(b *board) uint32 { return b.cq2 }, join(
			handles(aDeadCQ, lastPD, 0),
			taken(handle("with queue pairs, whose guest frees it whatever we say", anyCQ)))),
	}
}

// contexts are handles that name no context; 0 is the kernel, which is none that can be destroyed.
func contexts() []cell { return handles(func(b *board) uint32 { return b.deadCtx }, lastPD, 0) }

// destroy is a command that has a handle and nothing else.
func destroy(name, field string, good func(b *board) uint32, bad []cell) command {
	return command{
		honest: func(b *board) layout.View { return b.Request(name).Set(field, uint64(good(b))) },
		fields: map[string][]cell{field: bad, "reserved": reserved(4)},
	}
}

func createUC() command {
	page := func(n uint64) func(*board) uint64 { return at(inproc.UARPFN + n) }
	return command{
		honest: func(b *board) layout.View { return b.Request("create_uc").Set(b.FrameField(), inproc.UARPFN+4) },
		fields: map[string][]cell{
			"pfn64": join(
				refused(unix.EINVAL, 0, 1, max64, uint64(1<<63), num("the kernel's page", page(0)), num("the page before", page(max64)),
					num("behind the last page", page(inproc.MaxUAR))),
				upperHalf(num("the page 2^32 further", page(4+1<<32)), num("the page 2^52 further", page(4+1<<52))),
				taken(num("the last page", page(inproc.MaxUAR-1)))),
			// The lower half of pfn64, which is all that drivers before version 19 know.
			"pfn": refused(unix.EINVAL, 0, max32, num("the kernel's page", page(0))),
		},
	}
}

// upperHalf are frame numbers that are wrong in the upper half alone.
func upperHalf(values ...any) []cell {
	if inproc.DeviceVersion() < abi.VersionPPN64 {
		return ignored("not defined below version 19: the driver leaves there what was on its stack", values...)
	}
	return refused(unix.EINVAL, values...)
}

func createCQ() command {
	wide := func(cqe, pages int) func(b *board, v layout.View) {
		return func(b *board, v layout.View) {
			v.Set("cqe", uint64(cqe)).Set("nchunks", uint64(pages)).Set("pdir_dma", b.wide(pages))
		}
	}
	return command{
		honest: func(b *board) layout.View {
			return b.CQRequest(b.ctx, 64, b.spare).Set("nchunks", 2)
		},
		fields: map[string][]cell{
			"pdir_dma": directories(true),
			"ctx_handle": join(handles(func(b *board) uint32 { return b.deadCtx }, lastPD),
				taken(num("the kernel's", at(0)))),
			"cqe": join(
				refused(unix.EINVAL, 0, 3, 63, 65, 128, 1<<17, 1<<31, 1<<31+64, max32),
				with("in pages enough", wide(0, 2049), refused(unix.EINVAL, num("twice the limit", func(b *board) uint64 {
					return 2 * b.cap("max_cqe")
				}), num("one more than the limit", func(b *board) uint64 { return b.cap("max_cqe") + 1 }))),
				with("in pages enough", wide(0, 1025), taken(num("the limit", func(b *board) uint64 { return b.cap("max_cqe") }))),
				taken(1, 2, 32)),
			"nchunks": join(
				refused(unix.EINVAL, 0, 1, 1<<18+1, 1<<31, max32),
				with("for 65536 entries", wide(65536, 1025), refused(unix.EINVAL, 2, 1024)),
				ignored("more pages than the entries need: the provider may round a buffer up", 3, sparePages, 1<<18)),
			"reserved": reserved(4),
		},
	}
}
