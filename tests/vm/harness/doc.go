// SPDX-License-Identifier: Apache-2.0

// Package harness boots virtual machines for tests and demonstrations: QEMU under emulation (no KVM needed), a guest
// from the cached images, a channel to run scripts in it, a network between guests, and their kernel logs.
//
// It may not depend on package testing, keep a process alive after its own end, or decide what a test means: it
// reports what happened in errors and results. Guests reach pvrdmad only through the QEMU arguments that their
// caller gives; PvrdmaDevice makes those.
package harness
