// SPDX-License-Identifier: Apache-2.0

package guestmem

// Lines that a guest has written last, or looked at, are in its processor's cache. To get one takes as long as the rest of
// a message, and an ordinary access waits for it. Who knows early what it will need asks here and goes on. An access
// that is not allowed is not made, and one that would fault does not.

// listBytes are what an access reads of a list that is one piece.
const listBytes = 64

// PrefetchList asks for what an access reads of the list itself.
func (p *Pages) PrefetchList() { PrefetchObject(p, listBytes) }

// Prefetch asks for the lines of n bytes at off, as far as they are contiguous in this process, to be read soon.
func (p *Pages) Prefetch(off, n uint64) {
	if !p.readable(off, n) {
		return
	}
	hint := -1
	h, have := p.piece(off, &hint)
	prefetchRead(h.p, uintptr(min(n, have)))
}
