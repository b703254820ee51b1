// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"github.com/pvrdmad/pvrdmad/internal/testguest/vfio"
	"golang.org/x/sys/unix"
)

// powerOn starts guest a with nothing that drives its device yet.
func (d *daemon) powerOn() *testguest.Guest {
	d.t.Helper()
	o := guestOptions("a")
	m, err := testguest.PowerOn(d.socket("a"), o)
	if err != nil {
		d.t.Fatal(err)
	}
	return testguest.Adopt(d.t, m)
}

func TestEveryOffsetOfEveryRegionCanBeReadInEverySize(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		n := d.neighbour()
		g := d.guest("a")
		for region, info := range g.Func.Regions {
			if info == nil {
				continue
			}
			for _, off := range offsets(info.Size) {
				for _, size := range []uint64{1, 2, 4, 8} {
					err := g.Func.RegionRead(uint32(region), off, make([]byte, size))
					if inside := off+size <= info.Size; inside != (err == nil) {
						t.Fatalf("read %d bytes of region %d (%#x bytes) at %#x: %v", size, region, info.Size, off, err)
					}
				}
			}
		}
		for _, region := range []uint32{3, 4, 5, 6, 8, 9, 100, 0xffffffff} {
			if err := g.Func.RegionRead(region, 0, make([]byte, 4)); err == nil {
				t.Errorf("region %d, which is not there, can be read", region)
			}
		}
		for _, off := range []uint64{1 << 20, 1 << 32, 1<<64 - 8, 1<<64 - 1} {
			if err := g.Func.RegionRead(1, off, make([]byte, 8)); err == nil {
				t.Errorf("offset %#x of the registers can be read", off)
			}
		}
		if _, err := g.Dev.QueryPort(1); err != nil {
			t.Errorf("a command afterwards: %v", err)
		}
		n.check()
	})
}

// offsets are those of a region to look at: all of a small one, of a large one those of the first and the last page and
// some in between.
func offsets(size uint64) []uint64 {
	var list []uint64
	for off := uint64(0); off < size; off++ {
		edge := off < 256 || size-off <= 64
		if edge || size <= 4096 && off%4 == 0 || off%(64<<10) < 12 {
			list = append(list, off)
		}
	}
	return append(list, size)
}

func TestRandomRegisterWritesOfAnySizeDoNoHarm(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		n := d.neighbour()
		g := d.guest("a")
		rng := rand.New(rand.NewPCG(1, 2))
		for range 3000 {
			region := []uint32{0, 1, 2, vfio.ConfigRegion}[rng.IntN(4)]
			info := g.Func.Regions[region]
			p := make([]byte, 1<<rng.IntN(4))
			for i := range p {
				p[i] = byte(rng.Uint32() >> (8 * rng.IntN(4)))
			}
			off := rng.Uint64N(info.Size)
			if rng.IntN(2) == 0 {
				off = rng.Uint64N(64)
			}
			var refused *vfio.ReplyError
			if err := g.Func.RegionWrite(region, off, p); err != nil && !errors.As(err, &refused) {
				t.Fatal(err)
			}
		}
		if err := g.Func.Reset(); err != nil {
			t.Fatal(err)
		}
		g.Reboot()
		n.check()
	})
}

func TestNothingIsExecutedBeforeADriverHasActivatedTheDevice(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		n := d.neighbour()
		g := d.powerOn()
		registers, _ := bars(g)
		before := func(what string) {
			t.Helper()
			for _, w := range []struct {
				name string
				reg  string
				v    uint32
			}{
				{"REQUEST", "PVRDMA_REG_REQUEST", 0},
				{"UNQUIESCE", "PVRDMA_REG_CTL", g.Const("PVRDMA_DEVICE_CTL_UNQUIESCE")},
				{"CTL of nothing", "PVRDMA_REG_CTL", 99},
			} {
				if err := g.Func.Write32(registers, uint64(g.Const(w.reg)), w.v); err != nil {
					t.Fatal(err)
				}
				v, err := g.Func.Read32(registers, uint64(g.Const("PVRDMA_REG_ERR")))
				if err != nil {
					t.Fatal(err)
				}
				if v == 0 {
					t.Errorf("%s %s succeeds", w.name, what)
				}
			}
			ringEverything(t, g)
		}
		before("after power-on")
		for _, addr := range []uint64{0, 1, 0xfff, 3 << 30, 1 << 52, ^uint64(0), ^uint64(0) - 100} {
			if err := writeDSR(g, addr); err != nil {
				t.Fatal(err)
			}
			if err := activate(g); err == nil {
				t.Errorf("a shared region at %#x activates", addr)
			}
			before("after a shared region that is not there")
		}
		if err := g.Bind(); err != nil {
			t.Errorf("a driver afterwards: %v", err)
		}
		n.check()
	})
}

func bars(g *testguest.Guest) (registers, doorbells uint32) {
	return g.Const("PVRDMA_PCI_RESOURCE_REG"), g.Const("PVRDMA_PCI_RESOURCE_UAR")
}

func writeDSR(g *testguest.Guest, addr uint64) error {
	registers, _ := bars(g)
	err := g.Func.Write32(registers, uint64(g.Const("PVRDMA_REG_DSRLOW")), uint32(addr))
	return errors.Join(err, g.Func.Write32(registers, uint64(g.Const("PVRDMA_REG_DSRHIGH")), uint32(addr>>32)))
}

// activate activates the device and returns what ERR says.
func activate(g *testguest.Guest) error {
	registers, _ := bars(g)
	if err := g.Func.Write32(registers, uint64(g.Const("PVRDMA_REG_CTL")),
		g.Const("PVRDMA_DEVICE_CTL_ACTIVATE")); err != nil {
		return err
	}
	v, err := g.Func.Read32(registers, uint64(g.Const("PVRDMA_REG_ERR")))
	if err == nil && v != 0 {
		err = unix.Errno(v)
	}
	return err
}

