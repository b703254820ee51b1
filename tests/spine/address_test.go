// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"strings"
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"golang.org/x/sys/unix"
)

// QEMU gives every virtual machine the same MAC unless it is told another, and with it the same link-local address.
func TestTwoGuestsWithOneMACAreBothNamed(t *testing.T) {
	d := startDaemon(t, "poll")
	a := d.guest("a")
	o := guestOptions("b")
	o.MAC = a.MAC()

	m, err := testguest.PowerOn(d.socket("b"), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.PowerOff() }()
	refused(t, "the address of guest a", m.Bind(), unix.EADDRINUSE, unix.EFAULT)

	d.logSays("address refused", "guest=b", `guest \"a\" has it`, "reason=in_use", "mac=", "qemu-args")
	if _, err := a.Dev.QueryPort(1); err != nil {
		t.Errorf("the guest that has the address: %v", err)
	}
	// Once the address is free the other guest may have it.
	a.Stop()
	if err := m.Crash(); err != nil {
		t.Fatal(err)
	}
	if err := m.Bind(); err != nil {
		t.Errorf("the address after its holder is gone: %v", err)
	}
}

func TestAGuestWithAListMayUseTheseAddressesAlone(t *testing.T) {
	listed := map[string]string{"a": `gids = ["10.0.0.1", "fe80::ff:fe00:1"]`, "b": ""}
	d := startDaemonWith(t, "poll", func(name string) string { return listed[name] })
	a := d.guest("a") // binds both
	roce := gidType(a)
	refused(t, "an address that is not listed", a.Dev.CreateBind(5, [16]byte{0xfe, 0x80, 15: 9}, roce), unix.EPERM, unix.EFAULT)
	d.logSays("address refused", "guest=a", "fe80::9", "reason=not_listed", "gids")

	b := d.guest("b")
	if err := b.Dev.CreateBind(5, [16]byte{0xfe, 0x80, 15: 9}, roce); err != nil {
		t.Errorf("a guest without a list: %v", err)
	}
	x, y := a.Open().Endpoint(testguest.Shape{}), b.Open().Endpoint(testguest.Shape{})
	testguest.Connect(x, y)
	x.Sent(x.Write(y.Address(), 0, 64), "SUCCESS")
}

// A machine that was migrated here brings a driver along that has probed another device.
func TestADriverThatProbedAnotherDeviceIsNamedAndGetsErrors(t *testing.T) {
	for use, reg := range map[string]string{"a command": "PVRDMA_REG_REQUEST", "its interrupt mask": "PVRDMA_REG_IMR"} {
		t.Run(use, func(t *testing.T) {
			eachMode(t, func(t *testing.T, d *daemon) {
				g := d.powerOn()
				registers, _ := bars(g)
				read := func(name string) uint32 {
					v, err := g.Func.Read32(registers, uint64(g.Const(name)))
					if err != nil {
						t.Fatal(err)
					}
					return v
				}
				read("PVRDMA_REG_VERSION")
				if log := d.log.String(); strings.Contains(log, "already_active") {
					t.Errorf("a read of VERSION counts as use:\n%s", log)
				}
				if err := g.Func.Write32(registers, uint64(g.Const(reg)), 0); err != nil {
					t.Fatal(err)
				}
				if read("PVRDMA_REG_ERR") == 0 {
					t.Error("it succeeds")
				}
				d.logSays("guest=a", "state=already_active", "reload vmw_pvrdma", "migrated")
				if err := g.Bind(); err != nil {
					t.Errorf("a driver that is loaded anew: %v", err)
				}
			})
		})
	}
}
