// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"github.com/pvrdmad/pvrdmad/tests/inproc"
	"golang.org/x/sys/unix"
)

const mrPages = 8

// allMemory makes a registration the kernel's of all memory: what get_dma_mr asks for.
func allMemory(b *board, v layout.View) {
	v.Set("flags", uint64(b.Const("PVRDMA_MR_FLAG_DMA"))).Set("pd_handle", uint64(b.kpd)).Set("start", 0).Set("length", 0).
		Set("pdir_dma", 0).Set("nchunks", 0).Set("access_flags", 1)
}

// fastRegPages is PVRDMA_MAX_FAST_REG_PAGES.
const fastRegPages = 128

// forFastRegistration makes a registration that of a region for fast registration: what alloc_mr asks for.
func forFastRegistration(b *board, v layout.View) {
	v.Set("flags", uint64(b.Const("PVRDMA_MR_FLAG_FRMR"))).Set("pd_handle", uint64(b.kpd)).Set("start", 0).Set("length", 0).
		Set("pdir_dma", 0).Set("nchunks", fastRegPages).Set("access_flags", 0)
}

// Access flags, enum pvrdma_access_flags; those from hugetlb on are the RDMA core's.
const (
	localWrite = 1 << iota
	remoteWrite
	remoteRead
	remoteAtomic
	mwBind
	zeroBased
	onDemand
	hugetlb
	relaxedOrdering = 1 << 20
)

func createMR() command {
	return command{
		honest: func(b *board) layout.View {
			return b.MRRequest(b.pd, localWrite|remoteRead|remoteWrite, b.spare).Set("length", mrPages*4096).Set("nchunks", mrPages)
		},
		fields: map[string][]cell{
			"start": join(
				refused(unix.EINVAL, max64, num("a range that wraps", at(max64-4095)), num("a range that ends at 2^64", at(1<<64-mrPages*4096)),
					num("one byte into a page", at(inproc.MRStart+1)), num("one byte before a page", at(inproc.MRStart-1))),
				taken(0, num("the last page but these", at(1<<64-(mrPages+1)*4096)))),
			"length": join(
				refused(unix.EINVAL, 0, mrPages*4096+1, 1<<30+1, 1<<32+4096, 1<<44, uint64(1<<63), max64),
				taken(1, 4095, 4096, mrPages*4096-1)),
			"pdir_dma":  directories(true),
			"pd_handle": join(handles(aDeadPD, lastMR, 0), taken(handle("another program's, which its kernel vouches for", func(b *board) uint32 { return b.pd2 }))),
			"access_flags": join(
				refused(unix.EINVAL, remoteWrite, remoteAtomic, remoteWrite|remoteRead),
				refused(unix.EOPNOTSUPP, zeroBased|localWrite, localWrite|remoteWrite|zeroBased|relaxedOrdering),
				taken(0, localWrite, remoteRead, localWrite|remoteAtomic),
				with("of all memory", allMemory, taken(0, localWrite),
					refused(unix.EOPNOTSUPP, remoteRead, localWrite|remoteWrite, localWrite|remoteAtomic)),
				ignored("flags of what this device cannot do at all, or optional ones: reg_user_mr passes them unmasked",
					flags(mwBind), flags(onDemand), flags(hugetlb), flags(relaxedOrdering), flags(0x300), flags(1<<31))),
			"flags": join(
				refused(unix.EPERM, 1, 2),
				refused(unix.EINVAL, 3, 4, 1<<31, max32),
				with("of all memory", allMemory, taken(1), refused(unix.EINVAL, 3)),
				with("for fast registration", forFastRegistration, taken(2), refused(unix.EINVAL, 3))),
			"nchunks": join(
				refused(unix.EINVAL, 0, 1, mrPages-1, 1<<18+1, 0x100001, num("a product that wraps", at(1<<20+mrPages)), 1<<31, max32),
				ignored("more pages than the bytes touch", mrPages+1, sparePages, 1<<18),
				with("for fast registration", forFastRegistration,
					taken(1, fastRegPages-1, fastRegPages), refused(unix.EINVAL, 0, fastRegPages+1, 1<<18, 1<<31, max32))),
		},
	}
}

// flags are access flags on top of the honest ones.
func flags(f int) int { return localWrite | remoteRead | remoteWrite | f }
