// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"fmt"
	"runtime/debug"
)

// Memory is guest memory that Copy can address: *Pages by offset, or *Space by guest address. There are no others.
type Memory interface {
	// Read copies len(b) bytes from off on into b, Write the other way. See the types for guarding.
	Read(off uint64, b []byte) error
	Write(off uint64, b []byte) error
	sealed()
}

func (*Pages) sealed() {}
func (*Space) sealed() {}

// walker finds the pieces of guest memory that are contiguous in this process. Its range was checked before.
type walker struct {
	p    *Pages // one of p and tab
	tab  *table
	hint int     // of Pages.piece
	r    *region // of tab, the last one used
}

// piece returns the host address of an offset and how many bytes follow it there without a gap.
func (w *walker) piece(off uint64) (hostPtr, uint64) {
	if w.p != nil {
		return w.p.piece(off, &w.hint)
	}
	if w.r == nil || off-w.r.addr >= w.r.size {
		w.r = w.tab.find(off)
	}
	in := off - w.r.addr
	return w.r.m.base.add(w.r.off + in), w.r.size - in
}

func (w *walker) copyOut(b []byte, off uint64) {
	for len(b) > 0 {
		h, n := w.piece(off)
		k := copy(b, h.bytes(min(n, uint64(len(b)))))
		off += uint64(k)
		b = b[k:]
	}
}

func (w *walker) copyIn(off uint64, b []byte) {
	for len(b) > 0 {
		h, n := w.piece(off)
		k := copy(h.bytes(min(n, uint64(len(b)))), b)
		off += uint64(k)
		b = b[k:]
	}
}

// copyPieces moves n bytes between two checked ranges.
func copyPieces(dst *walker, doff uint64, src *walker, soff, n uint64) {
	for n > 0 {
		dh, dn := dst.piece(doff)
		sh, sn := src.piece(soff)
		k := min(n, dn, sn)
		move(dh, sh, k)
		doff += k
		soff += k
		n -= k
	}
}

// Copy moves n bytes from src to dst, which may belong to two guests, with one memory copy. Everything is checked
// before the first byte moves. Overlapping ranges are allowed only where both are one piece.
//
// It guards itself: a fault is a *FaultError that names the guest whose memory failed, and the bytes before it may
// have been moved. Other errors are those of Pages and Space.
func Copy(dst Memory, doff uint64, src Memory, soff, n uint64) (err error) {
	d, dok := dst.(*Pages)
	s, sok := src.(*Pages)
	if !dok || !sok {
		return copyAny(dst, doff, src, soff, n)
	}
	if !d.writable(doff, n) || !s.readable(soff, n) {
		if err := d.refuse(doff, n, ProtWrite); err != nil {
			return err
		}
		return s.refuse(soff, n, ProtRead)
	}
	armed := debug.SetPanicOnFault(true)
	defer func() { // endGuard for two; a function literal is 2 ns cheaper
		r := recover()
		if !armed {
			debug.SetPanicOnFault(false)
		}
		if r != nil {
			err = faultOf(r, d.space.dom, s.space.dom)
		}
	}()
	if !d.one.isNil() && !s.one.isNil() {
		move(d.one.add(doff), s.one.add(soff), n)
		return nil
	}
	di, si := -1, -1
	for n > 0 { // copyPieces without the detour
		dh, dn := d.piece(doff, &di)
		sh, sn := s.piece(soff, &si)
		k := min(n, dn, sn)
		move(dh, sh, k)
		doff += k
		soff += k
		n -= k
	}
	return nil
}

// copyAny is Copy with a Space on at least one side.
func copyAny(dst Memory, doff uint64, src Memory, soff, n uint64) (err error) {
	var d, s side
	if err := d.open(dst, doff, n, ProtWrite); err != nil {
		return err
	}
	if err := s.open(src, soff, n, ProtRead); err != nil {
		d.close()
		return err
	}
	armed := debug.SetPanicOnFault(true)
	defer func() {
		r := recover()
		d.close()
		s.close()
		if !armed {
			debug.SetPanicOnFault(false)
		}
		if r != nil {
			err = faultOf(r, d.space.dom, s.space.dom)
		}
	}()
	copyPieces(&d.walker, doff, &s.walker, soff, n)
	return nil
}

// side is a checked range, with the Space's gate held if it is addressed by guest address.
type side struct {
	walker
	space *Space
	v     *version
}

func (o *side) open(m Memory, off, n uint64, prot Prot) error {
	switch m := m.(type) {
	case *Pages:
		o.p, o.hint, o.space = m, -1, m.space
		if !m.readable(off, n) || prot&^m.prot != 0 {
			return m.refuse(off, n, prot)
		}
		return nil
	case *Space:
		v := m.enter()
		r, err := m.checkRange(v.tab, off, n, prot)
		if err != nil {
			v.leave()
			return err
		}
		o.tab, o.r, o.space, o.v = v.tab, r, m, v
		return nil
	}
	return fmt.Errorf("copy guest memory: %w", errNilMemory)
}

func (o *side) close() {
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
	defer endGuard(debug.SetPanicOnFault(true), p.space.dom, &err)
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
	defer endGuard(debug.SetPanicOnFault(true), p.space.dom, &err)
	return p.Read(off, b)
}
