// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/driver"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
	"github.com/pvrdmad/pvrdmad/internal/testguest/vfio"
	"golang.org/x/sys/unix"
)

// elsewhere is a guest address at which nothing is.
const elsewhere = 64 << 30

// A guest's firmware and its memory hot-plug change the map while the device works.
func TestMappingsThatComeAndGoDoNotDisturbTheOthers(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		n := d.neighbour()
		a, b := d.guest("a").Open().Endpoint(testguest.Shape{}), n.flow.From.P.Endpoint(testguest.Shape{})
		testguest.Connect(a, b)
		f := testguest.StartFlow(a, b, 5000, 0)
		g := a.P.G
		for i := range uint64(150) {
			// the same file again, a piece without a file, and one that is read only
			for _, m := range []vfio.DMAMap{
				{Addr: elsewhere, Size: 1 << 20, Offset: i % 8 << 20, FD: g.RAM.FD(), Flags: vfio.DMARead | vfio.DMAWrite},
				{Addr: elsewhere + 1<<20, Size: 64 << 10, FD: -1, Flags: vfio.DMARead},
				{Addr: elsewhere + 2<<20, Size: 4096, FD: g.RAM.FD(), Flags: vfio.DMARead},
			} {
				if err := g.Func.MapDMA(m); err != nil {
					t.Fatalf("round %d: %v", i, err)
				}
			}
			for _, addr := range []uint64{elsewhere, elsewhere + 1<<20, elsewhere + 2<<20} {
				size := map[uint64]uint64{elsewhere: 1 << 20, elsewhere + 1<<20: 64 << 10, elsewhere + 2<<20: 4096}[addr]
				if err := g.Func.UnmapDMA(addr, size); err != nil {
					t.Fatalf("round %d: %v", i, err)
				}
			}
		}
		if sent, err := f.Stop(); err != nil || sent == 0 {
			t.Errorf("%d messages meanwhile, error %v", sent, err)
		}
		n.check()
	})
}

// Memory that the device may only read is no place for a queue, for a region that may be written, or for the shared
// region, and is a good one for a region that is only read.
func TestReadOnlyMemoryIsNotWritten(t *testing.T) {
	d := startDaemon(t, "poll")
	r := newGround(t, d)
	const pages = 8
	frames, err := r.g.RAM.Pages(pages)
	if err != nil {
		t.Fatal(err)
	}
	var there []uint64
	for i, p := range frames {
		at := uint64(elsewhere + i*ram.PageSize)
		m := vfio.DMAMap{Addr: at, Size: ram.PageSize, Offset: fileOffset(r.g, p), FD: r.g.RAM.FD(), Flags: vfio.DMARead}
		if err := r.g.Func.MapDMA(m); err != nil {
			t.Fatal(err)
		}
		there = append(there, at)
	}
	dir, err := driver.NewPageDir(r.g.L, r.g.RAM, there)
	if err != nil {
		t.Fatal(err)
	}
	cq := r.cq()
	cq.PDir = dir.Addr()
	_, _, err = r.g.Dev.CreateCQ(cq)
	refused(t, "a completion queue", err, unix.EFAULT, unix.EFAULT)
	mr := r.mr()
	mr.PDir = dir.Addr()
	_, err = r.g.Dev.CreateMR(mr)
	refused(t, "a region that may be written", err, unix.EFAULT, unix.EFAULT)
	mr.Access = r.g.Const("PVRDMA_ACCESS_REMOTE_READ")
	m, err := r.g.Dev.CreateMR(mr)
	if err != nil {
		t.Fatalf("a region that is read: %v", err)
	}

	first, err := r.g.RAM.Bytes(frames[0], 256)
	if err != nil {
		t.Fatal(err)
	}
	testguest.Pattern{Seed: 12}.Fill(first)
	r.e.ConnectTo(r.e.Address())
	wr := r.e.Op("RDMA_READ", testguest.Address{Addr: mr.Start, RKey: m.RKey}, 0, 256)
	r.e.Sent(r.e.Post(wr), "SUCCESS")
	if err := (testguest.Pattern{Seed: 12}).Check(r.e.MR.Mem[:256]); err != nil {
		t.Error(err)
	}
	if err := r.g.Dev.DestroyMR(m.Handle); err != nil {
		t.Error(err)
	}

	if err := r.g.Dev.WriteDSR(there[1]); err != nil {
		t.Fatal(err)
	}
	if err := activate(r.g); err == nil {
		t.Error("a shared region in memory that is not writable activates")
	}
	r.g.Reboot()
}

// fileOffset is where in its file a page of the guest lies.
func fileOffset(g *testguest.Guest, addr uint64) uint64 {
	for _, m := range g.RAM.Regions() {
		if addr >= m.Addr && addr-m.Addr < m.Size {
			return m.Offset + addr - m.Addr
		}
	}
	panic("the address is none of the guest's")
}

// huge registers 1 GiB that is one page over and over, as a small guest can.
func (r *ground) huge() (driver.MRParams, driver.MR) {
	r.t.Helper()
	const size = 1 << 30
	page, err := r.g.RAM.Page()
	if err != nil {
		r.t.Fatal(err)
	}
	same := make([]uint64, size/ram.PageSize)
	for i := range same {
		same[i] = page
	}
	dir, err := driver.NewPageDir(r.g.L, r.g.RAM, same)
	if err != nil {
		r.t.Fatal(err)
	}
	p := r.mr()
	p.PDir, p.Length, p.Chunks = dir.Addr(), size, size/ram.PageSize
	m, err := r.g.Dev.CreateMR(p)
	if err != nil {
		r.t.Fatal(err)
	}
	return p, m
}

// While 1 GiB moves the other guest's small messages pass, and so do commands of the same one.
func TestAHugeMessageLetsTheOtherGuestsPass(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		n := d.neighbour()
		r := newGround(t, d)
		from, source := r.huge()
		to, target := r.huge()
		r.e.ConnectTo(r.e.Address())
		wr := r.e.Op("RDMA_WRITE", testguest.Address{Addr: to.Start, RKey: target.RKey}, 0, 0)
		wr.SGE = []verbs.SGE{{Addr: from.Start, Length: uint32(from.Length), LKey: source.LKey}}
		began := time.Now()
		for range 3 {
			r.e.Post(wr)
		}
		for range 3 {
			queried := time.Now()
			if _, err := r.g.Dev.QueryPort(1); err != nil {
				t.Error(err)
			}
			if took := time.Since(queried); took > d.soon() {
				t.Errorf("a command took %v meanwhile", took)
			}
			r.e.Sent(wr.WRID, "SUCCESS")
		}
		took := time.Since(began)
		n.check()
		t.Logf("3 GiB took %v, the other guest's slowest message %v", took, n.flow.Longest())
		if longest := n.flow.Longest(); longest > d.soon() {
			t.Errorf("a message of the other guest took %v meanwhile", longest)
		}
		for _, m := range []driver.MR{source, target} {
			if err := r.g.Dev.DestroyMR(m.Handle); err != nil {
				t.Error(err)
			}
		}
	})
}
