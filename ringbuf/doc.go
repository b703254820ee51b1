// SPDX-License-Identifier: Apache-2.0

// Package ringbuf is the arithmetic of the rings that a pvrdma guest shares with its device, and rings between the
// threads of one process.
//
// # Rings in memory that somebody else writes
//
// [Ring] and [EventRing] are the index rules of the rings of a pvrdma device
// (drivers/infiniband/hw/vmw_pvrdma/pvrdma_ring.h). They hold no memory: indices come from and go to memory that the
// guest reads and writes. An index that the guest wrote is a hint until Pending has accepted it: Pending never returns
// more than the ring holds, and Slot never leaves the ring, whatever the index. All methods are a few instructions.
//
// The order that both sides keep: whoever fills an entry stores the producer's index after the entry, and whoever has
// read an entry stores the consumer's index after the last look at it. The indices are stored and loaded atomically.
//
// # Rings between threads
//
// [SPSC] has one producer and one consumer, [MPSC] any number of producers and one consumer. Both are bounded, take
// no lock, make no system call, never wait, and allocate nothing after they are made.
//
//	                 SPSC                             MPSC
//	Push             O(1), wait-free                  O(1) and a compare-and-swap, lock-free
//	Pop              O(1), wait-free                  O(1), wait-free
//	batch of k       O(k), one store of an index      O(k), one compare-and-swap and a store for each element
//	memory           n elements and a kilobyte        n elements, each with a word more, and a kilobyte
//
// What costs time between two processors is a cache line that changes hands. So each index has a line of its own (128
// bytes: lines are fetched in pairs) and one writer, named at the field; each side keeps a copy of the other's index
// and looks again only when the copy says that the ring is full or empty; and Publish and Release let a whole batch
// travel with one store.
//
// # Why no element is seen torn
//
// Go's atomic operations are sequentially consistent, and an atomic load that sees a store also sees everything that
// its goroutine wrote before (https://go.dev/ref/mem). In an SPSC the producer writes elements, then stores tail; the
// consumer loads tail, then reads elements below it. In an MPSC the producer writes an element, then stores the
// element's own sequence number, and the consumer loads that number before the element. In the other direction, in
// both, the consumer clears elements, then stores head; a producer loads head before it writes an element again that
// lies a lap further on. A copy of an index may be old, but indices only grow: an old one makes a ring look fuller to
// its producer and emptier to its consumer than it is, which costs another look, and never an element.
//
// # What a result means
//
// Every method takes effect at one moment between its call and its return (it is linearizable), the batches as the
// pushes or pops that they stand for. Push is false if at that moment n elements were pushed and not released. Pop is
// false if no element was published; in an MPSC also if the oldest element's Push had not come to its end: Pop does
// not wait for a producer that was interrupted, and younger elements stay behind it. A producer that rings a bell
// after Push therefore always finds its element in front of a consumer that pops until false.
//
// # Who uses what
//
// The device in package pvrdma counts its guest's queues with [Ring], package pvrdma/pcifn its event rings with
// [EventRing]. SPSC and MPSC are for work that goes from one worker's thread to another's; with a single worker nothing
// does. The tasks that commands hand to a worker wait behind a mutex instead: closing that list must be one step with
// looking at it, and with two producers the mutex measured no slower than an MPSC.
//
// The package does no I/O, touches no guest memory and imports nothing of the project.
package ringbuf
