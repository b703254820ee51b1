// SPDX-License-Identifier: Apache-2.0

//go:build vm

package spine

import (
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/bed"
)

// TestAGuestBehindAVirtualIOMMUGetsItsData runs several programs one after the other: each gets the addresses of the one
// before for other memory. QEMU takes those back two megabytes at a time, and only a program with more shows it.
func TestAGuestBehindAVirtualIOMMUGetsItsData(t *testing.T) {
	w := makeWorld(t, bed.Options{
		Guests: 1, Devices: []string{"-device", "intel-iommu,caching-mode=on"}, Cmdline: []string{"intel_iommu=on", "iommu.strict=1"},
	})
	w.LoadDrivers(t)
	for range 4 {
		w.Output(t, 0, time.Minute, "pvcheck --self -n 100 && pvcheck --self -n 50 -e")
	}
	metrics, err := w.Daemon.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := bed.Sum(metrics, "pvrdma_guest_viommu"); n != 1 {
		t.Errorf("%d guests have a virtual IOMMU, want 1", n)
	}
	w.CheckKernelLogs(t)
	w.CheckDaemon(t)
}

// busMasterOff clears the bus master bit behind the driver's back, and sets it again.
const busMasterOff = `
config=$(readlink -f /sys/class/infiniband/vmw_pvrdma0/device)/config
poke() { printf "$1" | dd of="$config" bs=1 seek=4 count=1 conv=notrunc status=none; }
poke '\002' && poke '\006' || exit 4
`

// TestTheDriverComesBackAfterBusMasteringWasOff: its commands fail meanwhile, and nothing hangs.
func TestTheDriverComesBackAfterBusMasteringWasOff(t *testing.T) {
	w := makeWorld(t, bed.Options{Guests: 1})
	w.LoadDrivers(t)
	w.Output(t, 0, time.Minute, "pvcheck --self -n 50")

	w.Output(t, 0, 30*time.Second, busMasterOff+`
if timeout 20 pvcheck --self -n 10; then echo "a device that is gone works" >&2; exit 5; fi
[ $? -ne 124 ] || { echo "a program hangs" >&2; exit 6; }
`)
	metrics, err := w.Daemon.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := bed.Sum(metrics, `pvrdma_guest_error_state{guest="a",state="bus_master_off"}`); n != 1 {
		t.Errorf("the state of the guest's device is not bus_master_off: %d", n)
	}

	w.Output(t, 0, 30*time.Second, "modprobe -r vmw_pvrdma")
	w.LoadDriver(t, 0)
	w.Output(t, 0, time.Minute, "pvcheck --self -n 50")
	if metrics, err = w.Daemon.Metrics(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := bed.Sum(metrics, "pvrdma_guest_error_state") + bed.Sum(metrics, "pvrdma_guest_panics_total"); n != 0 {
		t.Errorf("%d error states and panics after the driver was loaded anew", n)
	}
}
