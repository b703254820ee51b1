// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Flags of an IRQ info reply, linux/vfio.h.
const (
	irqInfoEventFD    = 1 << 0
	irqInfoMaskable   = 1 << 1
	irqInfoAutomasked = 1 << 2
)

// Flags of SET_IRQS, linux/vfio.h. Each has exactly one of the data flags, and exactly one of the action flags.
const (
	irqDataNone      = 1 << 0
	irqDataBool      = 1 << 1
	irqDataEventFD   = 1 << 2
	irqActionMask    = 1 << 3
	irqActionUnmask  = 1 << 4
	irqActionTrigger = 1 << 5

	irqData   = irqDataNone | irqDataBool | irqDataEventFD
	irqAction = irqActionMask | irqActionUnmask | irqActionTrigger
)

// irqSet is a SET_IRQS: struct vfio_irq_set of linux/vfio.h.
type irqSet struct {
	argsz        uint32
	data, action uint32
	unknown      uint32 // flags
	index        IRQIndex
	start, count uint32
	bools        []byte
}

// parseIRQSet reads a SET_IRQS; p has at least irqSetSize bytes.
func parseIRQSet(p []byte) irqSet {
	flags := binary.NativeEndian.Uint32(p[4:])
	return irqSet{
		argsz:   binary.NativeEndian.Uint32(p),
		data:    flags & irqData,
		action:  flags & irqAction,
		unknown: flags &^ (irqData | irqAction),
		index:   IRQIndex(binary.NativeEndian.Uint32(p[8:])),
		start:   binary.NativeEndian.Uint32(p[12:]),
		count:   binary.NativeEndian.Uint32(p[16:]),
		bools:   p[irqSetSize:],
	}
}

// check returns a violation if the set makes no sense by itself.
func (r *irqSet) check(fds int) error {
	oneOf := func(flags uint32) bool { return flags != 0 && flags&(flags-1) == 0 }
	disable := r.data == irqDataNone && r.action == irqActionTrigger && r.start == 0
	bad := func(f Fault, errno unix.Errno) error {
		return refuse(f, errno, "SET_IRQS of %s %d+%d with data %#x, action %#x, %d bytes and %d files",
			r.index, r.start, r.count, r.data, r.action, len(r.bools), fds)
	}
	switch {
	case r.argsz < irqSetSize || r.unknown != 0 || !oneOf(r.data) || !oneOf(r.action) || r.index >= NumIRQs:
		return bad(FaultArgs, unix.EINVAL)
	case r.count == 0 && !disable:
		return bad(FaultArgs, unix.EINVAL)
	case r.data == irqDataBool && uint64(len(r.bools)) != uint64(r.count), r.data != irqDataBool && len(r.bools) != 0:
		return bad(FaultBody, unix.EINVAL)
	case fds != 0 && (r.data != irqDataEventFD || uint64(fds) != uint64(r.count)):
		return bad(FaultFDs, unix.EINVAL)
	case (r.index == IRQErr || r.index == IRQReq) && r.action != irqActionTrigger:
		return bad(FaultArgs, unix.EINVAL)
	case r.data == irqDataEventFD && r.action != irqActionTrigger:
		return bad(FaultAbsent, unix.EOPNOTSUPP)
	}
	return nil
}

// setIRQs serves DEVICE_SET_IRQS.
func (s *Session) setIRQs(m *message) (answer, error) {
	if len(m.body) < irqSetSize {
		return answer{}, refuse(FaultBody, unix.EINVAL, "%s with %d bytes of payload", m.command, len(m.body))
	}
	r := parseIRQSet(m.body)
	if err := r.check(m.fds.n); err != nil {
		return answer{}, err
	}
	if have := s.irqs.count(r.index); !within(uint64(r.start), uint64(r.count), uint64(have)) {
		return answer{}, refuse(FaultArgs, unix.EINVAL, "SET_IRQS of %s %d+%d, there are %d", r.index, r.start, r.count, have)
	}
	for i := range m.fds.n {
		if err := checkEventFD(m.fds.fd[i]); err != nil {
			return answer{}, err
		}
	}
	switch {
	case r.count == 0:
		s.irqs.disable(r.index)
	case r.data == irqDataEventFD:
		s.irqs.assign(r.index, r.start, r.count, &m.fds)
	default:
		s.actOnIRQs(&r)
	}
	return answer{}, nil
}

// actOnIRQs masks, unmasks or triggers the vectors that a set names.
func (s *Session) actOnIRQs(r *irqSet) {
	for i := range r.count {
		if r.data == irqDataBool && r.bools[i] == 0 {
			continue
		}
		if r.action == irqActionTrigger {
			s.irqs.trigger(r.index, r.start+i)
		} else {
			s.irqs.mask(r.index, r.start+i, r.action == irqActionMask)
		}
	}
}

// irqInfo serves DEVICE_GET_IRQ_INFO. VFIO_IRQ_INFO_NORESIZE is never set: vectors may be assigned one by one.
func (s *Session) irqInfo(m *message) (answer, error) {
	room := binary.NativeEndian.Uint32(m.body)
	index := IRQIndex(binary.NativeEndian.Uint32(m.body[8:]))
	if room < irqInfoSize || index >= NumIRQs {
		return answer{}, refuse(FaultArgs, unix.EINVAL, "info on %s into %d bytes", index, room)
	}
	flags := uint32(irqInfoEventFD)
	if index == IRQINTx {
		// As the kernel's VFIO says it. MSI and MSI-X vectors can be masked too, but no client is led to do
		// that by a message: QEMU masks them on its own side.
		flags |= irqInfoMaskable | irqInfoAutomasked
	}
	s.link.out = binary.NativeEndian.AppendUint32(s.link.out, irqInfoSize)
	s.link.out = binary.NativeEndian.AppendUint32(s.link.out, flags)
	s.link.out = binary.NativeEndian.AppendUint32(s.link.out, uint32(index))
	s.link.out = binary.NativeEndian.AppendUint32(s.link.out, s.irqs.count(index))
	return answer{}, nil
}
