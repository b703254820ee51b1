// SPDX-License-Identifier: Apache-2.0

package pcifn

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/pvrdma"
	"github.com/pvrdmad/pvrdmad/pvrdma/abi"
	"golang.org/x/sys/unix"
)

// versionPair is a device and a driver of some versions, and what they have in common.
type versionPair struct {
	device, driver, both uint32
	typ                  hostverbs.GIDType
}

func versionPairs() []versionPair {
	return []versionPair{
		{17, 20, 17, hostverbs.GIDTypeRoCEv1},
		{18, 20, 18, hostverbs.GIDTypeRoCEv2},
		{19, 20, 19, hostverbs.GIDTypeRoCEv2},
		{20, 20, 20, hostverbs.GIDTypeRoCEv2},
		{20, 17, 17, hostverbs.GIDTypeRoCEv1},
		{20, 18, 18, hostverbs.GIDTypeRoCEv2},
		{20, 19, 19, hostverbs.GIDTypeRoCEv2},
		{17, 17, 17, hostverbs.GIDTypeRoCEv1},
		{19, 21, 19, hostverbs.GIDTypeRoCEv2},
	}
}

func TestADriverOfAnyVersionBringsADeviceOfAnyUp(t *testing.T) {
	for _, p := range versionPairs() {
		t.Run(fmt.Sprintf("device %d, driver %d", p.device, p.driver), func(t *testing.T) {
			cfg := testConfig(Poll)
			cfg.Device.Version, cfg.Device.GIDType = p.device, p.typ
			d := attachTo(t, cfg)
			d.layout()
			d.dsr.DriverVersion = p.driver
			if p.both < abi.VersionPPN64 { // the upper half of the page's frame number is not the driver's to define
				d.dsr.UARPFN64 |= 0xdead << 32
			}

			d.probeAs(p)

			// A context's page is found from the kernel's.
			req := &abi.CmdCreateUCReq{Hdr: abi.CmdHeader{Cmd: abi.CmdCreateUC}, PFN64: uarPFN + 1}
			var resp abi.CmdCreateUCResp
			d.must(req, &resp)
			if resp.CtxHandle == 0 {
				t.Error("no context")
			}
			want := pvrdma.Activated{Guest: pvrdma.Guest{Name: "vm1"}, DriverVersion: p.driver, Version: p.both}
			if diff := cmp.Diff([]pvrdma.Activated{want}, seen[pvrdma.Activated](d.seen)); diff != "" {
				t.Errorf("reported (-want +got):\n%s", diff)
			}
			// The machine is reset: the register says what it said.
			d.ok(d.s.Reset())
			if v := d.get(abi.RegVersion); v != p.device {
				t.Errorf("VERSION is %d after a reset, want %d", v, p.device)
			}
		})
	}
}

// probeAs brings the device up and looks at what that kind of driver looks at.
func (d *driver) probeAs(p versionPair) {
	d.t.Helper()
	if v := d.get(abi.RegVersion); v != p.device {
		d.t.Errorf("VERSION is %d, want %d", v, p.device)
	}
	wantERR(d.t, "DSRHIGH", d.loadDSR(), 0)
	if c := d.caps(); !abi.AcceptCaps(p.both, c.Mode, c.GIDTypes) || c.GIDTypes != abi.GIDTypes(p.typ) {
		d.t.Errorf("mode %v and GID types %v, which the driver would not take", c.Mode, c.GIDTypes)
	}
	d.reg(abi.RegIMR, 0)
	wantERR(d.t, "ACTIVATE", d.ctl(abi.DeviceCtlActivate), 0)
}

func TestAFunctionOfNoVersionCannotBeOpened(t *testing.T) {
	for _, version := range []uint32{16, 21} {
		d := attach(t, Poll)
		cfg := testConfig(Poll)
		cfg.Worker, cfg.Domain = d.worker, d.domain
		cfg.Device.Version = version
		fn, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		_, err = fn.open(func(abi.IntrVector) {})
		if !errors.Is(err, unix.EINVAL) {
			t.Errorf("version %d: error %v, want EINVAL", version, err)
		}
	}
}
