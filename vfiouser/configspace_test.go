// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// card is a function with two BARs and two vectors.
func card() (Identity, []Region, MSIX) {
	return Identity{
			VendorID: 0x1234, DeviceID: 0x11e8, SubsystemVendorID: 0x1af4, SubsystemID: 0x1100, Class: 0x00ff01, Revision: 0x10,
		}, []Region{RegionBAR0: {Size: 1 << 20}, RegionBAR2: {Size: 16}},
		MSIX{Vectors: 2, TableBAR: RegionBAR0, TableOffset: 0x8000, PBABAR: RegionBAR2}
}

func TestAConfigurationSpaceSaysWhatTheFunctionIs(t *testing.T) {
	c, err := NewConfigSpace(card())
	if err != nil {
		t.Fatal(err)
	}
	want := map[uint64]uint32{
		0x00: 0x11e81234, 0x04: 0x00100000, 0x08: 0x00ff0110, 0x2c: 0x11001af4, 0x34: 0x40,
		0x40: 0x00010011, 0x44: 0x8000, 0x48: 0x2,
	}
	for off := uint64(0); off < ConfigSpaceSize; off += 4 {
		p := make([]byte, 4)
		c.Read(off, p)
		if got := binary.LittleEndian.Uint32(p); got != want[off] {
			t.Errorf("offset %#x is %#08x, want %#08x", off, got, want[off])
		}
	}
}

func TestOfAConfigurationSpaceOnlyWhatIsWritableIsWritten(t *testing.T) {
	c, err := NewConfigSpace(card())
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, ConfigSpaceSize)
	c.Read(0, want)
	if c.BusMaster() || c.Memory() {
		t.Error("a function is a bus master, or decodes its BARs, after power-on")
	}

	c.Write(0, bytes.Repeat([]byte{0xff}, ConfigSpaceSize))

	copy(want[0x04:], []byte{0x47, 0x05})
	want[0x0c], want[0x3c], want[0x43] = 0xff, 0xff, 0xc0
	copy(want[0x10:], []byte{0, 0, 0xf0, 0xff})
	copy(want[0x18:], []byte{0xf0, 0xff, 0xff, 0xff})
	got := make([]byte, ConfigSpaceSize)
	c.Read(0, got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !c.BusMaster() {
		t.Error("the function is no bus master")
	}
	c.Write(pciCommand+1, []byte{0}) // beside the bit
	if !c.BusMaster() {
		t.Error("a write beside the bit has cleared it")
	}
	c.Write(pciCommand, []byte{0x43})
	if c.BusMaster() || !c.Memory() {
		t.Errorf("bus master %v, decoded %v", c.BusMaster(), c.Memory())
	}
}

func TestAConfigurationSpaceWithoutVectorsHasNoCapability(t *testing.T) {
	id, regions, _ := card()
	c, err := NewConfigSpace(id, regions, MSIX{})
	if err != nil {
		t.Fatal(err)
	}
	for _, off := range []uint64{0x06, 0x34, 0x40} {
		p := make([]byte, 2)
		c.Read(off, p)
		if !bytes.Equal(p, []byte{0, 0}) {
			t.Errorf("offset %#x is %v", off, p)
		}
	}
}

func TestAConfigurationSpaceThatCannotBeIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(regions []Region, m *MSIX){
		"a BAR of three pages":            func(r []Region, _ *MSIX) { r[RegionBAR2].Size = 0x3000 },
		"a BAR of eight bytes":            func(r []Region, _ *MSIX) { r[RegionBAR2].Size = 8 },
		"a BAR of 4 GiB":                  func(r []Region, _ *MSIX) { r[RegionBAR2].Size = 1 << 32 },
		"too many vectors":                func(_ []Region, m *MSIX) { m.Vectors = MaxVectors + 1 },
		"a table behind its BAR":          func(_ []Region, m *MSIX) { m.TableOffset = 1<<20 - 16 },
		"a table in no BAR":               func(_ []Region, m *MSIX) { m.TableBAR = RegionBAR3 },
		"a table in the config space":     func(_ []Region, m *MSIX) { m.TableBAR = RegionConfig },
		"a crooked table":                 func(_ []Region, m *MSIX) { m.TableOffset = 0x8004 },
		"pending bits behind their BAR":   func(_ []Region, m *MSIX) { m.PBAOffset = 16 },
		"pending bits in a BAR too small": func(_ []Region, m *MSIX) { m.Vectors = 129 },
		"pending bits of another kind":    func(_ []Region, m *MSIX) { m.PBABAR = RegionROM },
	} {
		t.Run(name, func(t *testing.T) {
			id, regions, msix := card()
			spoil(regions, &msix)

			if _, err := NewConfigSpace(id, regions, msix); !errors.Is(err, unix.EINVAL) {
				t.Errorf("got %v", err)
			}
		})
	}
}
