// SPDX-License-Identifier: Apache-2.0

package pcifn

import (
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"github.com/pvrdmad/pvrdmad/vfiouser"
)

// The command register and its bits, linux/pci_regs.h.
const (
	pciCommand       = 0x04
	pciCommandMemory = 0x2
	pciCommandMaster = 0x4

	pciBaseAddress0 = 0x10
)

func (d *driver) cfg32(off uint64) uint32 {
	return binary.LittleEndian.Uint32(d.load(vfiouser.RegionConfig, off, 4))
}

func TestConfigurationSpaceIdentifiesTheFunction(t *testing.T) {
	d := attach(t, Poll)
	d.config(pciCommand, 2, 0)
	want := map[uint64]uint32{
		0x00: 0x082015ad, // device, vendor
		0x04: 0x00100000, // status: capability list
		0x08: 0x02800000, // network controller, other
		0x0c: 0,
		0x2c: 0x082015ad, // subsystem
		0x34: 0x40,       // capabilities
		0x3c: 0,          // no interrupt pin
		0x40: 0x00020011, // MSI-X: 3 vectors, the last capability
		0x44: 0x00000000, // table: BAR0
		0x48: 0x00002000, // pending bits: BAR0 + 0x2000
	}
	for off := uint64(0); off < 256; off += 4 {
		if got := d.cfg32(off); got != want[off] {
			t.Errorf("offset %#x is %#08x, want %#08x", off, got, want[off])
		}
	}
}

func TestBARsCanBeSized(t *testing.T) {
	d := attach(t, Poll)
	want := []uint32{0xffffc000, 0xfffff000, 0xffff8000, 0, 0, 0} // MSI-X, registers, 8 doorbell pages
	for i, w := range want {
		off := uint64(0x10 + 4*i)
		d.config(off, 4, 0xffffffff)
		if got := d.cfg32(off); got != w {
			t.Errorf("BAR %d sizes as %#08x, want %#08x", i, got, w)
		}
		d.config(off, 4, 0xfe001234)
		if got := d.cfg32(off); got != 0xfe001234&w {
			t.Errorf("BAR %d is at %#08x", i, got)
		}
	}
	d.config(0x30, 4, 0xffffffff) // no ROM
	if got := d.cfg32(0x30); got != 0 {
		t.Errorf("the ROM sizes as %#08x", got)
	}
}

func TestOnlyWhatIsWritableIsWritten(t *testing.T) {
	d := attach(t, Poll)
	before := d.load(vfiouser.RegionConfig, 0, 256)
	ones := make([]byte, 256)
	for i := range ones {
		ones[i] = 0xff
	}
	d.store(vfiouser.RegionConfig, 0, ones)
	got := d.load(vfiouser.RegionConfig, 0, 256)
	want := append([]byte(nil), before...)
	copy(want[0x04:], []byte{0x47, 0x05})
	want[0x0c], want[0x3c] = 0xff, 0xff
	copy(want[0x10:], []byte{0, 0xc0, 0xff, 0xff, 0, 0xf0, 0xff, 0xff, 0, 0x80, 0xff, 0xff})
	want[0x43] = 0xc0 // MSI-X enable and mask
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("after all ones (-want +got):\n%s", diff)
	}
	d.store(vfiouser.RegionConfig, 0, make([]byte, 256))
	for _, off := range []int{0x04, 0x05, 0x0c, 0x11, 0x3c, 0x43} {
		if b := d.load(vfiouser.RegionConfig, uint64(off), 1)[0]; b != 0 {
			t.Errorf("offset %#x is %#x after zeros", off, b)
		}
	}
}

func TestAWriteOfOneByteLeavesItsNeighbours(t *testing.T) {
	d := attach(t, Poll)
	d.config(0x10, 4, 0x12345000)
	d.config(0x13, 1, 0xab)
	if got := d.cfg32(0x10); got != 0xab344000 { // 16 KiB: the low bits stay 0
		t.Errorf("BAR 0 is %#08x", got)
	}
}

func TestTheBusMasterBitSwitchesMemoryAccess(t *testing.T) {
	d := attach(t, Poll)
	fresh, err := d.fn.open(func(abi.IntrVector) {})
	if err != nil {
		t.Fatal(err)
	}
	if fresh.mem.Enabled() {
		t.Error("a function has access to memory after power-on")
	}
	fresh.Close()
	if !d.s.mem.Enabled() {
		t.Fatal("the test's function is no bus master")
	}
	for _, v := range []uint32{0, pciCommandMaster, pciCommandMemory, pciCommandMaster | pciCommandMemory} {
		d.config(pciCommand, 2, v)
		if got, want := d.s.mem.Enabled(), v&pciCommandMaster != 0; got != want {
			t.Errorf("command %#x: memory access %v", v, got)
		}
	}
	d.config(pciCommand+1, 1, 0xff) // the upper half alone
	if !d.s.mem.Enabled() {
		t.Error("a write beside the bit has cleared it")
	}
}

func TestDoorbellPagesFollowTheConfiguration(t *testing.T) {
	if got := barSizes(512)[abi.PCIResourceUAR]; got != 2<<20 {
		t.Errorf("512 doorbell pages are %d bytes", got)
	}
}
