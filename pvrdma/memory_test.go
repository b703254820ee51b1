// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"encoding/binary"
	"testing"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

const (
	guestBase  = 0x10_0000 // where the guest's memory begins; below it is nothing
	guestPages = 1536
	rw         = guestmem.ProtRead | guestmem.ProtWrite
)

// memory is a guest's memory as its own processors see it: heap memory, so that the race detector watches both sides,
// mapped a second time for the driver, whose words are atomic like the device's.
type memory struct {
	t     *testing.T
	bytes []byte
	view  *guestmem.Pages
	next  uint64 // first page that is not allocated
}

func newMemory(t *testing.T) *memory {
	m := &memory{t: t, bytes: make([]byte, guestPages*abi.PageSize), next: guestBase}
	driver := guestmem.NewDomain().NewSpace("driver")
	if err := driver.MapBytes(guestBase, m.bytes, rw); err != nil {
		t.Fatal(err)
	}
	all := make([]uint64, guestPages)
	for i := range all {
		all[i] = guestBase + uint64(i)*abi.PageSize
	}
	var err error
	if m.view, err = driver.Pin(all, rw); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *memory) ok(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal("the test's own access to guest memory:", err)
	}
}

func (m *memory) write(addr uint64, b []byte) {
	m.t.Helper()
	m.ok(m.view.Write(addr-guestBase, b))
}

func (m *memory) read(addr uint64, n int) []byte {
	m.t.Helper()
	b := make([]byte, n)
	m.ok(m.view.Read(addr-guestBase, b))
	return b
}

func (m *memory) store32(addr uint64, v uint32) {
	m.t.Helper()
	m.ok(m.view.Store32(addr-guestBase, v))
}

func (m *memory) load32(addr uint64) uint32 {
	m.t.Helper()
	v, err := m.view.Load32(addr - guestBase)
	m.ok(err)
	return v
}

func (m *memory) write64(addr, v uint64) { m.write(addr, binary.LittleEndian.AppendUint64(nil, v)) }

// pages allocates n pages, in descending order, so that no two that follow each other are adjacent.
func (m *memory) pages(n int) []uint64 {
	m.t.Helper()
	p := make([]uint64, n)
	for i := range p {
		p[n-1-i] = m.next
		m.next += abi.PageSize
	}
	if m.next > guestBase+guestPages*abi.PageSize {
		m.t.Fatal("the guest of this test needs more memory")
	}
	return p
}

func (m *memory) page() uint64 { return m.pages(1)[0] }

// directory writes the page directory of a list of pages and returns its address.
func (m *memory) directory(pages []uint64) uint64 {
	dir := m.page()
	for t := range (len(pages) + abi.PDirEntries - 1) / abi.PDirEntries {
		table := m.page()
		m.write64(dir+uint64(t)*abi.PDirEntSize, table)
		for i, p := range pages[t*abi.PDirEntries : min(len(pages), (t+1)*abi.PDirEntries)] {
			m.write64(table+uint64(i)*abi.PDirEntSize, p)
		}
	}
	return dir
}

// object is memory that a guest shares with the device through a page directory.
type object struct {
	*memory
	pdir uint64
	list []uint64
}

func (m *memory) object(pages int) *object {
	o := &object{memory: m, list: m.pages(pages)}
	o.pdir = m.directory(o.list)
	return o
}

// at returns the guest address of an offset.
func (o *object) at(off uint64) uint64 { return o.list[off/abi.PageSize] + off%abi.PageSize }
