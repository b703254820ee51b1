// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"errors"

	"github.com/pvrdmad/pvrdmad/internal/testguest/driver"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
)

// MR is registered memory of a program.
type MR struct {
	PD *PD
	driver.MR
	// Addr and Len are what is registered, by the program's addresses.
	Addr uint64
	Len  int
	// Mem is that memory.
	Mem []byte

	buf *ram.Buffer
	dir *driver.PageDir
}

// Register allocates a buffer and registers n bytes of it that begin at an offset in its first page.
func (p *PD) Register(n, offset int, access uint32) (*MR, error) {
	buf, err := p.Ctx.Dev.RAM.Buffer(offset + n)
	if err != nil {
		return nil, err
	}
	m := &MR{PD: p, Addr: buf.Addr() + uint64(offset), Len: n, Mem: buf.Bytes()[offset : offset+n], buf: buf}
	if m.dir, err = driver.NewPageDir(p.Ctx.l, p.Ctx.Dev.RAM, buf.Pages()); err != nil {
		return nil, errors.Join(err, buf.Free())
	}
	m.MR, err = p.Ctx.Dev.CreateMR(driver.MRParams{
		Start: m.Addr, Length: uint64(n), PDir: m.dir.Addr(), PD: p.Handle, Access: access,
		Chunks: uint32(len(buf.Pages())),
	})
	if err != nil {
		m.dir.Free()
		return nil, errors.Join(err, buf.Free())
	}
	return m, nil
}

// Deregister takes the registration back and frees the memory.
func (m *MR) Deregister() error {
	err := m.PD.Ctx.Dev.DestroyMR(m.Handle)
	m.dir.Free()
	return errors.Join(err, m.buf.Free())
}

// SGE names a part of the memory in a work request.
func (m *MR) SGE(off, n int) SGE {
	return SGE{Addr: m.Addr + uint64(off), Length: uint32(n), LKey: m.LKey}
}

// SGE is a piece of memory that a work request names: struct pvrdma_sge.
type SGE struct {
	Addr         uint64
	Length, LKey uint32
}

// Pages are the guest addresses of the memory's pages.
func (m *MR) Pages() []uint64 { return m.buf.Pages() }
