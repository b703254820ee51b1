// SPDX-License-Identifier: Apache-2.0

// Package soft is the engine that needs no RDMA device: it carries out verbs between the guests of one daemon, and
// within one guest, by one memory copy from the sender's memory to the receiver's.
//
// Its queue pairs are those of a RoCEv2 endpoint: keys, protection domains, bounds and access are checked on both
// sides, a missing receive is an RNR NAK, a peer that is not there is loss, and what goes wrong ends in the
// completion statuses, states and events that the InfiniBand architecture names. There is no wire yet, so a peer that
// no guest of the engine owns is one that never answers.
//
// It may not know the pvrdma device nor libibverbs, and it touches guest bytes through package guestmem only.
//
// # Threads
//
// A guest belongs to one Owner, and so do its queue pairs. Everything that the data path reads of them is written on that
// Owner's thread: control calls make their changes inside Owner.Do. Fields that belong to control calls alone say so.
// Nothing is locked on the data path.
//
// A message to a guest of another Owner travels through that one's inbox as a parcel, is carried out there, from memory that
// its sender has looked up, and comes back with the answer. Whoever has the parcel owns what is in it. A control call that
// takes something away marks what is on its way, and then waits until each other Owner has been between two visits.
//
// Control calls are not made on an Owner's thread: those that have to tell all Owners wait for them.
//
// # What waits for Progress
//
// The engine does at once what it can do at once. Everything else waits in a list for the poller's next Progress:
// messages longer than a slice, flushes, SendReady, and the arming of timers, since only Progress knows the time. So
// an owner calls Progress after it has posted and after Do, before it waits for anything.
package soft
