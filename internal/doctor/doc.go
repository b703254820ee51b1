// SPDX-License-Identifier: Apache-2.0

// Package doctor looks for what keeps a guest from having a working device, and says what to do about it: a QEMU that
// is too old, memory that is not shared, a vmxnet3 that is missing, a limit that is too low.
//
// It may only look: it reads /proc and asks QEMU for its version. It changes nothing, needs no daemon that runs, and
// what it reads of other processes is bounded.
package doctor
