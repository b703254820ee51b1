// SPDX-License-Identifier: Apache-2.0

package pcifn

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/pvrdmad/pvrdmad/pvrdma"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// errPowerOn is the ERR register before any CTL or REQUEST.
const errPowerOn = 0xffff

// registers is BAR1. The session's mutex guards it, except for what the worker reads.
type registers struct {
	version uint32
	dsrLow  uint32
	err     uint32
	mac     [8]byte
	// imr masks interrupts, icr collects their causes. The worker reads and writes them when it raises one.
	imr, icr atomic.Uint32
}

// power sets the registers to their state after power-on.
func (r *registers) power(version uint32, mac [6]byte) {
	r.version = version
	r.dsrLow, r.err = 0, errPowerOn
	r.mac = [8]byte{}
	copy(r.mac[:], mac[:])
	r.imr.Store(^uint32(0))
	r.icr.Store(0)
}

func (r *registers) read(off uint64) uint32 {
	switch off {
	case abi.RegVersion:
		return r.version
	case abi.RegErr:
		return r.err
	case abi.RegICR:
		return r.icr.Swap(0)
	case abi.RegIMR:
		return r.imr.Load()
	case abi.RegMACLow:
		return binary.LittleEndian.Uint32(r.mac[:4])
	case abi.RegMACHigh:
		return binary.LittleEndian.Uint32(r.mac[4:])
	}
	return 0
}

func (s *session) writeRegister(off uint64, v uint32) {
	s.writtenRegister(off, v)
	switch off {
	case abi.RegDSRLow:
		s.regs.dsrLow = v
	case abi.RegDSRHigh:
		s.result("load the shared region", pvrdma.BadDSR, s.loadDSR(uint64(v)<<32|uint64(s.regs.dsrLow)))
	case abi.RegCtl:
		s.control(abi.DeviceCtl(v))
	case abi.RegRequest:
		s.takeRequest()
	case abi.RegIMR:
		s.regs.imr.Store(v)
	case abi.RegMACLow, abi.RegMACHigh:
		// Writable in the header, without a meaning: the configuration says what the address is.
	default:
		s.violation(pvrdma.BadRegister, fmt.Errorf("write %#x to register %s: %w", v, abi.RegName(off), unix.EINVAL))
	}
}

var (
	errNotActive = fmt.Errorf("the device is not switched on, its driver has not done it yet or the device was reset since: %w",
		unix.ENODEV)
	errNoControl = fmt.Errorf("there are %v, %v and %v: %w", abi.DeviceCtlActivate, abi.DeviceCtlUnquiesce,
		abi.DeviceCtlReset, unix.EINVAL)
)

// result sets ERR to the outcome of a register write.
func (s *session) result(what string, reason pvrdma.GuestErrorReason, err error) {
	s.regs.err = 0
	if err != nil {
		s.regs.err = uint32(errnoOf(err))
		s.violation(reason, fmt.Errorf("%s: %w", what, err))
	}
}

func (s *session) control(c abi.DeviceCtl) {
	switch c {
	case abi.DeviceCtlActivate:
		s.result("activate", pvrdma.BadState, s.activate())
	case abi.DeviceCtlUnquiesce:
		var err error
		if !s.dev.Active() {
			err = errNotActive
		}
		s.result("unquiesce", pvrdma.BadState, err)
	case abi.DeviceCtlReset:
		s.toIdle(pvrdma.ResetByDriver, nil)
		s.enter(pvrdma.NoError, nil)
		s.regs.err = 0
	default:
		s.result(fmt.Sprintf("control %v", c), pvrdma.BadRegister, errNoControl)
	}
}
