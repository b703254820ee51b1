// SPDX-License-Identifier: Apache-2.0

package pcifn

import (
	"errors"
	"fmt"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/pvrdma"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// sharedMemory is what a driver shares with its active device from its probe on, beside the event rings: the shared region
// and the two slots. They are reached by address; the lists are held to learn that they were unmapped, since other memory
// at the same address is not what the driver meant.
type sharedMemory [len(sharedNames)]*guestmem.Pages

var sharedNames = [...]string{"shared region", "command slot", "response slot"}

// pinShared pins the shared region that was loaded from addr, and its slots.
func (s *session) pinShared(addr uint64, d *abi.DSR) (m sharedMemory, err error) {
	first := addr &^ (abi.PageSize - 1)
	pages := []uint64{first}
	if last := (addr + abi.DSRSize - 1) &^ (abi.PageSize - 1); last != first {
		pages = append(pages, last)
	}
	for i, w := range []struct {
		pages []uint64
		prot  guestmem.Prot
	}{
		{pages, guestmem.ProtRead | guestmem.ProtWrite},
		{[]uint64{d.CmdSlotDMA}, guestmem.ProtRead},
		{[]uint64{d.RespSlotDMA}, guestmem.ProtWrite},
	} {
		if m[i], err = s.mem.Pin(w.pages, w.prot); err != nil {
			m.release()
			return m, fmt.Errorf("%s: %w", sharedNames[i], err)
		}
	}
	return m, nil
}

func (m *sharedMemory) release() {
	for i, p := range m {
		if p != nil {
			p.Release()
			m[i] = nil
		}
	}
}

// lost returns the name of something that the driver shares with the device and that was unmapped, "" if all is there.
func (s *session) lost() string {
	for i, p := range s.shared {
		if p != nil && p.Revoked() {
			return sharedNames[i]
		}
	}
	return s.events.lost()
}

// memoryTaken looks, after memory was unmapped, for what lay there. When it returns the guest has been told.
func (s *session) memoryTaken() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !s.dev.Active() {
		return
	}
	what := s.lost()
	if what == "" {
		s.dev.EndRevoked()
		return
	}
	s.tellFatal()
	s.toIdle(pvrdma.ResetByMemoryLoss, fmt.Errorf("%s of %s: %w", what, s.name(), guestmem.ErrRevoked))
	s.regs.err = uint32(unix.EIO)
	s.enter(pvrdma.ErrorMemoryLost, nil)
}

// slotFailed sets ERR because a slot cannot be reached. If its memory failed, the device is reset.
func (s *session) slotFailed(what string, err error) {
	s.result(what, pvrdma.BadMemory, err)
	var fault *guestmem.FaultError
	if errors.As(err, &fault) {
		s.events.Failed(err)
	}
}

// explain adds to the error of a shared region that cannot be read what is known of the guest's memory: the driver says
// nothing of it but "driver needs RoCE v1 or v2 support".
func (s *session) explain(err error) error {
	regions, bytes := s.mem.Backed()
	switch {
	case errors.Is(err, guestmem.ErrDisabled):
		return fmt.Errorf("bus mastering is off, the driver switches it on first: %w", err)
	case !errors.Is(err, unix.EFAULT):
		return err
	case regions == 0:
		return fmt.Errorf("no memory of the guest can be reached, start the VM with shared memory (share=on) and without a virtual IOMMU: %w", err)
	case translated(regions, bytes):
		return fmt.Errorf("a virtual IOMMU maps the guest's memory page by page, and not this page; start the VM without it or boot its kernel with iommu=pt: %w", err)
	}
	return err
}

// translated reports whether a virtual IOMMU translates the guest's addresses. QEMU announces a machine's own memory in a
// few large regions, up to some 20 in its first megabyte included; behind intel-iommu each page is a region.
func translated(regions int, bytes uint64) bool {
	const small = 64 << 10
	return regions > 0 && bytes/uint64(regions) < small
}
