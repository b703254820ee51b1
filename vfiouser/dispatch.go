// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Flags of a device info reply, linux/vfio.h.
const (
	deviceReset = 1 << 0
	devicePCI   = 1 << 1
)

// answer is what a handler adds to the payload that it appended to link.out.
type answer struct {
	fd      int // sent along if hasFD
	hasFD   bool
	written bool // Device.Replied is due
}

// file returns the file to send along, -1 for none.
func (a answer) file() int {
	if a.hasFD {
		return a.fd
	}
	return -1
}

// dispatch serves one message. On an error the device is as it was before.
func (s *Session) dispatch(m *message) (ans answer, err error) {
	defer s.recovered(m.command, &err)
	s.link.begin()
	if faultOf(m.fdFault) == FaultTooManyFDs {
		return answer{}, m.fdFault
	}
	if err := m.checkFlags(); err != nil {
		return answer{}, err
	}
	if !s.shook && m.command != CommandVersion {
		return answer{}, refuse(FaultHandshake, unix.EINVAL, "%s before VERSION", m.command)
	}
	h, err := entryOf(m.command)
	switch {
	case err != nil:
		return answer{}, err
	case m.fdFault != nil:
		return answer{}, m.fdFault
	case m.fds.n > h.fds:
		return answer{}, refuse(FaultFDs, unix.EINVAL, "%s with %d file descriptors", m.command, m.fds.n)
	case h.body != anyBody && len(m.body) != h.body:
		return answer{}, refuse(FaultBody, unix.EINVAL, "%s with %d bytes of payload", m.command, len(m.body))
	}
	return h.serve(s, m)
}

// version serves VERSION: the client is told what is spoken, and the device is opened.
func (s *Session) version(m *message) (answer, error) {
	switch {
	case s.shook:
		return answer{}, refuse(FaultRepeatedVersion, unix.EINVAL, "another VERSION")
	case !m.wantsReply():
		return answer{}, refuse(FaultVersion, unix.EINVAL, "VERSION that wants no reply")
	}
	if err := parseVersion(m.body, &s.peer); err != nil {
		return answer{}, err
	}
	if err := s.open(); err != nil {
		return answer{}, err
	}
	if err := s.link.conn.SetReadDeadline(time.Time{}); err != nil {
		return answer{}, fmt.Errorf("end the handshake: %w", err)
	}
	s.shook = true
	s.link.out = appendVersion(s.link.out, &s.peer, len(m.body))
	s.obs.Connected(s.peer)
	return answer{}, nil
}

// open opens the device and has it describe itself.
func (s *Session) open() error {
	dev, err := s.cfg.Open(s)
	if err != nil {
		return fmt.Errorf("open the device: %w", err)
	}
	if dev == nil {
		return fmt.Errorf("open the device: there is none: %w", unix.ENODEV)
	}
	s.dev, s.opened = dev, true
	if s.regions, err = copyRegions(dev.Regions()); err != nil {
		return err
	}
	return s.irqs.describe(dev.IRQs())
}

// deviceInfo serves DEVICE_GET_INFO.
func (s *Session) deviceInfo(m *message) (answer, error) {
	if room := binary.NativeEndian.Uint32(m.body); room < deviceInfoSize {
		return answer{}, refuse(FaultArgs, unix.EINVAL, "device info into %d bytes", room)
	}
	s.link.out = binary.NativeEndian.AppendUint32(s.link.out, deviceInfoSize)
	s.link.out = binary.NativeEndian.AppendUint32(s.link.out, deviceReset|devicePCI)
	s.link.out = binary.NativeEndian.AppendUint32(s.link.out, NumRegions)
	s.link.out = binary.NativeEndian.AppendUint32(s.link.out, NumIRQs)
	return answer{}, nil
}

// reset serves DEVICE_RESET.
func (s *Session) reset(*message) (answer, error) {
	if err := s.dev.Reset(); err != nil {
		return answer{}, err
	}
	s.irqs.forget()
	return answer{}, nil
}
