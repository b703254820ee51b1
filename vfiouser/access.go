// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"
)

// access is a REGION_READ or REGION_WRITE, or one write of a REGION_WRITE_MULTI.
type access struct {
	off   uint64
	index RegionIndex
	count uint32
}

// parseAccess reads an access; p has at least regionAccessSize bytes.
func parseAccess(p []byte) access {
	return access{
		off:   binary.NativeEndian.Uint64(p),
		index: RegionIndex(binary.NativeEndian.Uint32(p[8:])),
		count: binary.NativeEndian.Uint32(p[12:]),
	}
}

// append appends an access, as the reply begins with it.
func (a access) append(out []byte) []byte {
	out = binary.NativeEndian.AppendUint64(out, a.off)
	out = binary.NativeEndian.AppendUint32(out, uint32(a.index))
	return binary.NativeEndian.AppendUint32(out, a.count)
}

// check returns a violation if a device may not be given the access.
func (a access) check(regions *[NumRegions]Region, need RegionFlags) error {
	switch {
	case a.index >= NumRegions:
		return refuse(FaultArgs, unix.EINVAL, "access to %s", a.index)
	case a.count > MaxTransfer:
		return refuse(FaultLimit, unix.EINVAL, "access of %d bytes, more than %d", a.count, MaxTransfer)
	}
	r := &regions[a.index]
	switch {
	case !within(a.off, uint64(a.count), r.Size):
		return refuse(FaultArgs, unix.EINVAL, "access to %s at %#x+%#x, which has %#x bytes", a.index, a.off, a.count, r.Size)
	case r.Flags&need == 0:
		return refuse(FaultArgs, unix.EACCES, "access to %s, which has flags %#x", a.index, uint32(r.Flags))
	}
	return nil
}

// regionRead serves REGION_READ.
func (s *Session) regionRead(m *message) (answer, error) {
	a := parseAccess(m.body)
	if err := a.check(&s.regions, RegionRead); err != nil {
		return answer{}, err
	}
	out := a.append(s.link.out)
	n := len(out)
	out = out[:n+int(a.count)] // out was made with room for MaxTransfer
	clear(out[n:])
	if a.count > 0 {
		if err := s.dev.ReadRegion(a.index, a.off, out[n:]); err != nil {
			return answer{}, err
		}
	}
	s.link.out = out
	return answer{}, nil
}

// regionWrite serves REGION_WRITE.
func (s *Session) regionWrite(m *message) (answer, error) {
	if len(m.body) < regionAccessSize {
		return answer{}, refuse(FaultBody, unix.EINVAL, "%s with %d bytes of payload", m.command, len(m.body))
	}
	a := parseAccess(m.body)
	data := m.body[regionAccessSize:]
	if uint64(a.count) != uint64(len(data)) {
		return answer{}, refuse(FaultBody, unix.EINVAL, "%s of %d bytes with %d", m.command, a.count, len(data))
	}
	if err := a.check(&s.regions, RegionWrite); err != nil {
		return answer{}, err
	}
	if a.count > 0 {
		if err := s.dev.WriteRegion(a.index, a.off, data); err != nil {
			return answer{}, err
		}
	}
	s.link.out = a.append(s.link.out)
	return answer{written: a.count > 0}, nil
}

// regionWriteMulti serves REGION_WRITE_MULTI: each write like a posted one that came alone. A write that fails is
// reported and left out, since QEMU has told the guest already that all of them are done; the number of those
// that did not fail is the answer.
func (s *Session) regionWriteMulti(m *message) (answer, error) {
	if len(m.body) < multiHeaderSize {
		return answer{}, refuse(FaultBody, unix.EINVAL, "%s with %d bytes of payload", m.command, len(m.body))
	}
	count := binary.NativeEndian.Uint64(m.body)
	// MaxFrame bounds the number of writes, to 2729.
	writes := m.body[multiHeaderSize:]
	if len(writes)%multiWriteSize != 0 || count != uint64(len(writes)/multiWriteSize) {
		return answer{}, refuse(FaultBody, unix.EINVAL, "%s of %d writes with %d bytes", m.command, count, len(m.body))
	}
	var done uint64
	var written bool
	var failed error
	last := time.Now()
	for ; len(writes) > 0 && !s.isOver(); writes = writes[multiWriteSize:] {
		if written {
			s.dev.Replied()
		}
		now := time.Now()
		if s.deserted(now.Sub(last)) {
			s.stop(&ending{ReasonClientClosed, nil})
			break
		}
		last = now
		if written = s.writeOne(writes[:multiWriteSize], &failed); written {
			done++
		}
	}
	if failed != nil {
		s.obs.Refused(Refusal{Peer: s.peer, Command: m.command, Fault: faultOf(failed), Errno: errnoOf(failed), Err: failed})
	}
	s.link.out = binary.NativeEndian.AppendUint64(s.link.out, done)
	return answer{written: written}, nil
}

// writeOne serves one write of a REGION_WRITE_MULTI. It returns whether it was done; the first one that was not
// leaves its error in failed.
func (s *Session) writeOne(p []byte, failed *error) bool {
	a := parseAccess(p)
	err := a.check(&s.regions, RegionWrite)
	switch {
	case err != nil:
	case a.count == 0 || a.count > multiWriteSize-regionAccessSize:
		err = refuse(FaultArgs, unix.EINVAL, "write of %d bytes in a REGION_WRITE_MULTI", a.count)
	default:
		err = s.dev.WriteRegion(a.index, a.off, p[regionAccessSize:][:a.count])
	}
	if err != nil && *failed == nil {
		*failed = err
	}
	return err == nil
}
