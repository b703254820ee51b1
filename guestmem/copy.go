// SPDX-License-Identifier: Apache-2.0

package guestmem

import "fmt"

// Memory is guest memory that Copy can address: *Pages by offset, or *Space by guest address. There are no others.
type Memory interface {
	// Read copies len(b) bytes from off on into b, Write the other way. See the types for guarding.
	Read(off uint64, b []byte) error
	Write(off uint64, b []byte) error
	sealed()
}

func (*Pages) sealed() {}
func (*Space) sealed() {}

// cursor walks guest memory in pieces that are contiguous in this process. Its range was checked before.
type cursor struct {
	p   *Pages // one of p and tab
	tab *table
	off uint64

	started bool
	i       int // run number
	h       hostPtr
	n       uint64 // bytes at h; 0: look again
}

// piece makes h and n the piece at the cursor.
func (c *cursor) piece() {
	switch {
	case c.p == nil:
		r := c.tab.find(c.off)
		in := c.off - r.addr
		c.h, c.n = r.m.base.add(r.off+in), r.size-in
	case c.p.runs == nil:
		c.h, c.n = c.p.at(c.off)
	default:
		if c.started {
			c.i++
		} else {
			c.i, c.started = c.p.runOf(c.off), true
		}
		c.h, c.n = c.p.inRun(c.i, c.off)
	}
}

// skip moves the cursor by k bytes, at most n.
func (c *cursor) skip(k uint64) {
	c.off += k
	c.n -= k
	if c.n > 0 {
		c.h = c.h.add(k)
	}
}

func (c *cursor) copyOut(b []byte) {
	for len(b) > 0 {
		c.piece()
		k := copy(b, c.h.bytes(min(c.n, uint64(len(b)))))
		c.off += uint64(k)
		b = b[k:]
	}
}

func (c *cursor) copyIn(b []byte) {
	for len(b) > 0 {
		c.piece()
		k := copy(c.h.bytes(min(c.n, uint64(len(b)))), b)
		c.off += uint64(k)
		b = b[k:]
	}
}

// copyPieces moves n bytes between two checked ranges.
func copyPieces(dst, src *cursor, n uint64) {
	for n > 0 {
		if dst.n == 0 {
			dst.piece()
		}
		if src.n == 0 {
			src.piece()
		}
		k := min(n, dst.n, src.n)
		move(dst.h, src.h, k)
		dst.skip(k)
		src.skip(k)
		n -= k
	}
}

// Copy moves n bytes from src to dst, which may belong to two guests, with one memory copy. Everything is checked
// before the first byte moves. Overlapping ranges are allowed only where both are one piece.
//
// It guards itself: a fault is a *FaultError that names the guest whose memory failed, and the bytes before it may
// have been moved. Other errors are those of Pages and Space.
func Copy(dst Memory, doff uint64, src Memory, soff, n uint64) error {
	if d, ok := dst.(*Pages); ok {
		if s, ok := src.(*Pages); ok {
			return copyPages(d, doff, s, soff, n)
		}
	}
	return copyAny(dst, doff, src, soff, n)
}

func copyPages(dst *Pages, doff uint64, src *Pages, soff, n uint64) (err error) {
	if err := dst.checkWrite(doff, n); err != nil {
		return err
	}
	if err := src.check(soff, n); err != nil || n == 0 {
		return err
	}
	var g guard
	defer g.recover2(dst.space.dom, src.space.dom, &err)
	g.arm()
	if dst.nruns == 1 && src.nruns == 1 {
		move(dst.one.add(doff), src.one.add(soff), n)
		return nil
	}
	copyPieces(&cursor{p: dst, off: doff}, &cursor{p: src, off: soff}, n)
	return nil
}

func copyAny(dst Memory, doff uint64, src Memory, soff, n uint64) (err error) {
	d, err := open(dst, doff, n, ProtWrite)
	if err != nil {
		return err
	}
	defer d.close()
	s, err := open(src, soff, n, ProtRead)
	if err != nil {
		return err
	}
	defer s.close()
	if n == 0 {
		return nil
	}
	var g guard
	defer g.recover2(d.space.dom, s.space.dom, &err)
	g.arm()
	copyPieces(&d.cursor, &s.cursor, n)
	return nil
}

// opened is a checked range, with the Space's gate held if it is addressed by guest address.
type opened struct {
	cursor
	space *Space
	v     *version
}

func open(m Memory, off, n uint64, prot Prot) (opened, error) {
	switch m := m.(type) {
	case *Pages:
		err := m.check(off, n)
		if prot&ProtWrite != 0 {
			err = m.checkWrite(off, n)
		}
		return opened{cursor: cursor{p: m, off: off}, space: m.space}, err
	case *Space:
		v := m.enter()
		if err := m.checkRange(v.tab, off, n, prot); err != nil {
			v.leave()
			return opened{}, err
		}
		return opened{cursor: cursor{tab: v.tab, off: off}, space: m, v: v}, nil
	}
	return opened{}, fmt.Errorf("copy guest memory: %w", errNilMemory)
}

func (o *opened) close() {
	if o.v != nil {
		o.v.leave()
	}
}

// CopyIn is dst.Write(off, b), guarded as Copy is.
func CopyIn(dst Memory, off uint64, b []byte) (err error) {
	p, ok := dst.(*Pages)
	if !ok {
		if dst == nil {
			return fmt.Errorf("write guest memory: %w", errNilMemory)
		}
		return dst.Write(off, b)
	}
	var g guard
	defer g.recover2(p.space.dom, p.space.dom, &err)
	g.arm()
	return p.Write(off, b)
}

// CopyOut is src.Read(off, b), guarded as Copy is.
func CopyOut(b []byte, src Memory, off uint64) (err error) {
	p, ok := src.(*Pages)
	if !ok {
		if src == nil {
			return fmt.Errorf("read guest memory: %w", errNilMemory)
		}
		return src.Read(off, b)
	}
	var g guard
	defer g.recover2(p.space.dom, p.space.dom, &err)
	g.arm()
	return p.Read(off, b)
}
