// SPDX-License-Identifier: Apache-2.0

package pcifn

import (
	"fmt"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/pvrdma"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// maxRingPages bounds an event ring: one page table. Linux uses four pages.
const maxRingPages = abi.PDirEntries

// loadedDSR is what we remember of the device shared region; guest memory is not asked again.
type loadedDSR struct {
	valid bool
	addr  uint64
	dsr   abi.DSR
}

// loadDSR reads the shared region at a guest address and fills in the capabilities. The driver looks at them as soon as its
// write of the register is done.
func (s *session) loadDSR(addr uint64) error {
	// A guest kernel that crashed starts over without a reset. What the old one gave us is not to be touched any more.
	s.toIdle(pvrdma.ResetByProbe, nil)
	var buf [abi.DSRSize]byte
	if err := s.mem.Read(addr, buf[:]); err != nil {
		return fmt.Errorf("read it at %#x: %w", addr, s.explain(err))
	}
	var dsr abi.DSR
	if err := dsr.Decode(buf[:]); err != nil {
		return err
	}
	if err := s.dev.CheckDriver(dsr.DriverVersion); err != nil {
		return err
	}
	if err := checkDSR(&dsr); err != nil {
		return err
	}
	caps := s.dev.Caps()
	var out [abi.DeviceCapsSize]byte
	caps.Encode(out[:])
	if err := s.mem.Write(addr+abi.DSRCapsOffset, out[:]); err != nil {
		return fmt.Errorf("write the capabilities: %w", err)
	}
	s.dsr = loadedDSR{valid: true, addr: addr, dsr: dsr}
	s.enter(pvrdma.NoError, nil)
	return nil
}

func checkDSR(d *abi.DSR) error {
	for _, slot := range []struct {
		name string
		addr uint64
	}{{"command", d.CmdSlotDMA}, {"response", d.RespSlotDMA}} {
		if slot.addr == 0 || slot.addr%abi.PageSize != 0 {
			return fmt.Errorf("%s slot at %#x, want the address of a page: %w", slot.name, slot.addr, unix.EINVAL)
		}
	}
	for _, ring := range []struct {
		name string
		info abi.RingPageInfo
	}{{"async event", d.AsyncRingPages}, {"completion event", d.CQRingPages}} {
		if ring.info.NumPages < 2 || ring.info.NumPages > maxRingPages {
			return fmt.Errorf("%s ring of %d pages, want 2 to %d: %w", ring.name, ring.info.NumPages, maxRingPages,
				unix.EINVAL)
		}
	}
	return nil
}

// activate switches the device on.
func (s *session) activate() error {
	if s.dev.Active() {
		return nil
	}
	if !s.dsr.valid {
		return fmt.Errorf("no shared region is loaded: %w", unix.ENODEV)
	}
	d := &s.dsr.dsr
	shared, err := s.pinShared(s.dsr.addr, d)
	if err != nil {
		return err
	}
	if err := s.startDevice(d); err != nil {
		shared.release()
		return err
	}
	s.shared = shared
	if s.observer != nil {
		s.observer.Observe(pvrdma.Activated{
			Guest: pvrdma.Guest{Name: s.name()}, DriverVersion: d.DriverVersion,
			Version: abi.EffectiveVersion(s.dev.Version(), d.DriverVersion), VIOMMU: translated(s.mem.Backed()),
		})
	}
	return nil
}

// startDevice pins the event rings and switches the device on.
func (s *session) startDevice(d *abi.DSR) error {
	async, err := s.pinRing(&d.AsyncRingPages)
	if err != nil {
		return fmt.Errorf("async event ring: %w", err)
	}
	completion, err := s.pinRing(&d.CQRingPages)
	if err != nil {
		async.Release()
		return fmt.Errorf("completion event ring: %w", err)
	}
	if err := s.events.start(s.cfg.Worker, async, completion); err != nil {
		async.Release()
		completion.Release()
		return err
	}
	pfn := d.PFNAt(abi.EffectiveVersion(s.dev.Version(), d.DriverVersion))
	if err := s.dev.Activate(d.DriverVersion, pfn); err != nil {
		s.events.stop(s.cfg.Worker)
		return err
	}
	return nil
}

func (s *session) pinRing(r *abi.RingPageInfo) (*guestmem.Pages, error) {
	return pvrdma.PinDirectory(s.mem, r.PDirDMA, r.NumPages, guestmem.ProtRead|guestmem.ProtWrite)
}
