// SPDX-License-Identifier: Apache-2.0

package vfiouser

// RegionIndex names a region of a PCI device: VFIO_PCI_*_REGION_INDEX of linux/vfio.h.
type RegionIndex uint32

// The regions of a PCI device, linux/vfio.h.
const (
	RegionBAR0   RegionIndex = 0
	RegionBAR1   RegionIndex = 1
	RegionBAR2   RegionIndex = 2
	RegionBAR3   RegionIndex = 3
	RegionBAR4   RegionIndex = 4
	RegionBAR5   RegionIndex = 5
	RegionROM    RegionIndex = 6
	RegionConfig RegionIndex = 7
	RegionVGA    RegionIndex = 8

	// NumRegions is VFIO_PCI_NUM_REGIONS.
	NumRegions = 9
)

// IRQIndex names a kind of interrupt of a PCI device: VFIO_PCI_*_IRQ_INDEX of linux/vfio.h.
type IRQIndex uint32

// The interrupts of a PCI device, linux/vfio.h.
const (
	IRQINTx IRQIndex = 0
	IRQMSI  IRQIndex = 1
	IRQMSIX IRQIndex = 2
	IRQErr  IRQIndex = 3
	IRQReq  IRQIndex = 4

	// NumIRQs is VFIO_PCI_NUM_IRQS.
	NumIRQs = 5
)

// Device is what a session serves. The server calls every method from the session's one goroutine (the one that
// called Config.Open), in the order of the client's messages, and never again after Close. A method that returns an
// error has changed nothing; the client gets the errno that the error wraps, EIO if it wraps none, and the session
// goes on. A method that panics ends the session: the panic is reported to the Observer and Close is called.
//
// The client gives up on an answer after seconds (QEMU: 5 s for every message, then it drops the connection
// for good), so every method but Replied and Close returns well within that time.
type Device interface {
	// Regions returns what the device has at each RegionIndex, at most NumRegions of them; what is left out
	// or has size 0 does not exist. It is called once, after Open. A Region that breaks the rules written at
	// its fields ends the session.
	Regions() []Region
	// IRQs returns the number of vectors for each IRQIndex, each at most MaxVectors. It is called once, after
	// Open. QEMU warns its user of a device whose IRQErr has no vector.
	IRQs() [NumIRQs]uint32

	// ReadRegion fills p with the bytes of a region from offset off. The server has checked that the region
	// has RegionRead and that off+len(p) lies in it; len(p) is 1 to MaxTransfer, and nothing is aligned. p comes
	// zeroed and is valid during the call only.
	ReadRegion(index RegionIndex, off uint64, p []byte) error
	// WriteRegion writes p at offset off of a region, with the same checks made. p is valid during the call
	// only. The client is answered when it returns, so work that takes long belongs into Replied.
	WriteRegion(index RegionIndex, off uint64, p []byte) error
	// Replied is called after each WriteRegion that returned nil, once the answer to it was sent: the place
	// for work that must not delay the answer. The next message is read after it returns, so a later read
	// of a register waits for that work. A posted write is followed by it directly, and so is each write of
	// a REGION_WRITE_MULTI; only if such a message wants an answer, the last write's call comes after the
	// answer. It is not called when the answer could not be sent; Close follows then.
	Replied()

	// MapDMA makes guest memory known. The server has checked that Addr and Size are multiples of PageSize (Offset
	// too if there is a file), that Size is not 0 and nothing wraps, that no other mapping overlaps and that
	// there are fewer than MaxDMAMaps.
	MapDMA(m DMAMap) error
	// UnmapDMA takes back the mappings of earlier calls of MapDMA that lie in a range: at least one, and none of
	// them in part. The client is answered when it returns: by then nothing may touch that memory any more.
	UnmapDMA(addr, size uint64) error
	// UnmapAllDMA takes back all mappings, with the same promise.
	UnmapAllDMA() error

	// Reset is VFIO_USER_DEVICE_RESET: the device returns to its power-on state. Memory mappings and
	// eventfds stay; latched interrupts are forgotten after it returned.
	Reset() error
	// Close is called when the session is over, also after a panic, exactly once.
	Close()
}

// RegionFlags are VFIO_REGION_INFO_FLAG_*, linux/vfio.h.
type RegionFlags uint32

// What a client may do with a region.
const (
	// RegionRead is VFIO_REGION_INFO_FLAG_READ: ReadRegion serves it.
	RegionRead RegionFlags = 1 << 0
	// RegionWrite is VFIO_REGION_INFO_FLAG_WRITE: WriteRegion serves it.
	RegionWrite RegionFlags = 1 << 1
	// RegionMMap is VFIO_REGION_INFO_FLAG_MMAP: the client may map Region.MMapAreas. With no areas nothing is
	// mapped; what is left is that QEMU then stops posting writes for the whole device, that is, every
	// register write waits for its answer. A client that did not offer write_multiple (Cloud Hypervisor) would
	// map the whole region in that case, so it is not shown the flag; such clients never post writes.
	RegionMMap RegionFlags = 1 << 2
)

// Region describes one region. The zero Region does not exist.
type Region struct {
	// Size is the region's length in bytes.
	Size uint64
	// Flags are RegionRead, RegionWrite, RegionMMap and no others.
	Flags RegionFlags
	// MMapAreas are the parts that the client may map, multiples of PageSize within Size, ascending, not
	// overlapping, at most MaxMMapAreas. They need RegionMMap. For a region that is mapped whole, name it
	// whole.
	MMapAreas []MMapArea
	// FD is the file that the client maps, looked at only if there are MMapAreas. It stays the device's, which
	// keeps it open until Close. The client can do with it what the file's mode and seals allow.
	FD int
	// FDOffset is where in the file the region begins, a multiple of PageSize.
	FDOffset uint64
}

// MMapArea is a part of a region that the client may map: vfio_region_sparse_mmap_area of linux/vfio.h.
type MMapArea struct {
	// Offset from the region's begin, and Size, in bytes.
	Offset, Size uint64
}

// DMAFlags are the access flags of VFIO_USER_DMA_MAP.
type DMAFlags uint32

// What a device may do with guest memory.
const (
	DMARead  DMAFlags = 1 << 0
	DMAWrite DMAFlags = 1 << 1
)

// DMAMap is a piece of guest memory: VFIO_USER_DMA_MAP of the vfio-user document.
type DMAMap struct {
	// Addr is where the guest sees it, Size its length in bytes.
	Addr, Size uint64
	// FD is the file to map it from, -1 if the client sent none (a guest whose memory is not shared, or a ROM).
	// It is the server's and closed when MapDMA returns.
	FD int
	// Offset is where in the file the piece begins.
	Offset uint64
	// Flags say what the device may do with it.
	Flags DMAFlags
}
