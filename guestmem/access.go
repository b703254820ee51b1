// SPDX-License-Identifier: Apache-2.0

package guestmem

// readable is the hot path's gatekeeper: the list is alive, DMA is on, and n bytes from off on lie inside. It is false
// also for n = 0, which is then looked at in refuse.
func (p *Pages) readable(off, n uint64) bool {
	limit := p.limit.Load()
	return off <= limit && n-1 < limit-off && !p.space.disabled.Load()
}

// writable is readable for a write.
func (p *Pages) writable(off, n uint64) bool {
	return p.prot&ProtWrite != 0 && p.readable(off, n)
}

// refuse says why readable or writable was false. It returns nil if the access is allowed and has no bytes.
func (p *Pages) refuse(off, n uint64, prot Prot) error {
	var cause error
	switch {
	case p.Revoked():
		cause = ErrRevoked
	case p.space.disabled.Load():
		cause = ErrDisabled
	case prot&^p.prot != 0:
		cause = errReadOnly
	case off > p.length || n > p.length-off:
		cause = errBounds
	case n == 0:
		return nil
	default:
		cause = ErrDisabled // and enabled again meanwhile
	}
	return p.space.errf("access %#x bytes at offset %#x of %#x pinned bytes: %w", n, off, p.length, cause)
}

// refuseWord is refuse for a word that may be misaligned.
func (p *Pages) refuseWord(off, size uint64, prot Prot) error {
	if off&(size-1) != 0 {
		return p.space.errf("word of %d bytes at offset %#x: %w", size, off, errWord)
	}
	return p.refuse(off, size, prot)
}

// at returns the host address of an offset inside the list.
func (p *Pages) at(off uint64) hostPtr {
	if !p.one.isNil() {
		return p.one.add(off)
	}
	return p.atScattered(off)
}

func (p *Pages) atScattered(off uint64) hostPtr {
	hint := -1
	h, _ := p.layout.piece(off, &hint)
	return h
}

// piece returns the host address of an offset inside the list, and how many bytes follow it there without a gap. hint
// is for the layout, -1 at first.
func (p *Pages) piece(off uint64, hint *int) (hostPtr, uint64) {
	if !p.one.isNil() {
		return p.one.add(off), p.length - off
	}
	return p.layout.piece(off, hint)
}

// Read copies len(b) bytes from offset off on into b.
func (p *Pages) Read(off uint64, b []byte) error {
	n := uint64(len(b))
	if !p.readable(off, n) {
		return p.refuse(off, n, ProtRead)
	}
	hint := -1
	if h, have := p.piece(off, &hint); n <= have { // as nearly always
		copy(b, h.bytes(n))
		return nil
	}
	w := walker{p: p, hint: -1}
	w.copyOut(b, off)
	return nil
}

// Write copies b to offset off.
func (p *Pages) Write(off uint64, b []byte) error {
	n := uint64(len(b))
	if !p.writable(off, n) {
		return p.refuse(off, n, ProtWrite)
	}
	hint := -1
	if h, have := p.piece(off, &hint); n <= have { // as nearly always
		copy(h.bytes(n), b)
		return nil
	}
	w := walker{p: p, hint: -1}
	w.copyIn(off, b)
	return nil
}

// Load32 reads the word at off, which is a multiple of 4 (else EINVAL), atomically, in the host's byte order.
func (p *Pages) Load32(off uint64) (uint32, error) {
	if off%4 != 0 || !p.readable(off, 4) {
		return 0, p.refuseWord(off, 4, ProtRead)
	}
	return p.at(off).load32(), nil
}

// Store32 writes the word at off, which is a multiple of 4 (else EINVAL), atomically and sequentially consistent.
func (p *Pages) Store32(off uint64, v uint32) error {
	if off%4 != 0 || !p.writable(off, 4) {
		return p.refuseWord(off, 4, ProtWrite)
	}
	p.at(off).store32(v)
	return nil
}

// Publish32 writes the word at off, which is a multiple of 4 (else EINVAL), atomically: whoever sees it sees all that was
// stored before. Unlike Store32 it does not wait until others can see it, so that a later load may be older.
func (p *Pages) Publish32(off uint64, v uint32) error {
	if off%4 != 0 || !p.writable(off, 4) {
		return p.refuseWord(off, 4, ProtWrite)
	}
	storeRelease32(p.at(off).p, v)
	return nil
}

// Load64 reads the word at off, which is a multiple of 8 (else EINVAL), atomically, in the host's byte order.
func (p *Pages) Load64(off uint64) (uint64, error) {
	if off%8 != 0 || !p.readable(off, 8) {
		return 0, p.refuseWord(off, 8, ProtRead)
	}
	return p.at(off).load64(), nil
}

// Store64 writes the word at off, which is a multiple of 8 (else EINVAL), atomically and sequentially consistent.
func (p *Pages) Store64(off, v uint64) error {
	if off%8 != 0 || !p.writable(off, 8) {
		return p.refuseWord(off, 8, ProtWrite)
	}
	p.at(off).store64(v)
	return nil
}