// ringEverything rings doorbells of all kinds on all pages, for handles that are there and that are not.
func ringEverything(t *testing.T, g *testguest.Guest) {
	t.Helper()
	_, doorbells := bars(g)
	pages := g.Func.Regions[doorbells].Size / ram.PageSize
	for _, page := range []uint64{0, 1, 2, pages - 1} {
		for _, off := range []uint64{0, 4, 8, 12, 16, ram.PageSize - 4} {
			for _, v := range []uint32{0x40000000, 0x80000001, 0xc0000002, 0xe0000003, 0x40ffffff, 0xffffffff, 0} {
				if err := g.Func.Write32(doorbells, page*ram.PageSize+off, v); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// spoiled is a shared region with something wrong in it.
var spoiledRegions = map[string]func(g *testguest.Guest){
	"no async ring pages":      func(g *testguest.Guest) { g.Dev.DSR().Set("async_ring_pages.num_pages", 0) },
	"one async ring page":      func(g *testguest.Guest) { g.Dev.DSR().Set("async_ring_pages.num_pages", 1) },
	"513 async ring pages":     func(g *testguest.Guest) { g.Dev.DSR().Set("async_ring_pages.num_pages", 513) },
	"2^32-1 async ring pages":  func(g *testguest.Guest) { g.Dev.DSR().Set("async_ring_pages.num_pages", 1<<32-1) },
	"no CQ ring pages":         func(g *testguest.Guest) { g.Dev.DSR().Set("cq_ring_pages.num_pages", 0) },
	"2^31 CQ ring pages":       func(g *testguest.Guest) { g.Dev.DSR().Set("cq_ring_pages.num_pages", 1<<31) },
	"more pages than entries":  func(g *testguest.Guest) { g.Dev.DSR().Set("cq_ring_pages.num_pages", 5) },
	"no async directory":       func(g *testguest.Guest) { g.Dev.DSR().Set("async_ring_pages.pdir_dma", 0) },
	"a directory in a hole":    func(g *testguest.Guest) { g.Dev.DSR().Set("async_ring_pages.pdir_dma", 3<<30) },
	"a directory at 2^64-4096": func(g *testguest.Guest) { g.Dev.DSR().Set("cq_ring_pages.pdir_dma", 1<<64-4096) },
	"a directory off its page": func(g *testguest.Guest) { g.Dev.DSR().Set("cq_ring_pages.pdir_dma", 1<<20+8) },
	"no command slot":          func(g *testguest.Guest) { g.Dev.DSR().Set("cmd_slot_dma", 0) },
	"a response slot off its page": func(g *testguest.Guest) {
		g.Dev.DSR().Set("resp_slot_dma", g.Dev.DSR().Get("resp_slot_dma")+8)
	},
	"an old driver": func(g *testguest.Guest) { g.Dev.DSR().Set("driver_version", 3) },
}

func TestASharedRegionThatLiesIsRefused(t *testing.T) {
	d := startDaemon(t, "poll")
	n := d.neighbour()
	g := d.guest("a")
	for name, spoil := range spoiledRegions {
		t.Run(name, func(t *testing.T) {
			spoil(g)
			if err := g.Dev.WriteDSR(g.Dev.DSRAddr()); err != nil {
				t.Fatal(err)
			}
			if err := activate(g); err == nil {
				t.Error("it activates")
			}
			if _, err := g.Dev.QueryPort(1); err == nil {
				t.Error("a command is executed")
			}
			g.Reboot()
		})
	}
	n.check()
}

// The command and response slots may lie where nothing is: the command then fails, and nothing else happens.
func TestASlotInAHoleFailsTheCommand(t *testing.T) {
	d := startDaemon(t, "poll")
	n := d.neighbour()
	for _, field := range []string{"cmd_slot_dma", "resp_slot_dma"} {
		g := d.powerOn()
		if err := g.Bind(); err != nil {
			t.Fatal(err)
		}
		g.Dev.DSR().Set(field, 3<<30)
		if err := g.Dev.WriteDSR(g.Dev.DSRAddr()); err != nil {
			t.Fatal(err)
		}
		if err := activate(g); err == nil {
			_, err := g.Dev.QueryPort(1)
			refused(t, field, err, unix.EFAULT, unix.EFAULT)
		}
		g.Reboot()
		g.Stop()
	}
	n.check()
}

// What a guest changes in the shared region after it was loaded has no effect.
func TestTheSharedRegionIsReadOnce(t *testing.T) {
	d := startDaemon(t, "poll")
	g := d.guest("a")
	caps := g.Dev.Caps().Get32("max_cq")
	for field, v := range map[string]uint64{
		"cmd_slot_dma": 3 << 30, "resp_slot_dma": 3 << 30, "driver_version": 0,
		"cq_ring_pages.pdir_dma": 0, "async_ring_pages.pdir_dma": 0,
	} {
		g.Dev.DSR().Set(field, v)
	}
	if _, err := g.Dev.QueryPort(1); err != nil {
		t.Errorf("a command: %v", err)
	}
	e := g.Open().Endpoint(testguest.Shape{})
	e.ConnectTo(e.Address())
	arm(t, e.SendCQ, false)
	id := e.Write(e.Address(), 0, 8)
	if n := events(e.SendCQ, 1); n == 0 { // before the completion is taken: one that is taken at once interrupts nobody
		t.Error("no event")
	}
	e.Sent(id, "SUCCESS")
	if g.Dev.Caps().Get32("max_cq") != caps {
		t.Error("the capabilities changed")
	}
}
