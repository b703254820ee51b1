// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"errors"
	"fmt"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

var errBadFastReg = fmt.Errorf("fast registration of no pages, of more than are offered, or of pages of another size: %w",
	unix.EINVAL)

const (
	// maxFastRegPages is PVRDMA_MAX_FAST_REG_PAGES: the driver refuses more (pvrdma_alloc_mr in pvrdma_mr.c), and takes it
	// for the capability of a device of version 17.
	maxFastRegPages = 128
	// fastRegPageShift is the only size of pages that the driver registers: PAGE_SHIFT.
	fastRegPageShift = 12
	// fastRegPiece is how many pages of a fast registration take a device as long as a piece of a message.
	fastRegPiece = 4
)

// allocMR makes a region for fast registration: what alloc_mr asks for. Its pages count as registered from the beginning, so
// that a registration cannot exceed the limit.
func (d *Device) allocMR(q *abi.CmdCreateMRReq, m *memoryRegion) error {
	if m.pd.ctx != d.kernel {
		return fmt.Errorf("region for fast registration for a user's protection domain %d: %w", q.PDHandle, unix.EPERM)
	}
	if q.NChunks == 0 || q.NChunks > d.caps.MaxFastRegPageListLen {
		return fmt.Errorf("region for fast registration of %d pages, want 1 to %d: %w", q.NChunks,
			d.caps.MaxFastRegPageListLen, unix.EINVAL)
	}
	if err := d.mayPin(q.NChunks); err != nil {
		return err
	}
	list, err := d.mem.NewList(int(q.NChunks))
	if err != nil {
		return err
	}
	m.dev, m.pages, m.npages = d, list, q.NChunks
	m.engine, err = d.engine.AllocMR(m.pd.engine, int(q.NChunks), m)
	return err
}

// decodeFastReg reads a fast registration from the union of a send request.
func (d *Device) decodeFastReg(union []byte, wr *hostverbs.SendWR) (wrong error) {
	var x abi.FastRegWR
	_ = x.Decode(union) // the buffer holds a whole header
	if x.PageShift != fastRegPageShift || x.PageListLen == 0 || x.PageListLen > d.caps.MaxFastRegPageListLen {
		return errBadFastReg
	}
	wr.RemoteAddr, wr.RKey = x.IOVAStart, x.RKey
	wr.Reg = hostverbs.RegWR{
		List: x.PLPDirDMA, Pages: x.PageListLen, Length: x.Length,
		Access: hostverbs.AccessFlags(x.AccessFlags & guestAccess),
	}
	return nil
}

// PullPages implements hostverbs.PageSource. The guest writes the same directory for each registration: it is read once, when
// the request is carried out.
func (m *memoryRegion) PullPages(wr *hostverbs.SendWR) (guestmem.Memory, error) {
	if err := m.fill(&wr.Reg); err != nil {
		err = fmt.Errorf("fast registration of memory region %d: %w", m.handle, err)
		if fault := (*guestmem.FaultError)(nil); errors.As(err, &fault) {
			m.dev.fail(fault)
		} else {
			m.dev.violation(BadWQE, err)
		}
		return nil, err
	}
	return m.pages, nil
}

func (m *memoryRegion) fill(reg *hostverbs.RegWR) error {
	pages := m.dev.pageList[:reg.Pages]
	if err := m.dev.readPageList(reg.List, pages); err != nil {
		return err
	}
	prot := guestmem.ProtRead
	if abi.AccessFlags(reg.Access)&mayWrite != 0 {
		prot |= guestmem.ProtWrite
	}
	return m.pages.Fill(pages, prot)
}

// DropPages implements hostverbs.PageSource.
func (m *memoryRegion) DropPages() { m.pages.Empty() }

// readPageList reads a page list from the directory at pdir, which has one table.
func (d *Device) readPageList(pdir uint64, pages []uint64) error {
	var table [1]uint64
	if err := readEntries(d.mem, pdir, table[:], d.pageTable[:abi.PDirEntSize]); err != nil {
		return fmt.Errorf("page directory at %#x: %w", pdir, err)
	}
	if err := readEntries(d.mem, table[0], pages, d.pageTable[:len(pages)*abi.PDirEntSize]); err != nil {
		return fmt.Errorf("page table at %#x: %w", table[0], err)
	}
	return nil
}
