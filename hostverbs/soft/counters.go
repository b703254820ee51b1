// SPDX-License-Identifier: Apache-2.0

package soft

import (
	"sync/atomic"
	"time"

	"github.com/pvrdmad/pvrdmad/hostverbs"
)

// Counters is what an engine has done since it began.
type Counters struct {
	// Messages and their bytes that arrived, by operation.
	Sends, Writes, Reads, Atomics                 uint64
	SendBytes, WriteBytes, ReadBytes, AtomicBytes uint64
	// Completions counts completions delivered to devices, by status.
	Completions [statuses]uint64
	// RNRNAKs counts messages that found no receive and were tried again, Retries those that found no peer.
	RNRNAKs, Retries uint64
	// Registrations counts fast registrations, Invalidations the regions that requests and messages have freed.
	Registrations, Invalidations uint64
	// Drops counts messages of unreliable queue pairs that reached nobody, by DropReason.
	Drops [dropReasons]uint64
	// Forwarded counts messages on their way to a guest of another owner.
	Forwarded uint64
	// MemoryFaults counts copies that ended because a guest's memory was taken away under them.
	MemoryFaults uint64
}

// statuses is the number of completion statuses.
const statuses = int(hostverbs.WCGeneralErr) + 1

// Places in the array of counters.
const (
	cntSends = iota
	cntSendBytes
	cntWrites
	cntWriteBytes
	cntReads
	cntReadBytes
	cntAtomics
	cntAtomicBytes
	cntRegistrations
	cntInvalidations
	cntRNRNAKs
	cntRetries
	cntMemoryFaults
	cntForwarded
	cntDrops
	cntCompletions = cntDrops + int(dropReasons)
	counters       = cntCompletions + statuses
)

// publishEvery is how old the published counters may be, in ns.
const publishEvery = int64(10 * time.Millisecond)

// counts are a poller's counters: counted without atomics, published now and then for others to read.
type counts struct {
	// live belongs to the owner's thread.
	live  [counters]uint64
	dirty bool
	due   int64
	// shared is written by the owner's thread and read by anybody.
	shared [counters]atomic.Uint64
}

// add counts n of something.
func (c *counts) add(i int, n uint64) {
	c.live[i] += n
	c.dirty = true
}

// message counts a message that has arrived.
func (c *counts) message(o hostverbs.WROpcode, n uint64) {
	i := cntSends
	switch o {
	case hostverbs.OpRDMAWrite, hostverbs.OpRDMAWriteWithImm:
		i = cntWrites
	case hostverbs.OpRDMARead:
		i = cntReads
	case hostverbs.OpAtomicCmpAndSwp, hostverbs.OpAtomicFetchAndAdd:
		i = cntAtomics
	}
	c.live[i]++
	c.live[i+1] += n
	c.dirty = true
}

// completion counts a completion.
func (c *counts) completion(s hostverbs.WCStatus) {
	if int(s) >= statuses {
		s = hostverbs.WCGeneralErr
	}
	c.add(cntCompletions+int(s), 1)
}

// publish makes the counters visible when that is due, and returns when it is due next, 0 for never.
func (c *counts) publish(now int64) int64 {
	if !c.dirty {
		return 0
	}
	if now < c.due {
		return c.due
	}
	for i := range c.live {
		c.shared[i].Store(c.live[i])
	}
	c.dirty = false
	c.due = now + publishEvery
	return 0
}

// Counters returns what the engine has done, as of at most 10 ms before the last Progress of each poller that is open. Any goroutine may
// call it.
func (e *Engine) Counters() Counters {
	pollers := e.open(nil)
	at := func(i int) (n uint64) {
		for _, pl := range pollers {
			n += pl.count.shared[i].Load()
		}
		return n
	}
	c := Counters{
		Sends: at(cntSends), SendBytes: at(cntSendBytes),
		Writes: at(cntWrites), WriteBytes: at(cntWriteBytes),
		Reads: at(cntReads), ReadBytes: at(cntReadBytes),
		Atomics: at(cntAtomics), AtomicBytes: at(cntAtomicBytes),
		Registrations: at(cntRegistrations), Invalidations: at(cntInvalidations),
		RNRNAKs: at(cntRNRNAKs), Retries: at(cntRetries),
		MemoryFaults: at(cntMemoryFaults), Forwarded: at(cntForwarded),
	}
	for i := range c.Drops {
		c.Drops[i] = at(cntDrops + i)
	}
	for i := range c.Completions {
		c.Completions[i] = at(cntCompletions + i)
	}
	return c
}
