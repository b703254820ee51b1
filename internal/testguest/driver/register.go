// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
)

// ReadReg reads a register by its name in pvrdma_dev_api.h.
func (d *Device) ReadReg(name string) (uint32, error) {
	return d.Func.Read32(d.bar1, uint64(d.L.Const(name)))
}

// WriteReg writes a register by its name.
func (d *Device) WriteReg(name string, v uint32) error {
	return d.Func.Write32(d.bar1, uint64(d.L.Const(name)), v)
}

// WriteDSR tells the device where the shared region is, low half first.
func (d *Device) WriteDSR(addr uint64) error {
	if err := d.WriteReg("PVRDMA_REG_DSRLOW", uint32(addr)); err != nil {
		return err
	}
	return d.WriteReg("PVRDMA_REG_DSRHIGH", uint32(addr>>32))
}

// Doorbell writes a word of a doorbell page: a store where the page is mapped, otherwise a message.
func (d *Device) Doorbell(page int, offset, value uint32) error {
	return d.Func.Write32(d.bar2, uint64(page)*ram.PageSize+uint64(offset), value)
}

// DoorbellPage returns a doorbell page if it is mapped, nil if its writes are messages.
func (d *Device) DoorbellPage(page int) []byte {
	mem := d.Func.Mapped(d.bar2, uint64(page)*ram.PageSize)
	if mem == nil {
		return nil
	}
	return mem[:ram.PageSize]
}

// UARPages is how many doorbell pages the BAR holds.
func (d *Device) UARPages() int { return int(d.Func.Regions[d.bar2].Size / ram.PageSize) }

// BARs are the numbers of the register BAR and of the doorbell BAR.
func (d *Device) BARs() (registers, doorbells uint32) { return d.bar1, d.bar2 }
