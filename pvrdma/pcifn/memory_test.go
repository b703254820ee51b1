// SPDX-License-Identifier: Apache-2.0

package pcifn

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

const (
	guestBase  = 0x4_0010_0000 // above 4 GiB, so that both halves of an address count
	guestPages = 256
	rw         = guestmem.ProtRead | guestmem.ProtWrite
)

// memory is a guest's memory as its own processors see it: heap memory, mapped a second time for the driver.
type memory struct {
	t     *testing.T
	bytes []byte
	view  *guestmem.Pages
	next  uint64
}

func newMemory(t *testing.T) *memory {
	m := &memory{t: t, bytes: make([]byte, guestPages*abi.PageSize), next: guestBase}
	driver := guestmem.NewDomain().NewSpace("driver")
	m.ok(driver.MapBytes(guestBase, m.bytes, rw))
	all := make([]uint64, guestPages)
	for i := range all {
		all[i] = guestBase + uint64(i)*abi.PageSize
	}
	var err error
	m.view, err = driver.Pin(all, rw)
	m.ok(err)
	return m
}

func (m *memory) ok(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal("the test's own access to guest memory:", err)
	}
}

func (m *memory) write(addr uint64, b []byte) { m.ok(m.view.Write(addr-guestBase, b)) }

func (m *memory) read(addr uint64, n int) []byte {
	b := make([]byte, n)
	m.ok(m.view.Read(addr-guestBase, b))
	return b
}

func (m *memory) store32(addr uint64, v uint32) { m.ok(m.view.Store32(addr-guestBase, v)) }

func (m *memory) load32(addr uint64) uint32 {
	v, err := m.view.Load32(addr - guestBase)
	m.ok(err)
	return v
}

func (m *memory) write64(addr, v uint64) { m.write(addr, binary.LittleEndian.AppendUint64(nil, v)) }

// pages allocates n pages, no two of which are adjacent in the order that they are returned in.
func (m *memory) pages(n int) []uint64 {
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

// directory writes the page directory of at most 512 pages.
func (m *memory) directory(pages []uint64) uint64 {
	dir, table := m.page(), m.page()
	m.write64(dir, table)
	for i, p := range pages {
		m.write64(table+uint64(i)*abi.PDirEntSize, p)
	}
	return dir
}

// snapshot is a copy of all memory.
func (m *memory) snapshot() []byte { return bytes.Clone(m.bytes) }

// unchanged checks that nobody has written since a snapshot.
func (m *memory) unchanged(before []byte, when string) {
	m.t.Helper()
	if !bytes.Equal(before, m.bytes) {
		m.t.Errorf("guest memory has changed: %s", when)
	}
}
