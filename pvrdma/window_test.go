// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// fileBase is where plugFile maps a file.
const fileBase = 1 << 40

// plugFile gives the guest another pages pages of memory, in a file as that of a virtual machine.
func (g *guest) plugFile(pages int) {
	g.t.Helper()
	fd, err := unix.MemfdCreate("guest-ram", unix.MFD_CLOEXEC)
	if err != nil {
		g.t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(pages)*abi.PageSize); err != nil {
		g.t.Fatal(err)
	}
	if err := g.space.Map(fileBase, uint64(pages)*abi.PageSize, fd, 0, rw); err != nil {
		g.t.Fatal(err)
	}
}

// scatteredMR registers n pages of the file, the last one first.
func (g *guest) scatteredMR(pd uint32, n int) *memoryRegion {
	g.t.Helper()
	list := make([]uint64, n)
	for i := range list {
		list[i] = fileBase + uint64(n-1-i)*abi.PageSize
	}
	var r abi.CmdCreateMRResp
	g.must(&abi.CmdCreateMRReq{
		Hdr: hdr(abi.CmdCreateMR), Start: 0x7f00_0000_0000, Length: uint64(n) * abi.PageSize, PDirDMA: g.directory(list),
		PDHandle: pd, AccessFlags: abi.AccessLocalWrite, NChunks: uint32(n),
	}, &r)
	return g.dev.mrs.get(r.MRHandle)
}

func TestALargeScatteredRegionGetsAWindowAndGivesItBack(t *testing.T) {
	g := newRig(t).newGuest()
	defer g.space.Close()
	g.plugFile(512)
	pd := g.createPD(0)

	large, small := g.scatteredMR(pd, 512), g.scatteredMR(pd, 16)

	if !large.pages.Window() || small.pages.Window() {
		t.Fatalf("2 MiB: window %v, 64 KiB: window %v", large.pages.Window(), small.pages.Window())
	}
	if err := large.engine.(*fakeMR).attr.Memory.Write(511*abi.PageSize, []byte("last")); err != nil {
		t.Fatal(err)
	}
	var b [4]byte
	if err := g.space.Read(fileBase, b[:]); err != nil || string(b[:]) != "last" {
		t.Fatalf("the first page of the file holds %q, %v", b, err)
	}
	g.must(&abi.CmdDestroyMRReq{Hdr: hdr(abi.CmdDestroyMR), MRHandle: large.handle}, nil)
	if large.pages.Window() || g.dev.Counters().WindowsDenied != 0 {
		t.Fatalf("window %v after the region is gone, %d denied", large.pages.Window(), g.dev.Counters().WindowsDenied)
	}
}

func TestARegionBeyondTheBudgetOfWindowsIsRegisteredAndCounted(t *testing.T) {
	r := newRig(t)
	r.domain = guestmem.NewDomainWith(guestmem.Windows{Budget: 1000, MinPages: 1, MaxRun: 1})
	g := r.newGuest()
	defer g.space.Close()
	g.plugFile(512)
	pd := g.createPD(0)

	within, beyond := g.scatteredMR(pd, 500), g.scatteredMR(pd, 100)

	if !within.pages.Window() || beyond.pages.Window() {
		t.Fatalf("within the budget: window %v, beyond it: %v", within.pages.Window(), beyond.pages.Window())
	}
	if n := g.dev.Counters().WindowsDenied; n != 1 {
		t.Fatalf("%d windows counted as denied, want 1", n)
	}
	if err := beyond.pages.Write(0, []byte("x")); err != nil {
		t.Fatal(err)
	}
}

func TestQueuesTakeNothingOfTheBudgetOfWindows(t *testing.T) {
	r := newRig(t)
	r.domain = guestmem.NewDomainWith(guestmem.Windows{Budget: 1000, MinPages: 1, MaxRun: 1})
	g := r.newGuest()
	defer g.space.Close()
	g.plugFile(16)
	list := []uint64{fileBase + 3*abi.PageSize, fileBase}
	p, err := PinDirectory(g.space, g.directory(list), 2, rw)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	if p.Window() {
		t.Fatal("a ring has a window")
	}
}
