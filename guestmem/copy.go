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
func copyPieces(dst *walker, doff uint64, src *walker, soff, n uint64, how mover) {
	for n > 0 {
		dh, dn := dst.piece(doff)
		sh, sn := src.piece(soff)
		k := min(n, dn, sn)
		how.move(dh, sh, k)
		doff += k
		soff += k
		n -= k
	}
	how.end()
}

// mover says how bytes are moved: through the caches, or past them.
type mover bool

const (
	cached   mover = false
	streamed mover = true
)

func (m mover) move(dst, src hostPtr, n uint64) {
	if m == streamed && canStream {
		stream(dst, src, n)
		return
	}
	move(dst, src, n)
}

// end follows the last move: what is stored from now on is seen after the bytes.
func (m mover) end() {
	if m == streamed && canStream {
		streamFence()
	}
}

// Copy moves n bytes from src to dst, which may belong to two guests, with one memory copy. Everything is checked
// before the first byte moves. Overlapping ranges are allowed only within one list that is one piece and has no page twice.
//
// It guards itself. An error is a *CopyError that says which side failed and wraps what Pages or Space say, or a
// *FaultError that names the guest whose memory failed; the bytes before a fault may have been moved.
func Copy(dst Memory, doff uint64, src Memory, soff, n uint64) error {
	return copyAs(cached, dst, doff, src, soff, n)
}

// CopyLong is Copy for a part of a message that is longer than what the caches hold for long: the bytes go past them to
// memory. That is twice as fast from 1 MiB on, also in parts and in scattered pages, and slower for what is soon read.
func CopyLong(dst Memory, doff uint64, src Memory, soff, n uint64) error {
	return copyAs(streamed, dst, doff, src, soff, n)
}

func copyAs(how mover, dst Memory, doff uint64, src Memory, soff, n uint64) (err error) {
	d, dok := dst.(*Pages)
	s, sok := src.(*Pages)
	if !dok || !sok {
		return copyAny(how, dst, doff, src, soff, n)
	}
	if !d.writable(doff, n) || !s.readable(soff, n) {
		return refuseCopy(d, doff, s, soff, n)
	}
	armed := debug.SetPanicOnFault(true)
	defer func() { // endGuard for two; a function literal is 2 ns cheaper
		r := recover()
		if !armed {
			debug.SetPanicOnFault(false)
		}
		if r != nil {
			err = blame(r, &side{walker: walker{p: d, hint: -1}, space: d.space}, doff, s.space, n)
		}
	}()
	if !d.one.isNil() && !s.one.isNil() {
		how.move(d.one.add(doff), s.one.add(soff), n)
		how.end()
		return nil
	}
	di, si := -1, -1
	for at := uint64(0); at < n; { // copyPieces without the detour
		dh, dn := d.piece(doff+at, &di)
		sh, sn := s.piece(soff+at, &si)
		k := min(n-at, dn, sn)
		how.move(dh, sh, k)
		at += k
	}
	how.end()
	return nil
}

// refuseCopy says why a copy is not allowed. It returns nil if it is allowed and has no bytes.
func refuseCopy(d *Pages, doff uint64, s *Pages, soff, n uint64) error {
	if !d.writable(doff, n) {
		if err := d.refuse(doff, n, ProtWrite); err != nil {
			return &CopyError{Dst: true, Err: err}
		}
	}
	if !s.readable(soff, n) {
		if err := s.refuse(soff, n, ProtRead); err != nil {
			return &CopyError{Err: err}
		}
	}
	if n == 0 {
		return nil
	}
	return &CopyError{Dst: true, Err: d.space.errf("copy %#x bytes: %w", n, ErrDisabled)} // enabled again meanwhile
}

// blame makes the error for what a copy to dst recovered.
func blame(r any, dst *side, doff uint64, srcSpace *Space, n uint64) error {
	e := faultOf(r, dst.space.dom, srcSpace.dom)
	return &CopyError{Dst: e.Space == dst.space && (dst.space != srcSpace || dst.contains(doff, n, e.host)), Err: e}
}

// contains says whether a host address is in a checked range.
func (w *walker) contains(off, n uint64, host uintptr) bool {
	for n > 0 {
		h, k := w.piece(off)
		if k = min(k, n); uint64(host-h.addr()) < k {
			return true
		}
		off += k
		n -= k
	}
	return false
}

// copyAny is Copy with a Space on at least one side.
func copyAny(how mover, dst Memory, doff uint64, src Memory, soff, n uint64) (err error) {
	var d, s side
	if err := d.open(dst, doff, n, ProtWrite); err != nil {
		return &CopyError{Dst: true, Err: err}
	}
	if err := s.open(src, soff, n, ProtRead); err != nil {
		d.close()
		return &CopyError{Err: err}
	}
	armed := debug.SetPanicOnFault(true)
	defer func() {
		r := recover()
		if !armed {
			debug.SetPanicOnFault(false)
		}
		s.close()
		if r != nil {
			d.hint, d.r = -1, nil
			defer d.close() // blame looks at d's table, and may panic
			err = blame(r, &d, doff, s.space, n)
			return
		}
		d.close()
	}()
	copyPieces(&d.walker, doff, &s.walker, soff, n, how)
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
