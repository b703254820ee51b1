// SPDX-License-Identifier: Apache-2.0

package pcifn

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// portState is what the guest's driver is told.
func (d *driver) portState() abi.PortState {
	d.t.Helper()
	var r abi.CmdQueryPortResp
	d.must(&abi.CmdQueryPortReq{Hdr: hdr(abi.CmdQueryPort), PortNum: 1}, &r)
	return r.Attrs.State
}

func TestALinkOutlivesTheGuestsConnections(t *testing.T) {
	d := active(t, Poll)
	d.fn.SetLink(false)
	if s := d.portState(); s != abi.PortDown || d.fn.LinkUp() {
		t.Errorf("the port is %v", s)
	}
	d.fn.SetLink(true)
	if s := d.portState(); s != abi.PortActive || !d.fn.LinkUp() {
		t.Errorf("the port is %v", s)
	}
	d.fn.SetLink(false)
	d.s.Close()
	d.fn.SetLink(true)
	d.fn.SetLink(false) // nobody is there
	d.connect()
	d.probe()
	if s := d.portState(); s != abi.PortDown {
		t.Errorf("the next client finds the port %v", s)
	}
}
