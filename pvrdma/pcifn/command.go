// SPDX-License-Identifier: Apache-2.0

package pcifn

import (
	"errors"
	"fmt"

	"github.com/pvrdmad/pvrdmad/pvrdma"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// maxErrno is the largest errno that a response can carry: its field has one byte.
const maxErrno = 255

// errnoOf returns the errno that an error wraps, EIO if it wraps none.
func errnoOf(err error) unix.Errno {
	var errno unix.Errno
	if errors.As(err, &errno) && errno > 0 && errno <= maxErrno {
		return errno
	}
	return unix.EIO
}

// takeRequest copies the command slot. The copy is executed once the register write has been answered, and before the next
// register is read, so that the read of ERR finds the outcome.
func (s *session) takeRequest() {
	if !s.dsr.valid || !s.dev.Active() {
		s.result("command", pvrdma.BadState, errNotActive)
		return
	}
	if err := s.mem.Read(s.dsr.dsr.CmdSlotDMA, s.request[:]); err != nil {
		s.slotFailed("read the command slot", err)
		return
	}
	s.requested = true
}

// execute runs the copied command and tells the guest the outcome by every way that its driver looks at. Only MODIFY_QP has
// its errno taken from the response; all others fail by the ERR register, and by an acknowledgement that is not theirs in
// case another register write of the guest has set ERR meanwhile.
func (s *session) execute() {
	var asked abi.CmdHeader
	_ = asked.Decode(s.request[:]) // the slot holds a header
	err := s.guarded(func() error { return s.dev.Exec(&s.request, &s.response) })
	s.regs.err = 0
	if err != nil {
		errno := errnoOf(err)
		h := abi.RespHeader{Response: asked.Response, Err: uint8(errno)}
		if asked.Cmd == abi.CmdModifyQP {
			h.Ack = asked.Cmd.Ack()
		} else {
			s.regs.err = uint32(errno)
		}
		s.response = pvrdma.Response{}
		h.Encode(s.response[:])
	}
	if err := s.mem.Write(s.dsr.dsr.RespSlotDMA, s.response[:]); err != nil {
		s.slotFailed("write the response slot", err)
	}
	s.events.raise(abi.IntrVectorResponse)
}

// guarded runs a command. A panic in it resets this guest's device, and nobody else's.
func (s *session) guarded(fn func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("command of %s: %v: %w", s.name(), r, unix.EIO)
			s.events.Failed(err)
		}
	}()
	return fn()
}
