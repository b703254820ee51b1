// SPDX-License-Identifier: Apache-2.0

// Command edu serves QEMU's educational device (docs/specs/edu.rst of QEMU) at the socket that is its argument: registers,
// one MSI-X vector, DMA. It shows how little a device needs beside vfiouser and guestmem, and may not grow beyond that.
package main

import (
	"context"
	"encoding/binary"
	"flag"
	"log"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/vfiouser"
)

// The registers of BAR0, in the words of QEMU's document.
const (
	regID, regLiveness, regFactorial                   = 0x00, 0x04, 0x08
	regStatus, regIRQStatus, regRaise, regAck          = 0x20, 0x24, 0x60, 0x64
	regDMASource, regDMADest, regDMACount, regDMACmd   = 0x80, 0x88, 0x90, 0x98
	statusIRQ, cmdStart, cmdFromDevice, cmdIRQ, dmaIRQ = 0x80, 1, 2, 4, 0x100
	buffer, bufferSize                                 = 0x40000, 4096 // the device's own memory for DMA
)

// edu is the device of one client. The server calls it from one goroutine, so it needs no locks.
type edu struct {
	session *vfiouser.Session
	ram     *guestmem.Space // the guest's memory
	config  *vfiouser.ConfigSpace
	regs    map[uint64]uint64 // what reading a register returns
	memory  [bufferSize]byte
	pending func() // work for after the answer
}

func open(s *vfiouser.Session) (vfiouser.Device, error) {
	e := &edu{session: s, ram: guestmem.NewDomain().NewSpace("the guest")}
	return e, e.Reset()
}

func (e *edu) Regions() []vfiouser.Region {
	const rw = vfiouser.RegionRead | vfiouser.RegionWrite
	return []vfiouser.Region{
		vfiouser.RegionBAR0:   {Size: 1 << 20, Flags: rw},
		vfiouser.RegionConfig: {Size: vfiouser.ConfigSpaceSize, Flags: rw},
	}
}

func (e *edu) IRQs() [vfiouser.NumIRQs]uint32 {
	return [vfiouser.NumIRQs]uint32{vfiouser.IRQMSIX: 1, vfiouser.IRQErr: 1}
}

func (e *edu) ReadRegion(index vfiouser.RegionIndex, off uint64, p []byte) error {
	if index == vfiouser.RegionConfig {
		e.config.Read(off, p)
		return nil
	}
	copy(p, binary.LittleEndian.AppendUint64(nil, e.regs[off]))
	return nil
}

func (e *edu) WriteRegion(index vfiouser.RegionIndex, off uint64, p []byte) error {
	if index == vfiouser.RegionConfig {
		e.config.Write(off, p)
		e.ram.SetEnabled(e.config.BusMaster())
		return nil
	}
	if n := len(p); n != 4 && (n != 8 || off < regDMASource) {
		return nil // registers are written whole
	}
	value := binary.LittleEndian.Uint64(append(p[:len(p):len(p)], 0, 0, 0, 0))
	switch off {
	case regLiveness:
		e.regs[off] = uint64(^uint32(value))
	case regFactorial:
		e.pending = func() { e.factorial(uint32(value)) }
	case regRaise:
		e.raise(value)
	case regAck:
		e.regs[regIRQStatus] &^= value
	case regDMACmd:
		e.pending = func() { e.dma(value) }
	case regStatus, regDMASource, regDMADest, regDMACount:
		e.regs[off] = value
	}
	return nil
}

// Replied does what a write has started: its answer does not wait for it, a later read does.
func (e *edu) Replied() {
	work := e.pending
	e.pending = func() {}
	work()
}

func (e *edu) factorial(n uint32) {
	result := uint32(1)
	for ; n > 1 && result != 0; n-- { // it is 0 from 34 on, however large n is
		result *= n
	}
	e.regs[regFactorial] = uint64(result)
	if e.regs[regStatus]&statusIRQ != 0 {
		e.raise(1)
	}
}

// dma copies between the guest's memory and the buffer. What does not fit, or is not there, is not copied.
func (e *edu) dma(cmd uint64) {
	guest, device, copies := e.regs[regDMASource], e.regs[regDMADest], e.ram.Read
	if cmd&cmdFromDevice != 0 {
		guest, device, copies = device, guest, e.ram.Write
	}
	count, off := e.regs[regDMACount], device-buffer
	if cmd&cmdStart == 0 || off > bufferSize || count > bufferSize-off {
		return
	}
	_ = copies(guest, e.memory[off:off+count])
	if cmd&cmdIRQ != 0 {
		e.raise(dmaIRQ)
	}
}

func (e *edu) raise(why uint64) {
	e.regs[regIRQStatus] |= why
	e.session.Trigger(vfiouser.IRQMSIX, 0)
}

func (e *edu) MapDMA(m vfiouser.DMAMap) error {
	return e.ram.Map(m.Addr, m.Size, m.FD, m.Offset, guestmem.Prot(m.Flags)) // the same two bits
}
func (e *edu) UnmapDMA(addr, size uint64) error { return e.ram.Unmap(addr, size) }
func (e *edu) UnmapAllDMA() error               { e.ram.UnmapAll(); return nil }
func (e *edu) Close()                           { _ = e.ram.Close() }

func (e *edu) Reset() (err error) {
	id := vfiouser.Identity{VendorID: 0x1234, DeviceID: 0x11e8, Class: 0x00ff00, Revision: 0x10}
	e.config, err = vfiouser.NewConfigSpace(id, e.Regions(), vfiouser.MSIX{Vectors: 1, TableOffset: 0x80000, PBAOffset: 0x90000})
	e.regs, e.memory, e.pending = map[uint64]uint64{regID: 0x010000ed}, [bufferSize]byte{}, func() {}
	e.ram.SetEnabled(false)
	return err
}

func main() {
	flag.Parse()
	listener, err := vfiouser.Listen(flag.Arg(0), 0o600)
	if err == nil {
		err = vfiouser.NewServer(listener, vfiouser.Config{Open: open}).Serve(context.Background())
	}
	log.Fatal("edu: ", err)
}
