// SPDX-License-Identifier: Apache-2.0

// Package guestmem is the only package that touches guest bytes.
//
// A guest's front-end describes the guest's memory as regions: a guest address, a size, and a file that holds
// the bytes. A [Space] is one guest's set of regions. Bytes are reached in two ways:
//
//   - by guest address, through the Space (Read, Write): every access looks the address up. Good for control
//     structures and for the region that covers all of a guest's memory.
//   - by offset, through [Pages] (Pin): a page list that was resolved once. Good for rings and registered memory.
//
// [Copy] moves bytes between any two of them, also between two guests, with one memory copy.
//
// # Windows
//
// A list whose pages are not adjacent costs a look-up for each run of pages, and a processor copies single pages of
// memory that is not in its caches at half of the speed of adjacent memory and less. [Space.PinContiguous] maps the runs
// of a large list a second time, side by side, so that the list is one piece of this process. Such a window obeys all that
// a list obeys: it is revoked, disabled, limited and released with it, and a fault in it names the guest, the region and
// the offset in the file. Windows cost mappings, of which a process has few: beyond the budget ([Windows]) a list stays
// a list of runs, and Stats counts it. Heap memory and files of huge pages have no windows.
//
// Two lists that contain the same page are two ranges of addresses if one has a window, and a window may show a page
// twice: Copy between overlapping ranges of bytes is defined only within one list, and there only if it does not
// contain a page twice.
//
// # Kinds of memory
//
// What a front-end may map, and what is seen of it here:
//
//   - Shared files (memfd, tmpfs, hugetlbfs, a usual file system on a local disk): what the guest sees, byte for byte.
//   - Files of huge pages: the same. They need not be mapped from the start of a huge page on.
//   - Read-only regions: a page list that is to be written cannot be pinned on them, and writes are refused.
//   - Regions without a descriptor: known, so that nothing else can be mapped over them, and refused as memory without
//     a file (start the VM with share=on).
//   - Truncated files: what is gone is a fault of the guest that owns it, see below; the rest serves on.
//   - Discarded pages (a balloon, MADV_REMOVE, a punched hole), registered or not: mapping and file offset stay, so
//     guest and device go on seeing the same page, now of zeroes, and never the old one. No fault, no error: a driver
//     that inflates its balloon over registered memory loses that memory's content, as its specification says. Access
//     by the device gives the page memory again, which the balloon then has not saved.
//   - Private mappings (share=off with a descriptor): the guest's writes go to pages that no descriptor reaches. This
//     cannot be noticed here, where the file looks like any other; who starts the VM has to see to it.
//   - Files on any other file system (network, user space, stacks of several), whose pages may take forever: refused.
//
// # Faults
//
// The front-end can truncate the file behind a mapping at any time; the next access is then a SIGBUS. A fault
// becomes a *[FaultError] that names the guest whose memory failed, which need not be the guest whose work ran.
// The methods of Space, and Copy, CopyIn and CopyOut, guard themselves. The methods of Pages do not: their caller
// has deferred [Domain.Recover] and has called [PrepareGoroutine] once, so that one guard serves a whole visit.
// Guarded code must not start goroutines that touch guest memory: a fault there ends the process.
//
// # Revocation
//
// Space.Unmap, UnmapAll, SetEnabled(false) and Close return only when the memory is no longer reached. Accesses
// through a Space may run on any goroutine and are waited for here. Accesses through Pages run on the thread that
// the barrier waits for (Space.SetBarrier), so that they need no lock and no counter of their own.
//
// A file stays mapped for two seconds after its last region and page list are gone, so that a burst of unmaps and maps
// costs nothing; a limit that is reached, or Close, ends that at once.
//
// # What it may not do
//
// It imports nothing of the project and knows no device: no page directories, no keys, no rings. It interprets no
// byte of guest memory. Apart from the files named *_unsafe.go, and the assembly that they call, it is ordinary Go.
package guestmem

// PageSize is the size in bytes of a guest page: the page of the device and of x86, whatever the host's page is.
const PageSize = 4096

// Limits. They bound what one front-end can make this process hold.
const (
	// MaxRegions is the most regions of a Space: vfio-user's default max_dma_maps, which QEMU does not exceed.
	MaxRegions = 65535
	// MaxPinPages is the most pages of one Pin: a pvrdma page directory has 512 tables of 512 entries.
	MaxPinPages = 512 * 512
	// maxFiles is the most files that a Space has mapped, idle ones included: QEMU has at most 512 memory slots.
	maxFiles = 512
	// filesShare: the files that a Domain has mapped take at most a quarter of vm.max_map_count, its windows half, and a
	// quarter is left for the rest of the process, since a Go program that runs out of mappings dies.
	filesShare = 4
	// maxDomainFiles bounds the table of files that is copied with each new one, whatever vm.max_map_count says.
	maxDomainFiles = 16384
	// maxPins is the most uses of regions by page lists of a Space: twice the memory regions that a pvrdma device has,
	// for lists that lie in two regions. Each costs 48 bytes, and time when it is released.
	maxPins = 1 << 18
	// maxListBytes is the most memory that the page lists of a Space take. A page costs 8 bytes, or less with longer
	// runs: enough for 256 GiB in single pages.
	maxListBytes = 512 << 20
	// maxWindowBytes is the most address space that the windows of a Space take. Its page tables are 1/512 of it.
	maxWindowBytes = 64 << 30
	// maxSpaceBytes is the most address space of the host that a Space takes, and maxDomainBytes all Spaces
	// together: half of the 128 TiB that a process has, because sparse files cost a front-end nothing. A Space's
	// share leaves enough for 63 others.
	maxSpaceBytes  = 1 << 40
	maxDomainBytes = 64 << 40
)
