// SPDX-License-Identifier: Apache-2.0

package vfiouser

// Limits, each with its reason. What the client may know of them is in the VERSION reply.
const (
	// PageSize is the unit of mappings in bytes: the only page size that is announced (capability pgsizes).
	PageSize = 4096
	// MaxTransfer is the most bytes of one region access (capability max_data_xfer_size). A register access is
	// 8 bytes, a config space read 256; a page is generous, and keeps every frame small.
	MaxTransfer = 4096
	// MaxFrame is the longest message in bytes, header included. The longest that QEMU sends is a
	// REGION_WRITE_MULTI of 200 entries, 4824 bytes; a small bound lets a whole message be kept or copied.
	MaxFrame = 64 << 10
	// MaxDMAMaps is the most memory mappings at a time (capability max_dma_maps, the document's default).
	MaxDMAMaps = 65535
	// MaxMessageFDs is the most file descriptors of one message (capability max_msg_fds). QEMU sends and
	// accepts 16 at most.
	MaxMessageFDs = 16
	// MaxVectors is the most vectors of one IRQIndex: a MSI-X table has 2048 entries at most (PCI 3.0, 6.8.2).
	MaxVectors = 2048
	// MaxMMapAreas is the most mappable parts of one region; it bounds the region info reply.
	MaxMMapAreas = 64
)
