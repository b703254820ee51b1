// SPDX-License-Identifier: Apache-2.0

package pcifn

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pvrdmad/pvrdmad/pvrdma"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"github.com/pvrdmad/pvrdmad/vfiouser"
)

// powerOn is what BAR1 reads as after power-on.
func powerOn() []byte {
	b := make([]byte, bar1Size)
	put := func(off int, v uint32) { binary.LittleEndian.PutUint32(b[off:], v) }
	put(0x00, 20)
	put(0x14, 0xffff)
	put(0x1c, 0xffffffff)
	copy(b[0x20:], []byte{0x52, 0x54, 0, 1, 2, 3})
	return b
}

func TestRegistersAfterPowerOn(t *testing.T) {
	d := attach(t, Poll)
	if diff := cmp.Diff(powerOn(), d.load(vfiouser.RegionBAR1, 0, bar1Size)); diff != "" {
		t.Errorf("BAR1 (-want +got):\n%s", diff)
	}
}

func TestRegistersReadTheSameBySizeAndAlignment(t *testing.T) {
	d := attach(t, Poll)
	want := powerOn()
	for off := range uint64(0x40) {
		for _, n := range []int{1, 2, 3, 4, 5, 8, 16} {
			if got := d.load(vfiouser.RegionBAR1, off, n); !bytes.Equal(got, want[off:off+uint64(n)]) {
				t.Errorf("%d bytes at %#x: %x, want %x", n, off, got, want[off:off+uint64(n)])
			}
		}
	}
	if got := d.load(vfiouser.RegionBAR1, bar1Size-8, 8); !bytes.Equal(got, make([]byte, 8)) {
		t.Errorf("the end of BAR1 reads %x", got)
	}
}

func TestEveryByteOfEveryBARCanBeRead(t *testing.T) {
	d := attach(t, Poll)
	for index, want := range map[vfiouser.RegionIndex]byte{vfiouser.RegionBAR0: 0, vfiouser.RegionBAR2: 0xff} {
		size := d.s.Regions()[index].Size
		for off := uint64(0); off < size; off += 4096 {
			if got := d.load(index, off, 4096); !bytes.Equal(got, bytes.Repeat([]byte{want}, 4096)) {
				t.Errorf("page at %#x of BAR %d: %x...", off, index, got[:8])
			}
		}
		for _, n := range []int{1, 2, 4, 8} {
			if got := d.load(index, size-uint64(n), n); !bytes.Equal(got, bytes.Repeat([]byte{want}, n)) {
				t.Errorf("the last %d bytes of BAR %d: %x", n, index, got)
			}
		}
	}
}

func TestAWriteThatIsNoRegisterWriteIsIgnored(t *testing.T) {
	d := active(t, Poll)
	before := d.load(vfiouser.RegionBAR1, 0, bar1Size)
	cases := []struct {
		off uint64
		n   int
	}{
		{abi.RegCtl, 1},
		{abi.RegCtl, 2},
		{abi.RegCtl, 8},
		{abi.RegCtl + 1, 4},
		{abi.RegCtl + 2, 4},
		{abi.RegDSRHigh, 8},
		{abi.RegDSRLow, 16},
		{abi.RegRequest + 3, 1},
		{abi.RegIMR, 2},
		{abi.RegVersion, 4},
		{abi.RegErr, 4},
		{abi.RegICR, 4},
		{abi.RegsSize, 4},
		{bar1Size - 4, 4},
		{0, 4096},
	}
	for i, c := range cases {
		// RESET, if it got through.
		d.store(vfiouser.RegionBAR1, c.off, bytes.Repeat([]byte{2, 0, 0, 0}, c.n/4+1)[:c.n])
		if n := d.seen.violations()[pvrdma.BadRegister]; n != i+1 {
			t.Errorf("write of %d bytes at %#x: %d violations are reported, want %d", c.n, c.off, n, i+1)
		}
	}
	if diff := cmp.Diff(before, d.load(vfiouser.RegionBAR1, 0, bar1Size)); diff != "" || !d.s.dev.Active() {
		t.Errorf("registers have changed (-before +after):\n%s", diff)
	}
}

func TestTheMACRegistersKeepTheConfiguredAddress(t *testing.T) {
	d := attach(t, Poll)
	d.reg(abi.RegMACLow, 0xffffffff)
	d.reg(abi.RegMACHigh, 0xffffffff)
	if lo, hi := d.get(abi.RegMACLow), d.get(abi.RegMACHigh); lo != 0x01005452 || hi != 0x0302 {
		t.Errorf("MAC registers %#x, %#x", lo, hi)
	}
	if len(d.seen.violations()) != 0 {
		t.Errorf("violations %v", d.seen.violations())
	}
}

func TestTheCauseRegisterCollectsAndIsClearedByARead(t *testing.T) {
	d := active(t, Poll)
	d.must(&abi.CmdCreatePDReq{Hdr: hdr(abi.CmdCreatePD)}, nil)
	d.onWorker(func() { d.s.events.AsyncEvent(abi.EventPortActive, 1) })
	if got := abi.IntrCause(d.get(abi.RegICR)); got != abi.IntrCauseResponse|abi.IntrCauseAsync {
		t.Errorf("causes %v", got)
	}
	if got := d.get(abi.RegICR); got != 0 {
		t.Errorf("causes %#x after a read", got)
	}
}

func TestOneRegionIsAlwaysMappable(t *testing.T) {
	const rw = vfiouser.RegionRead | vfiouser.RegionWrite
	sizes := map[vfiouser.RegionIndex]uint64{
		vfiouser.RegionBAR0: 0x4000, vfiouser.RegionBAR1: 0x1000, vfiouser.RegionBAR2: 0x8000, vfiouser.RegionConfig: 256,
	}
	for _, mode := range []DoorbellMode{Poll, Trap} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			d := attach(t, mode)
			regions := d.s.Regions()
			if len(regions) != vfiouser.NumRegions {
				t.Fatalf("%d regions", len(regions))
			}
			mappable := vfiouser.RegionBAR2
			if mode == Trap {
				mappable = vfiouser.RegionBAR1
			}
			for i, r := range regions {
				index := vfiouser.RegionIndex(i)
				flags := vfiouser.RegionFlags(0)
				if sizes[index] != 0 {
					flags = rw
				}
				if index == mappable {
					flags |= vfiouser.RegionMMap
				}
				if r.Size != sizes[index] || r.Flags != flags {
					t.Errorf("region %d: size %#x, flags %v", i, r.Size, r.Flags)
				}
				// Page 0 of BAR2 is the guest kernel's, whose doorbells stay messages.
				want := []vfiouser.MMapArea(nil)
				if mode == Poll && index == vfiouser.RegionBAR2 {
					want = []vfiouser.MMapArea{{Offset: 0x1000, Size: 0x7000}}
				}
				if diff := cmp.Diff(want, r.MMapAreas); diff != "" || (r.FD >= 0) != (want != nil) {
					t.Errorf("region %d: fd %d, areas (-want +got):\n%s", i, r.FD, diff)
				}
			}
			if irqs := d.s.IRQs(); irqs[vfiouser.IRQMSIX] != 3 || irqs[vfiouser.IRQINTx] != 0 || irqs[vfiouser.IRQMSI] != 0 {
				t.Errorf("interrupts %v", irqs)
			}
		})
	}
}
