// SPDX-License-Identifier: Apache-2.0

package pcifn

import (
	"errors"
	"fmt"
	"time"

	"github.com/pvrdmad/pvrdmad/pvrdma"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

var (
	errNotProbed = errors.New("no driver has probed the device since the virtual machine attached or was reset")
	errUnenabled = errors.New("no firmware and no kernel has enabled the function since the virtual machine attached or was reset")
)

// enter puts the device into an error state, or with NoError out of one. err is nil if the cause was reported already.
func (s *session) enter(e pvrdma.ErrorState, err error) {
	if s.state == e {
		return
	}
	s.state = e
	if s.observer != nil {
		s.observer.Observe(pvrdma.ErrorStateChanged{Guest: pvrdma.Guest{Name: s.name()}, State: e, Err: err})
	}
}

// busMasterOff stops the device before the function loses its right to reach memory. The device has no way to tell: events
// and interrupts are writes to memory. Nor can it go on later where it was, since whoever switches bus mastering on again
// need not be who switched it off: a kernel that replaces another (kexec) does both, and the old one's memory is its own
// by then. So the device is reset, and what its driver asks of it fails until a driver starts anew.
func (s *session) busMasterOff() {
	if s.dev.Active() {
		s.toIdle(pvrdma.ResetByBusMaster, nil)
		s.regs.err = uint32(unix.EIO)
		s.enter(pvrdma.ErrorBusMasterOff, nil)
	}
	s.dsr = loadedDSR{}
}

// usedUnprobed notes that the guest does what only a driver does that has probed the device. If none has, the driver is one
// that was active elsewhere or at another time, and what it shares with its device is not known here. Its commands fail.
func (s *session) usedUnprobed(what string) {
	if !s.probed {
		s.enter(pvrdma.ErrorAlreadyActive, fmt.Errorf("%s: %w", what, errNotProbed))
	}
}

// writtenRegister looks at a register write for what it says about the driver.
func (s *session) writtenRegister(off uint64, v uint32) {
	switch {
	case off == abi.RegDSRLow || off == abi.RegDSRHigh:
		s.probed = true
	case off == abi.RegRequest, off == abi.RegIMR, off == abi.RegCtl && abi.DeviceCtl(v) != abi.DeviceCtlReset:
		s.usedUnprobed("write of register " + abi.RegName(off))
	}
}

// enableGrace is how long a machine that runs may take until its firmware has enabled the function: under emulation a
// second or two. A machine that is migrated to another host comes with the guest's driver but not with the function's
// configuration space, so that no access of the driver ever arrives here.
const enableGrace = 30 * time.Second

// watchEnable begins to wait for somebody to enable the function.
func (s *session) watchEnable() {
	s.enabled = false
	if s.watch == nil {
		s.watch = time.AfterFunc(s.grace, s.notEnabled)
		return
	}
	s.watch.Reset(s.grace)
}

// notEnabled runs when the grace time is over.
func (s *session) notEnabled() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed && !s.enabled {
		s.enter(pvrdma.ErrorNotEnabled, errUnenabled)
	}
}

// wroteConfig follows a write to configuration space.
func (s *session) wroteConfig() {
	if used := s.config.Memory() || s.config.BusMaster(); used && !s.enabled {
		s.enabled = true
		s.watch.Stop()
		if s.state == pvrdma.ErrorNotEnabled {
			s.enter(pvrdma.NoError, nil)
		}
	}
	s.setMaster(s.config.BusMaster())
}

// setMaster follows the bus master bit: without it the function may not touch memory.
func (s *session) setMaster(on bool) {
	if on == s.mem.Enabled() {
		return
	}
	if !on {
		s.busMasterOff()
	}
	s.mem.SetEnabled(on)
}
