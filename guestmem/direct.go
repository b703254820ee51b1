// SPDX-License-Identifier: Apache-2.0

package guestmem

// Read copies len(p) bytes from guest address addr on into p, across regions. It guards itself and may run on any
// goroutine. Errors wrap EFAULT: a hole, a region without memory or permission, ErrDisabled, a *FaultError; nothing
// is read then except before a fault.
func (s *Space) Read(addr uint64, p []byte) (err error) {
	v := s.enter()
	defer v.leave()
	n := uint64(len(p))
	if err := s.checkRange(v.tab, addr, n, ProtRead); err != nil || n == 0 {
		return err
	}
	var g guard
	defer g.recover2(s.dom, s.dom, &err)
	g.arm()
	c := cursor{tab: v.tab, off: addr}
	c.copyOut(p)
	return nil
}

// Write copies p to guest address addr, across regions. It guards itself and may run on any goroutine. Errors are
// those of Read, with regions that are not writable; nothing is written then except before a fault.
func (s *Space) Write(addr uint64, p []byte) (err error) {
	v := s.enter()
	defer v.leave()
	n := uint64(len(p))
	if err := s.checkRange(v.tab, addr, n, ProtWrite); err != nil || n == 0 {
		return err
	}
	var g guard
	defer g.recover2(s.dom, s.dom, &err)
	g.arm()
	c := cursor{tab: v.tab, off: addr}
	c.copyIn(p)
	return nil
}

// checkRange checks that DMA is on and that every byte of a range is mapped and allows prot.
func (s *Space) checkRange(t *table, addr, n uint64, prot Prot) error {
	if s.disabled.Load() {
		return s.errf("access %#x+%#x: %w", addr, n, ErrDisabled)
	}
	if n == 0 {
		return nil
	}
	if addr+(n-1) < addr {
		return s.errf("access %#x+%#x: %w", addr, n, errOverflow)
	}
	// Every round covers a whole region, of which there are at most MaxRegions.
	for at, left := addr, n; ; {
		r := t.find(at)
		if err := usable(r, prot); err != nil {
			return s.errf("access %#x+%#x at %#x: %w", addr, n, at, err)
		}
		if step := r.size - (at - r.addr); step < left {
			at += step
			left -= step
			continue
		}
		return nil
	}
}
