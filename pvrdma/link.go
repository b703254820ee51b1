// SPDX-License-Identifier: Apache-2.0

package pvrdma

import "github.com/pvrdmad/pvrdmad/pvrdma/abi"

// SetLink takes the device's port down, or up again, as its operator says. A driver that is there hears of it by PORT_ERR or
// PORT_ACTIVE, once, and QUERY_PORT tells the same. It is called as Exec is.
func (d *Device) SetLink(up bool) {
	if d.linkDown == !up {
		return
	}
	d.worker.Do(func() { d.linkDown = !up })
	if d.engine == nil {
		return
	}
	d.engine.SetLink(up)
	typ := abi.EventPortErr
	if up {
		typ = abi.EventPortActive
	}
	d.do(func() {
		if !d.failed {
			d.asyncEvent(typ, portNum)
		}
	})
}
