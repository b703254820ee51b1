// SPDX-License-Identifier: Apache-2.0

package driver

import "errors"

// Remove unbinds the device as the driver does, after its objects were destroyed: masks the interrupts, resets the
// device without reading anything back, and frees what was shared with it.
func (d *Device) Remove() error {
	err := d.WriteReg("PVRDMA_REG_IMR", ^uint32(0))
	err = errors.Join(err, d.stopListening(), d.Func.DisableMSIX())
	err = errors.Join(err, d.WriteReg("PVRDMA_REG_CTL", d.L.Const("PVRDMA_DEVICE_CTL_RESET")))
	d.freeShared()
	return errors.Join(err, d.irqs.close())
}

// Abandon forgets the device without a word to it, as a guest does that crashed. Its memory stays allocated.
func (d *Device) Abandon() error {
	return errors.Join(d.stopListening(), d.irqs.close())
}

func (d *Device) freeShared() {
	for i := range d.rings {
		d.rings[i].dir.Free()
		d.RAM.Free(d.rings[i].pages...)
	}
	d.RAM.Free(d.slots[0], d.slots[1], d.dsrAddr)
}
