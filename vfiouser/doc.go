// SPDX-License-Identifier: Apache-2.0

// Package vfiouser serves a PCI device to a virtual machine over vfio-user, the protocol of QEMU's
// docs/interop/vfio-user.rst ("the vfio-user document"). QEMU 10.1 and newer attaches such a device with
//
//	-device '{"driver":"vfio-user-pci","socket":{"type":"unix","path":"/run/my/device.sock"}}'
//
// and a memory backend with share=on. The package owns the socket, the frames, the file descriptors that travel with
// them, and the client's eventfds with the latch for interrupts that find none. What the device is, it does not
// know: that is behind the interface Device; examples/edu is a whole device, with registers, an interrupt and DMA, in 150
// lines. It logs nothing and counts nothing: an Observer is told. It imports the
// standard library and golang.org/x/sys/unix, and may import no more.
//
// # Trust
//
// The client is not trusted: neither the guest nor the virtual machine monitor. Whatever it sends, a Device is
// called only within the promises written at its methods, every file descriptor that came is closed, and nothing but
// its own session waits for it. The worst it can do to others: an eventfd that it makes block holds a caller of
// Trigger up for 20 ms, which ends its session and keeps it out for a second.
//
// # Threads
//
// A Server serves one client at a time. Each session has one goroutine, which reads a message, calls the Device,
// answers, calls Device.Replied if the message was a write, and only then reads the next. So a device needs no locks
// for its own sake, and a read that follows a write on the wire sees all that the write caused. Only Session.Trigger
// and Session.Peer are for all goroutines.
//
// # Commands
//
//	VERSION                 served once, first; 0.0; Config.Open is called
//	DMA_MAP                 served; of a file that may not be mapped (flag file I/O alone): EOPNOTSUPP
//	DMA_UNMAP               served, also of all; with a dirty bitmap: EINVAL
//	DEVICE_GET_INFO         served
//	DEVICE_GET_REGION_INFO  served, with the sparse mmap capability
//	DEVICE_GET_REGION_IO_FDS  absent: EOPNOTSUPP
//	DEVICE_GET_IRQ_INFO     served
//	DEVICE_SET_IRQS         served for INTx, MSI, MSI-X, ERR and REQ; an eventfd to mask or unmask: EOPNOTSUPP
//	REGION_READ, REGION_WRITE  served, up to MaxTransfer bytes
//	DMA_READ, DMA_WRITE     absent; from a client: EINVAL
//	DEVICE_RESET            served
//	DIRTY_PAGES             absent: EOPNOTSUPP
//	REGION_WRITE_MULTI      served
//	DEVICE_FEATURE          absent: ENOTTY, as linux/vfio.h wants it for a feature that is not there
//	MIG_DATA_READ, MIG_DATA_WRITE  absent: EOPNOTSUPP; there is no migration
//	others                  ENOSYS
//
// A failed write of a REGION_WRITE_MULTI does not keep the later ones from being done; the answer names the number
// of those that were. QEMU has told the guest already that all of them are, as it has for posted writes.
//
// # Faults
//
// testdata/cases.md has these rules in the words of the protocol, and lists of cases that a client in any language can
// play. A message that is refused has changed nothing. The client is answered with an errno, if it wants an answer, and
// the session goes on; but it ends where the table says so, and for any fault before the VERSION was accepted.
//
//	FaultDevice            the errno that the Device's error wraps, else EIO
//	FaultSize              no answer, ends: the message is shorter than its header
//	FaultTooLong           no answer, ends: it is longer than MaxFrame
//	FaultType              no answer, ends: neither command nor reply
//	FaultReply             no answer, ends: a reply to nothing
//	FaultHandshake         EINVAL, ends: another command before VERSION
//	FaultVersion           EINVAL, ends: a VERSION that cannot be accepted
//	FaultRepeatedVersion   EINVAL
//	FaultFlags             EINVAL: header flags that a command does not have
//	FaultCommand           ENOSYS
//	FaultAbsent            EOPNOTSUPP, ENOTTY: see above
//	FaultDirection         EINVAL: a server's command
//	FaultBody              EINVAL: a payload of another length
//	FaultArgs              EINVAL; EACCES for an access that the region's flags do not allow
//	FaultFDs               EINVAL: too many or too few for the command, no eventfd, behind the header;
//	                       EMFILE if this process has too many
//	FaultTooManyFDs        EINVAL, ends: more than MaxMessageFDs; all of them are closed
//	FaultMapping           EEXIST, ENOENT, EINVAL: mapped already, not mapped, mapped with another size
//	FaultLimit             EINVAL beyond MaxTransfer, ENOSPC beyond MaxDMAMaps
//
// # Interrupts
//
// An interrupt that is raised while its vector has no eventfd, or is masked, is latched and delivered once when that
// changes; taking eventfds away, also all of them, keeps the latch, and a reset clears it. INTx masks itself with
// each delivery until the client unmasks it. MSI-X tables and their masks are the client's affair.
//
// # Other clients
//
// Cloud Hypervisor reads the answers to REGION_READ and DMA_UNMAP at their full length even if they are errors. A
// correct device never gives it one. It, and every client that does not offer write_multiple, is not shown a region
// with RegionMMap and no areas as mappable, see RegionMMap.
package vfiouser
