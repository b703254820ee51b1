// SPDX-License-Identifier: Apache-2.0

// Package testguest is a guest without a virtual machine: it plays VMM, driver and program against a device's
// vfio-user socket, with memory that it really shares and interrupts that it really gets.
//
// It knows the device only from the driver's headers and the protocol only from its document: it may not import the
// packages that serve them.
package testguest

import (
	"errors"
	"fmt"

	"github.com/pvrdmad/pvrdmad/internal/testguest/driver"
	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"github.com/pvrdmad/pvrdmad/internal/testguest/verbs"
	"github.com/pvrdmad/pvrdmad/internal/testguest/vfio"
	"golang.org/x/sys/unix"
)

// Options say what a guest is like. The zero value is a machine that boots.
type Options struct {
	Memory ram.Options
	Driver driver.Options
	// MAC and IP are those of the vmxnet3 beside the device; the GIDs come from them. A zero IP has no GID.
	MAC [6]byte
	IP  [4]byte
	// MADReceives is how many receives QP 1 gets at boot. 0 is 512, as many as Linux posts.
	MADReceives int
	// ProbeOnly leaves the device unregistered: no GIDs, no QP 1.
	ProbeOnly bool
}

// Machine is a running guest.
type Machine struct {
	L    *layout.Layout
	RAM  *ram.RAM
	Func *vfio.Function
	Dev  *driver.Device
	// Kernel is the guest kernel's context, GSI its QP 1.
	Kernel *verbs.Context
	GSI    *verbs.GSI
	// GIDs is the table as the guest bound it.
	GIDs [][16]byte

	o Options
}

// PowerOn starts a machine with the device behind a socket, and nothing that drives it yet.
func PowerOn(socket string, o Options) (*Machine, error) {
	l, err := layout.Load()
	if err != nil {
		return nil, err
	}
	r, err := ram.New(o.Memory)
	if err != nil {
		return nil, err
	}
	m := &Machine{L: l, RAM: r, o: o}
	if m.Func, err = vfio.Realize(socket, m.DMAMaps()); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return m, nil
}

// DMAMaps are the pieces of the guest's memory as its VMM announces them.
func (m *Machine) DMAMaps() []vfio.DMAMap {
	var maps []vfio.DMAMap
	for _, g := range m.RAM.Regions() {
		maps = append(maps, vfio.DMAMap{
			Addr: g.Addr, Size: g.Size, Offset: g.Offset, FD: m.RAM.FD(), Flags: vfio.DMARead | vfio.DMAWrite,
		})
	}
	return maps
}

// Boot starts a machine and binds the device.
func Boot(socket string, o Options) (*Machine, error) {
	m, err := PowerOn(socket, o)
	if err != nil {
		return nil, err
	}
	if err := m.Bind(); err != nil {
		return nil, errors.Join(err, m.PowerOff())
	}
	return m, nil
}

// Bind probes the device and registers it, unless the machine only probes.
func (m *Machine) Bind() (err error) {
	if m.Dev, err = driver.Probe(m.L, m.RAM, m.Func, m.o.Driver); err != nil {
		return err
	}
	m.Kernel = verbs.Kernel(m.Dev)
	if m.o.ProbeOnly {
		return nil
	}
	return m.register()
}

// register does what the kernel's RDMA core does with a new device.
func (m *Machine) register() error {
	port, err := m.Dev.QueryPort(1)
	if err != nil {
		return err
	}
	if err := m.bindGIDs(port.Get32("gid_tbl_len")); err != nil {
		return err
	}
	if _, err := m.Dev.QueryPort(1); err != nil {
		return err
	}
	for i := range port.Get32("pkey_tbl_len") {
		if _, err := m.Dev.QueryPKey(1, uint8(i)); err != nil {
			return err
		}
	}
	if m.GSI, err = verbs.StartGSI(m.Kernel, m.o.MADReceives); err != nil {
		return fmt.Errorf("start QP 1: %w", err)
	}
	m.Dev.Registered()
	_, err = m.Dev.QueryPort(1) // the connection manager's
	return err
}

// bindGIDs binds the link-local GID of the MAC and the GID of the IPv4 address.
func (m *Machine) bindGIDs(table uint32) error {
	m.GIDs = [][16]byte{linkLocal(m.o.MAC)}
	if m.o.IP != [4]byte{} {
		m.GIDs = append(m.GIDs, [16]byte{
			10: 0xff, 11: 0xff, 12: m.o.IP[0], 13: m.o.IP[1], 14: m.o.IP[2], 15: m.o.IP[3],
		})
	}
	if table < uint32(len(m.GIDs)) || m.Dev.Caps().Get32("gid_tbl_len") < table {
		return fmt.Errorf("a GID table of %d entries, %d by the capabilities: %w", table,
			m.Dev.Caps().Get32("gid_tbl_len"), unix.EPROTO)
	}
	for i, gid := range m.GIDs {
		if err := m.Dev.CreateBind(uint32(i), gid, uint8(m.Dev.Caps().Get32("gid_types"))); err != nil {
			return err
		}
	}
	return nil
}

// linkLocal is the GID that Linux derives from a MAC: fe80::/64 and the modified EUI-64.
func linkLocal(mac [6]byte) [16]byte {
	return [16]byte{
		0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5],
	}
}

// MAC is the guest's station address.
func (m *Machine) MAC() [6]byte { return m.o.MAC }

// Unbind removes the device from the guest as the driver does. Programs have ended before.
func (m *Machine) Unbind() error {
	if m.Dev == nil {
		return nil
	}
	var err error
	if m.GSI != nil {
		err = m.GSI.Stop()
		for i, gid := range m.GIDs {
			err = errors.Join(err, m.Dev.DestroyBind(uint32(i), gid))
		}
	}
	err = errors.Join(err, m.Dev.Remove())
	m.Dev, m.GSI, m.GIDs = nil, nil, nil
	return err
}

// Crash forgets the device without a word to it, as a guest kernel does that panics. What it shared stays allocated.
func (m *Machine) Crash() error {
	if m.Dev == nil {
		return nil
	}
	err := m.Dev.Abandon()
	m.Dev, m.GSI, m.GIDs = nil, nil, nil
	return err
}

// PowerOff ends the machine as killing its VMM does: the connection closes without a word.
func (m *Machine) PowerOff() error {
	return errors.Join(m.Crash(), m.Func.Close(), m.RAM.Close())
}
