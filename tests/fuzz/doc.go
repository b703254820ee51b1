// SPDX-License-Identifier: Apache-2.0

// Package fuzz feeds hostile bytes to the device: shared regions and directories, commands, work requests, doorbells, and
// accesses to registers and configuration space. Each input is a little program that a guest runs against its own device
// while another guest, which it is connected with, looks on.
//
// The other guest's memory must not change where it has allowed nothing, and none of its secrets may appear elsewhere; a
// rejected input moves one counter; nothing may be left when the guest is gone. The package holds tests alone.
package fuzz
