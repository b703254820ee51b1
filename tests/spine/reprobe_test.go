// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"errors"
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
)

// copyPages copies pages of a guest.
func copyPages(t *testing.T, g *testguest.Guest, addrs []uint64) []byte {
	t.Helper()
	var all []byte
	for _, a := range addrs {
		b, err := g.RAM.Bytes(a, ram.PageSize)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	return all
}

// A guest kernel that crashed starts another, which probes the device while all of the old one's objects are at work, and
// without a RESET. What the old kernel shared belongs to the new one by then, and the device must not reach it any more.
func TestAKernelThatReplacesAnotherFindsAFreshDevice(t *testing.T) {
	for name, replace := range map[string]func(g *testguest.Guest) error{
		"a crash kernel": func(*testguest.Guest) error { return nil },
		"kexec": func(g *testguest.Guest) error {
			return errors.Join(g.Func.SetBusMaster(false), g.Func.SetBusMaster(true))
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachMode(t, func(t *testing.T, d *daemon) {
				a, b, s := d.stormGuests()
				wantMoving(t, a.MR.Mem)
				g := a.P.G
				old, oldDSR := g.RAM.Allocated(), g.Dev.DSRAddr()
				if err := g.Crash(); err != nil {
					t.Fatal(err)
				}
				if err := replace(g); err != nil {
					t.Fatal(err)
				}

				if err := g.Bind(); err != nil {
					t.Fatalf("the new kernel's driver: %v", err)
				}
				before := copyPages(t, g, old)

				if g.Dev.DSRAddr() == oldDSR {
					t.Fatal("the shared region lies where the old one was")
				}
				s.join() // the peer's requests fail, for want of a queue pair
				if s.err != nil || s.first == 0 {
					t.Errorf("the peer: status %d, error %v", s.first, s.err)
				}
				for page := range 4 {
					for _, bits := range []uint32{0x40000000, 0x80000000, 0xc0000000} {
						for off := uint32(0); off < 12; off += 4 {
							if err := g.Dev.Doorbell(page, off, bits|a.QP.Handle); err != nil {
								t.Fatal(err)
							}
						}
					}
				}
				d.exchangeAfter(g, b.P.G)
				if pages := changedPages(before, copyPages(t, g, old)); len(pages) > 0 {
					t.Errorf("%d pages of the old kernel changed after the new one's probe, the first at %#x", len(pages), old[pages[0]])
				}
			})
		})
	}
}

// The new kernel's shared region may be one that is refused: the old kernel's device is gone all the same.
func TestAProbeThatFailsLeavesNothingOfTheDeviceBefore(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		a, b, s := d.stormGuests()
		wantMoving(t, a.MR.Mem)
		g := a.P.G

		if err := writeDSR(g, 3<<30); err != nil {
			t.Fatal(err)
		}

		wantStill(t, "a probe that fails", g.RAM.All())
		if err := activate(g); err == nil {
			t.Error("a shared region in a hole activates")
		}
		s.join()
		g.Reboot()
		d.exchangeAfter(g, b.P.G)
	})
}

// Bus mastering off ends the device: it does not go on where it was when it is on again, since the memory may be another
// kernel's by then.
func TestBusMasteringOnAgainDoesNotBringTheDeviceBack(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		a, b, s := d.stormGuests()
		wantMoving(t, a.MR.Mem)
		g := a.P.G
		if err := g.Func.SetBusMaster(false); err != nil {
			t.Fatal(err)
		}
		wantStill(t, "bus mastering off", g.RAM.All())

		if err := g.Func.SetBusMaster(true); err != nil {
			t.Fatal(err)
		}

		wantStill(t, "bus mastering on again", g.RAM.All())
		if _, err := g.Dev.QueryPort(1); err == nil {
			t.Error("a command is executed")
		}
		a.Write(b.Address(), 0, 8)
		ringEverything(t, g)
		wantStill(t, "doorbells of a device that is gone", g.RAM.All())
		s.join()
		if err := g.Dev.Activate(); err == nil {
			t.Error("the device activates without a new shared region")
		}
		d.logSays("cause=bus_master_off")
		g.Reboot()
		d.exchangeAfter(g, b.P.G)
	})
}
