// SPDX-License-Identifier: Apache-2.0

package guestmem

import "runtime/debug"

// Read copies len(p) bytes from guest address addr on into p, across regions. It guards itself and may run on any
// goroutine. Errors wrap EFAULT: a hole, a region without memory or permission, ErrDisabled, a *FaultError; nothing
// is read then except before a fault. A range that wraps around is EINVAL.
func (s *Space) Read(addr uint64, p []byte) error { return s.direct(addr, p, ProtRead) }

// Write copies p to guest address addr, across regions. It guards itself and may run on any goroutine. Errors are
// those of Read, with regions that are not writable; nothing is written then except before a fault.
func (s *Space) Write(addr uint64, p []byte) error { return s.direct(addr, p, ProtWrite) }

// direct copies between b and the guest address addr.
func (s *Space) direct(addr uint64, b []byte, prot Prot) (err error) {
	v := s.enter()
	r, err := s.checkRange(v.tab, addr, uint64(len(b)), prot)
	if err != nil {
		v.leave()
		return err
	}
	armed := debug.SetPanicOnFault(true)
	defer func() {
		r := recover()
		v.leave()
		if !armed {
			debug.SetPanicOnFault(false)
		}
		if r != nil {
			err = faultOf(r, s.dom, s.dom)
		}
	}()
	w := walker{tab: v.tab, r: r}
	if prot == ProtRead {
		w.copyOut(b, addr)
	} else {
		w.copyIn(addr, b)
	}
	return nil
}

// checkRange checks that DMA is on and that every byte of a range is mapped and allows prot. It returns the region
// in which the range begins, nil for an empty range.
func (s *Space) checkRange(t *table, addr, n uint64, prot Prot) (*region, error) {
	if s.disabled.Load() {
		return nil, s.errf("access %#x+%#x: %w", addr, n, ErrDisabled)
	}
	if n == 0 {
		return nil, nil
	}
	if addr+(n-1) < addr {
		return nil, s.errf("access %#x+%#x: %w", addr, n, errOverflow)
	}
	first := t.find(addr)
	// Every round covers a whole region, of which there are at most MaxRegions.
	for r, at, left := first, addr, n; ; r = t.find(at) {
		if err := usable(r, prot); err != nil {
			return nil, s.errf("access %#x+%#x at %#x: %w", addr, n, at, err)
		}
		step := r.size - (at - r.addr)
		if step >= left {
			return first, nil
		}
		at += step
		left -= step
	}
}
