// SPDX-License-Identifier: Apache-2.0

// Package pvrdma is the device behind every door: it executes the commands of pvrdma's command ring, owns the
// tables of protection domains, memory regions, completion queues and queue pairs, reads the guest's work queues,
// writes its completion queues, and polls its doorbells.
//
// It may not know how a guest reaches it: no register, no PCI, no socket, no virtqueue. A door's adapter calls
// Device.Exec, Device.Doorbell and Device.Reset and hears of events through Notifier. It may not carry out verbs
// either: that is the engine's work, behind hostverbs.Provider.
//
// # Threads
//
// A Worker is the one thread that owns the data path of its devices. What a guest's commands change is changed
// inside Worker.Do, so that fields of a Device have one writer at a time and need no lock. While the worker sleeps, the
// caller of Do takes its place: "the worker's thread" is then the caller's. Commands run on the goroutine that calls
// Exec, one at a time for each device.
package pvrdma
