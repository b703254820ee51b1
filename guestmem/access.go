// SPDX-License-Identifier: Apache-2.0

package guestmem

import "sort"

// check is the hot path's gatekeeper: the list is alive, DMA is on, and n bytes from off on lie inside.
func (p *Pages) check(off, n uint64) error {
	if p.revoked.Load() || p.space.disabled.Load() || off > p.length || n > p.length-off {
		return p.refuse(off, n)
	}
	return nil
}

// checkWrite is check for a write.
func (p *Pages) checkWrite(off, n uint64) error {
	if p.prot&ProtWrite == 0 {
		return p.space.errf("write %#x bytes at offset %#x: %w", n, off, errReadOnly)
	}
	return p.check(off, n)
}

// refuse says why check failed. It is apart so that check stays small.
func (p *Pages) refuse(off, n uint64) error {
	cause := errBounds
	if p.revoked.Load() {
		cause = ErrRevoked
	} else if p.space.disabled.Load() {
		cause = ErrDisabled
	}
	return p.space.errf("access %#x bytes at offset %#x of %#x pinned bytes: %w", n, off, p.length, cause)
}

// at returns the host address of an offset inside the list, and how many bytes follow it there without a gap.
func (p *Pages) at(off uint64) (hostPtr, uint64) {
	if p.nruns == 1 {
		return p.one.add(off), p.length - off
	}
	return p.atRun(off)
}

func (p *Pages) atRun(off uint64) (hostPtr, uint64) {
	if p.flat != nil {
		in := off % PageSize
		return p.host(p.flat[off/PageSize]).add(in), PageSize - in
	}
	i := p.runOf(off)
	return p.inRun(i, off)
}

// runOf returns the number of the run that contains an offset.
func (p *Pages) runOf(off uint64) int {
	return sort.Search(len(p.runs), func(i int) bool { return p.runs[i].start > off }) - 1
}

// inRun is at for an offset in run i.
func (p *Pages) inRun(i int, off uint64) (hostPtr, uint64) {
	end := p.length
	if i+1 < len(p.runs) {
		end = p.runs[i+1].start
	}
	r := p.runs[i]
	return p.host(r.at).add(off - r.start), end - off
}

// Read copies len(b) bytes from offset off on into b.
func (p *Pages) Read(off uint64, b []byte) error {
	n := uint64(len(b))
	if err := p.check(off, n); err != nil || n == 0 {
		return err
	}
	h, left := p.at(off)
	if left >= n {
		copy(b, h.bytes(n))
		return nil
	}
	c := cursor{p: p, off: off}
	c.copyOut(b)
	return nil
}

// Write copies b to offset off.
func (p *Pages) Write(off uint64, b []byte) error {
	n := uint64(len(b))
	if err := p.checkWrite(off, n); err != nil || n == 0 {
		return err
	}
	h, left := p.at(off)
	if left >= n {
		copy(h.bytes(n), b)
		return nil
	}
	c := cursor{p: p, off: off}
	c.copyIn(b)
	return nil
}

// word checks an aligned word of size bytes and returns its host address.
func (p *Pages) word(off, size uint64) (hostPtr, error) {
	if err := p.check(off, size); err != nil {
		return hostPtr{}, err
	}
	if off&(size-1) != 0 {
		return hostPtr{}, p.space.errf("word of %d bytes at offset %#x: %w", size, off, errWord)
	}
	h, _ := p.at(off)
	return h, nil
}

// wordToWrite is word for a write.
func (p *Pages) wordToWrite(off, size uint64) (hostPtr, error) {
	if p.prot&ProtWrite == 0 {
		return hostPtr{}, p.space.errf("write word at offset %#x: %w", off, errReadOnly)
	}
	return p.word(off, size)
}

// Load32 reads the word at off, which is a multiple of 4 (else EINVAL), atomically, in the host's byte order.
func (p *Pages) Load32(off uint64) (uint32, error) {
	h, err := p.word(off, 4)
	if err != nil {
		return 0, err
	}
	return h.load32(), nil
}

// Store32 writes the word at off, which is a multiple of 4 (else EINVAL), atomically and sequentially consistent.
func (p *Pages) Store32(off uint64, v uint32) error {
	h, err := p.wordToWrite(off, 4)
	if err != nil {
		return err
	}
	h.store32(v)
	return nil
}

// Load64 reads the word at off, which is a multiple of 8 (else EINVAL), atomically, in the host's byte order.
func (p *Pages) Load64(off uint64) (uint64, error) {
	h, err := p.word(off, 8)
	if err != nil {
		return 0, err
	}
	return h.load64(), nil
}

// Store64 writes the word at off, which is a multiple of 8 (else EINVAL), atomically and sequentially consistent.
func (p *Pages) Store64(off, v uint64) error {
	h, err := p.wordToWrite(off, 8)
	if err != nil {
		return err
	}
	h.store64(v)
	return nil
}

// CompareAndSwap64 writes val to the word at off, which is a multiple of 8 (else EINVAL), if it holds old, and says
// whether it did. It is atomic also towards the guest's processors.
func (p *Pages) CompareAndSwap64(off, old, val uint64) (bool, error) {
	h, err := p.wordToWrite(off, 8)
	if err != nil {
		return false, err
	}
	return h.cas64(old, val), nil
}
