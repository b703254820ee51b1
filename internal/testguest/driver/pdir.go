// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"encoding/binary"
	"fmt"

	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"golang.org/x/sys/unix"
)

// PageDir is a page directory of two levels: one page of addresses of pages of addresses, pvrdma_dev_api.h.
type PageDir struct {
	ram    *ram.RAM
	dir    uint64
	tables []uint64
	shift  uint32
}

// NewPageDir writes the directory of some pages.
func NewPageDir(l *layout.Layout, r *ram.RAM, pages []uint64) (*PageDir, error) {
	d := &PageDir{ram: r, shift: l.Const("PVRDMA_PTABLE_SHIFT")}
	if most := int(l.Const("PVRDMA_PAGE_DIR_MAX_PAGES")); len(pages) > most {
		return nil, fmt.Errorf("directory of %d pages, want at most %d: %w", len(pages), most, unix.EINVAL)
	}
	var err error
	if d.dir, err = r.Page(); err != nil {
		return nil, err
	}
	for range (len(pages) + 1<<d.shift - 1) >> d.shift {
		table, err := r.Page()
		if err != nil {
			d.Free()
			return nil, err
		}
		d.SetTable(len(d.tables), table)
		d.tables = append(d.tables, table)
	}
	for i, p := range pages {
		d.SetPage(i, p)
	}
	return d, nil
}

// Addr is the directory's guest address.
func (d *PageDir) Addr() uint64 { return d.dir }

// SetPage writes the entry of a page, right or wrong.
func (d *PageDir) SetPage(i int, addr uint64) { d.put(d.tables[i>>d.shift], i&(1<<d.shift-1), addr) }

// SetTable writes the entry of a page of entries, right or wrong.
func (d *PageDir) SetTable(i int, addr uint64) { d.put(d.dir, i, addr) }

func (d *PageDir) put(page uint64, i int, addr uint64) {
	b, err := d.ram.Bytes(page+uint64(i)*8, 8)
	if err != nil {
		panic(err) // the page is our own
	}
	binary.LittleEndian.PutUint64(b, addr)
}

// Free gives the directory's own pages back.
func (d *PageDir) Free() {
	d.ram.Free(d.dir)
	d.ram.Free(d.tables...)
	d.dir, d.tables = 0, nil
}
