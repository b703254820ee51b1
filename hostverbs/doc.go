// SPDX-License-Identifier: Apache-2.0

// Package hostverbs holds the words of verbs: attributes, masks, work requests, work completions, the
// queue pair state table, and Provider, the seam behind which an engine carries out what a guest asks for.
//
// It may not know the pvrdma device: no layout, no ring, no register. A device translates its guest's bytes
// into these words and back. It may not do I/O either: engines live in their own packages below this one.
//
// # Who calls whom, on which thread
//
// Every guest has one owner thread, the one that polls its doorbells (see Owner). The data path, that is
// QP.PostSend, QP.RecvPosted, Poller.Progress and all callbacks of QPHandler, runs on that thread only.
// Control calls (everything else) come from the guest's command goroutine, one at a time for each guest; an
// engine that shares state with its data path makes the change inside Owner.Do. A callback never blocks, and
// never calls a control method.
package hostverbs
