// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"path/filepath"
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"github.com/pvrdmad/pvrdmad/internal/testguest/vfio"
	"github.com/pvrdmad/pvrdmad/vfiouser"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// guest is a driver of the device, in a machine without processors.
type guest struct {
	*vfio.Function
	t   *testing.T
	ram *ram.RAM
	irq int
}

// boot serves the device and attaches a guest to it, as QEMU and the guest's kernel do.
func boot(t *testing.T) *guest {
	t.Helper()
	path := filepath.Join(t.TempDir(), "edu.sock")
	listener, err := vfiouser.Listen(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- vfiouser.NewServer(listener, vfiouser.Config{Open: open}).Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	memory, err := ram.New(ram.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = memory.Close() })
	var dma []vfio.DMAMap
	for _, r := range memory.Regions() {
		dma = append(dma, vfio.DMAMap{Addr: r.Addr, Size: r.Size, Offset: r.Offset, FD: memory.FD(), Flags: 3})
	}
	f, err := vfio.Realize(path, dma)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	g := &guest{Function: f, t: t, ram: memory}
	if g.irq, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(g.irq) })
	g.ok(f.Boot())
	g.ok(f.EnableMSIX([]int{g.irq}))
	return g
}

func (g *guest) ok(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *guest) write(off uint64, v uint32) {
	g.t.Helper()
	g.ok(g.Write32(0, off, v))
}

func (g *guest) want(off uint64, want uint32) {
	g.t.Helper()
	got, err := g.Read32(0, off)
	g.ok(err)
	if got != want {
		g.t.Errorf("register %#x is %#x, want %#x", off, got, want)
	}
}

// interrupts returns how many have come since the last call.
func (g *guest) interrupts() uint64 {
	var p [8]byte
	if _, err := unix.Read(g.irq, p[:]); err != nil {
		return 0
	}
	return binary.NativeEndian.Uint64(p[:])
}

// dma has the device copy, and waits for the interrupt. Addresses are 64 bits wide.
func (g *guest) dma(source, dest, count uint64, direction uint32) {
	g.t.Helper()
	for off, v := range map[uint64]uint64{regDMASource: source, regDMADest: dest, regDMACount: count} {
		g.ok(g.RegionWrite(0, off, binary.LittleEndian.AppendUint64(nil, v)))
	}
	g.write(regDMACmd, cmdStart|cmdIRQ|direction)
	g.want(regIRQStatus, dmaIRQ) // which comes after the copy
	if n := g.interrupts(); n != 1 {
		g.t.Errorf("%d interrupts, want 1", n)
	}
	g.write(regAck, dmaIRQ)
	g.want(regIRQStatus, 0)
}

func TestADriverFindsTheDeviceAlive(t *testing.T) {
	g := boot(t)

	g.write(regLiveness, 0x12345678)

	g.want(regID, 0x010000ed)
	g.want(regLiveness, 0xedcba987)
	g.want(0x2000, 0)
	if id, err := g.ReadConfig32(0); err != nil || id != 0x11e81234 {
		t.Errorf("the device is %#x, %v", id, err)
	}
}

func TestAFactorialIsComputedAndRaisesAnInterruptIfThatIsAskedFor(t *testing.T) {
	g := boot(t)
	for n, want := range map[uint32]uint32{0: 1, 1: 1, 10: 3628800, 34: 0, 0xffffffff: 0} {
		g.write(regFactorial, n)
		g.want(regFactorial, want)
	}
	if n := g.interrupts(); n != 0 {
		t.Errorf("%d interrupts that nobody asked for", n)
	}

	g.write(regStatus, statusIRQ)
	g.write(regFactorial, 5)

	g.want(regFactorial, 120)
	g.want(regIRQStatus, 1)
	if n := g.interrupts(); n != 1 {
		t.Errorf("%d interrupts, want 1", n)
	}
}

func TestADriverRaisesInterrupts(t *testing.T) {
	g := boot(t)

	g.write(regRaise, 6)
	g.write(regRaise, 1)
	g.write(regAck, 2)

	g.want(regIRQStatus, 5)
	if n := g.interrupts(); n != 2 {
		t.Errorf("%d interrupts, want 2", n)
	}
}

func TestBytesGoToTheDeviceAndBackByDMA(t *testing.T) {
	g := boot(t)
	pages, err := g.ram.Pages(2)
	g.ok(err)
	from, err := g.ram.Bytes(pages[0], 1000)
	g.ok(err)
	to, err := g.ram.Bytes(pages[1], 1000)
	g.ok(err)
	for i := range from {
		from[i] = byte(i * 7)
	}

	g.dma(pages[0], buffer+100, 1000, 0)
	g.dma(buffer+100, pages[1], 1000, cmdFromDevice)

	if !bytes.Equal(from, to) {
		t.Error("other bytes came back")
	}
}

func TestDMAOutsideOfTheBufferOrWithoutBusMasteringCopiesNothing(t *testing.T) {
	g := boot(t)
	page, err := g.ram.Page()
	g.ok(err)
	mem, err := g.ram.Bytes(page, 8)
	g.ok(err)
	copy(mem, "original")

	for _, off := range []uint64{buffer - 1, buffer + bufferSize - 7, 0, 1<<64 - 4} {
		g.ok(g.RegionWrite(0, regDMASource, binary.LittleEndian.AppendUint64(nil, off)))
		g.ok(g.RegionWrite(0, regDMADest, binary.LittleEndian.AppendUint64(nil, page)))
		g.write(regDMACount, 8)
		g.write(regDMACmd, cmdStart|cmdFromDevice|cmdIRQ)
		g.want(regIRQStatus, 0)
	}
	g.ok(g.SetBusMaster(false))
	g.dma(buffer, page, 8, cmdFromDevice)

	if string(mem) != "original" {
		t.Errorf("the guest's memory holds %q", mem)
	}
}

func TestAResetIsAPowerOn(t *testing.T) {
	g := boot(t)
	g.write(regLiveness, 1)
	g.write(regRaise, 1)

	g.ok(g.Reset())
	g.ok(g.Boot())

	g.want(regLiveness, 0)
	g.want(regIRQStatus, 0)
	g.want(regID, 0x010000ed)
}
