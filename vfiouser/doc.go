// SPDX-License-Identifier: Apache-2.0

// Package vfiouser serves a PCI device to a virtual machine over vfio-user, the protocol of QEMU's
// docs/interop/vfio-user.rst.
package vfiouser
