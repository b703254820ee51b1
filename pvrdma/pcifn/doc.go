// SPDX-License-Identifier: Apache-2.0

// Package pcifn presents a pvrdma device as the PCI function that the Linux driver vmw_pvrdma binds to: configuration
// space, the three BARs, the device shared region, the command and response slots, the two event rings and the three
// MSI-X vectors. It decides which errno reaches the guest, and how.
//
// It may not know verbs, work queues or page contents other than those of the shared region and the event rings: that is
// the device's part, behind pvrdma.Device. It may not know frames or file descriptors of the socket either: vfiouser
// calls it through vfiouser.Device.
package pcifn
