// SPDX-License-Identifier: Apache-2.0

package abi

import "math/bits"

// Offsets of the scatter/gather elements in a work request, in bytes.
const (
	SendWQESGEOffset = SendWQEHdrSize
	RecvWQESGEOffset = RecvWQEHdrSize
)

// SendWQEWROffset is the offset of union wr in a send work request, SendWQEWRSize its size,
// in bytes.
const (
	SendWQEWROffset = 32
	SendWQEWRSize   = SendWQEHdrSize - SendWQEWROffset
)

// MaxWQESGE is the largest max_sge whose work requests fit in a page even after Linux has
// rounded it up to a power of two.
const MaxWQESGE = 128

// SendWQEStride returns the distance of two send work requests in bytes when each has room
// for maxSGE elements: the power of two at or above 80 + 16*maxSGE (pvrdma_qp.c). It is
// false if that exceeds a page: such a queue cannot exist, because the driver writes a
// work request through a pointer to one page.
func SendWQEStride(maxSGE uint32) (uint32, bool) { return wqeStride(SendWQEHdrSize, maxSGE) }

// RecvWQEStride is SendWQEStride for receive and shared receive queues: the power of two at
// or above 16 + 16*maxSGE (pvrdma_qp.c, pvrdma_srq.c).
func RecvWQEStride(maxSGE uint32) (uint32, bool) { return wqeStride(RecvWQEHdrSize, maxSGE) }

func wqeStride(hdr, maxSGE uint32) (uint32, bool) {
	if maxSGE > (PageSize-hdr)/SGESize {
		return 0, false
	}
	return 1 << bits.Len32(hdr+maxSGE*SGESize-1), true
}

// WQEPages returns the pages that n work requests fill at a distance of stride bytes.
func WQEPages(n, stride uint32) uint64 { return pages(uint64(n) * uint64(stride)) }

// CQPages returns the pages of a CQ with cqe entries, the one with the ring state included:
// the least that CmdCreateCQReq.NChunks may be.
func CQPages(cqe uint32) uint64 { return 1 + pages(uint64(cqe)*CQESize) }

// SRQPages returns the pages of an SRQ with maxWR work requests at a distance of stride
// bytes, the one with the ring state included: the least that CmdCreateSRQReq.NChunks may
// be. User space allocates more.
func SRQPages(maxWR, stride uint32) uint64 { return 1 + WQEPages(maxWR, stride) }

// MRPages returns the pages that length bytes from start touch, which is what
// CmdCreateMRReq.NChunks counts. It is false if the range wraps around.
func MRPages(start, length uint64) (uint64, bool) {
	end := start + length
	if end < start {
		return 0, false
	}
	if length == 0 {
		return 0, true
	}
	return (end-1)/PageSize - start/PageSize + 1, true
}

func pages(n uint64) uint64 { return (n + PageSize - 1) / PageSize }
