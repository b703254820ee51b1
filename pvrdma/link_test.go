// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
)

// port asks the device for its port's state.
func (g *guest) port() (abi.PortState, uint8) {
	g.t.Helper()
	var r abi.CmdQueryPortResp
	g.must(&abi.CmdQueryPortReq{Hdr: hdr(abi.CmdQueryPort), PortNum: 1}, &r)
	return r.Attrs.State, r.Attrs.PhysState
}

func TestAPortThatGoesDownAndUpIsToldOnceEachAndQueriesAgree(t *testing.T) {
	g := newRig(t).newGuest()
	for range 2 {
		for _, c := range []struct {
			up    bool
			event abi.EventType
			state abi.PortState
			phys  uint8
		}{{false, abi.EventPortErr, abi.PortDown, physStateDisabled}, {true, abi.EventPortActive, abi.PortActive, physStateLinkUp}} {
			g.dev.SetLink(c.up)
			g.dev.SetLink(c.up)
			if diff := cmp.Diff([]asyncRecord{{c.event, 1}}, g.notifier.asyncs()); diff != "" {
				t.Errorf("up %t: events (-want +got):\n%s", c.up, diff)
			}
			if state, phys := g.port(); state != c.state || phys != c.phys {
				t.Errorf("up %t: the port is %v, %v", c.up, state, phys)
			}
		}
	}
	if diff := cmp.Diff([]bool{false, true, false, true}, g.eng.links); diff != "" {
		t.Errorf("the engine was told (-want +got):\n%s", diff)
	}
}

// TestADeviceBeginsWithThePortAsItsOperatorWantsIt: nobody is told of what was so before.
func TestADeviceBeginsWithThePortAsItsOperatorWantsIt(t *testing.T) {
	cfg := defaultConfig()
	cfg.LinkDown = true
	g := newRig(t).idleGuest(cfg, true)
	g.activate()
	if state, _ := g.port(); state != abi.PortDown || !cmp.Equal(g.eng.links, []bool{false}) {
		t.Errorf("the port is %v, the engine was told %v", state, g.eng.links)
	}
	if err := g.dev.Reset(); err != nil {
		t.Fatal(err)
	}
	g.dev.SetLink(true) // while there is no driver
	g.activate()
	if state, _ := g.port(); state != abi.PortActive || len(g.eng.links) != 0 || len(g.notifier.asyncs()) != 0 {
		t.Errorf("after a reset the port is %v, the engine was told %v", state, g.eng.links)
	}
}

// TestAPortThatTheEngineHasDownIsDown whatever the operator says.
func TestAPortThatTheEngineHasDownIsDown(t *testing.T) {
	r := newRig(t)
	r.engine.port.Active = false
	g := r.newGuest()
	g.dev.SetLink(false)
	g.dev.SetLink(true)
	if state, _ := g.port(); state != abi.PortDown {
		t.Errorf("the port is %v", state)
	}
}
