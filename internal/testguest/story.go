// SPDX-License-Identifier: Apache-2.0

package testguest

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
)

// Guest is a machine in a test: what fails ends the test.
type Guest struct {
	*Machine
	t testing.TB
}

// Start boots a guest and ends it with the test. At the end its event rings must be sound.
func Start(t testing.TB, socket string, o Options) *Guest {
	t.Helper()
	m, err := Boot(socket, o)
	if err != nil {
		t.Fatalf("boot a guest at %s: %v", socket, err)
	}
	return Adopt(t, m)
}

// Adopt makes a machine a guest of a test, which ends with it.
func Adopt(t testing.TB, m *Machine) *Guest {
	g := &Guest{Machine: m, t: t}
	t.Cleanup(g.stop)
	return g
}

func (g *Guest) stop() {
	if g.Machine == nil {
		return
	}
	if g.Dev != nil {
		if _, err := g.Dev.EventStats(); err != nil {
			g.t.Errorf("event rings: %v", err)
		}
	}
	if err := g.Unbind(); err != nil {
		g.t.Errorf("remove the device: %v", err)
	}
	if err := g.PowerOff(); err != nil {
		g.t.Errorf("power off: %v", err)
	}
	g.Machine = nil
}

// Stop ends the guest now: the driver is removed and the machine switched off.
func (g *Guest) Stop() {
	g.t.Helper()
	g.stop()
}

// Reboot forgets the device without a word, as a guest that crashed or was reset does, and binds it again.
func (g *Guest) Reboot() {
	g.t.Helper()
	if err := g.Crash(); err != nil {
		g.t.Fatalf("crash: %v", err)
	}
	if err := g.Func.Boot(); err != nil {
		g.t.Fatalf("place the BARs again: %v", err)
	}
	if err := g.Bind(); err != nil {
		g.t.Fatalf("bind the device again: %v", err)
	}
}

// Kill ends the guest as killing its VMM does.
func (g *Guest) Kill() {
	g.t.Helper()
	if err := g.PowerOff(); err != nil {
		g.t.Errorf("kill the guest: %v", err)
	}
	g.Machine = nil
}

// Const is a constant of the headers.
func (g *Guest) Const(name string) uint32 { return g.L.Const(name) }

// Program is a program of a guest that has opened the device.
type Program struct {
	*verbs.Context
	G *Guest

	endpoints []*Endpoint
}

// Open starts a program. It ends with the test, its objects before it.
func (g *Guest) Open() *Program {
	g.t.Helper()
	c, err := verbs.Open(g.Dev)
	if err != nil {
		g.t.Fatal(err)
	}
	p := &Program{Context: c, G: g}
	g.t.Cleanup(p.Exit)
	return p
}

// InKernel is a program that is the guest kernel itself: doorbell page 0, whose every doorbell is a message.
func (g *Guest) InKernel() *Program {
	p := &Program{Context: g.Kernel, G: g}
	g.t.Cleanup(p.Exit)
	return p
}

// Exit ends the program now, its objects before it. If the guest is gone there is nothing to end.
func (p *Program) Exit() {
	p.G.t.Helper()
	if p.Context == nil {
		return
	}
	alive := p.G.Machine != nil && p.G.Dev == p.Dev
	for _, e := range p.endpoints {
		e.destroy(alive)
	}
	p.endpoints = nil
	if !alive {
		return
	}
	if err := p.Close(); err != nil {
		p.G.t.Errorf("close a context: %v", err)
	}
	p.Context = nil
}
