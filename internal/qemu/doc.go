// SPDX-License-Identifier: Apache-2.0

// Package qemu knows QEMU's command line: which binary is there and what it can do, the arguments that give a virtual
// machine its device, and how to read the arguments of one that runs.
//
// It may not start a virtual machine. It runs QEMU only to ask for its version and its devices, for a bounded time.
package qemu
