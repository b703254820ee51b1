// SPDX-License-Identifier: Apache-2.0

// Package ringbuf is the arithmetic of rings.
//
// [Ring] and [EventRing] are the index rules of the rings that a pvrdma guest shares with its device
// (drivers/infiniband/hw/vmw_pvrdma/pvrdma_ring.h). They hold no memory: indices come from and go to memory that
// somebody else reads and writes. An index that the guest wrote is a hint until Pending has accepted it.
//
// [SPSC] is a queue between two goroutines of this process.
//
// The package does no I/O, touches no guest memory and imports nothing of the project.
package ringbuf
