// SPDX-License-Identifier: Apache-2.0

// Package gsi is what is particular to queue pair 1, the general services interface, beyond what every datagram queue pair
// does: which datagrams are management datagrams that a guest's kernel may be given, and how many of them a guest may send.
//
// Every guest has a queue pair with this number, and a datagram for it goes to the guest that holds the destination GID, or
// to nobody. The bytes travel as they are: connection management talks of GIDs, queue pair numbers and its own identifiers,
// all of which mean the same to both guests.
//
// It may not touch guest memory nor know an engine, keeps nothing of what it looks at, and reaches nothing of the host: no
// device, no module, no daemon of the host's own connection management.
package gsi
