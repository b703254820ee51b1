// SPDX-License-Identifier: Apache-2.0

//go:build vm

package vm

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/pvrdmad/pvrdmad/tests/vm/harness"
)

func TestAGuestOfTheRow(t *testing.T) {
	guest := bootGuest(t, harness.Config{Name: "one", Number: 1})

	t.Run("runs the versions that its row says", func(t *testing.T) { runsItsRow(t, guest) })
	t.Run("loads the unmodified driver only when asked", func(t *testing.T) { loadsDriver(t, guest) })
	t.Run("checks software RoCE in one process", func(t *testing.T) { pvcheckSelf(t, guest) })
	t.Run("runs scripts and carries files", func(t *testing.T) { scriptsAndFiles(t, guest) })
}

func loadsDriver(t *testing.T, guest *harness.Guest) {
	if out := output(t, guest, 10*time.Second, "grep ^vmw_pvrdma /proc/modules || :"); out != "" {
		t.Errorf("vmw_pvrdma is loaded before the test asks for it: %s", out)
	}
	output(t, guest, 20*time.Second, "modprobe vmw_pvrdma && modprobe -a ib_uverbs rdma_ucm rdma_rxe")

	if out := output(t, guest, 10*time.Second, "cat /sys/module/vmw_pvrdma/initstate"); out != "live" {
		t.Errorf("vmw_pvrdma is %q after modprobe, want live", out)
	}
}

func TestAGuestThatCannotLoadAModuleIsNotReady(t *testing.T) {
	_, err := harness.Boot(t.Context(), harness.Config{
		Name: "one", Number: 1, Images: images, Modules: []string{"no_such_module"},
	})

	if err == nil || !strings.Contains(err.Error(), "modprobe no_such_module") {
		t.Errorf("boot with an impossible module: %v, want an error that names it", err)
	}
}

// row is a [[row]] of matrix.toml.
type row struct {
	Name          string `toml:"name"`
	QEMUMin       string `toml:"qemu_min"`
	QEMUSuites    string `toml:"qemu_suites"`
	QEMURelease   string `toml:"qemu_release"`
	GuestDebian   string `toml:"guest_debian"`
	GuestSuites   string `toml:"guest_suites"`
	GuestKernel   string `toml:"guest_kernel"`
	GuestRDMACore string `toml:"guest_rdma_core"`
}

func readRow(t *testing.T, name string) row {
	t.Helper()
	var matrix struct {
		Row []row `toml:"row"`
	}
	meta, err := toml.DecodeFile("matrix.toml", &matrix)
	if err != nil {
		t.Fatal(err)
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		t.Fatalf("matrix.toml has unknown keys: %v", unknown)
	}
	for _, r := range matrix.Row {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("matrix.toml has no row %q", name)
	return row{}
}

func runsItsRow(t *testing.T, guest *harness.Guest) {
	want := readRow(t, images.Row)

	facts, err := guest.Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if major, _, _ := strings.Cut(facts.Debian, "."); major != want.GuestDebian {
		t.Errorf("guest is Debian %s, row says %s", facts.Debian, want.GuestDebian)
	}
	if !strings.HasPrefix(facts.Kernel, want.GuestKernel+".") {
		t.Errorf("guest runs Linux %s, row says %s", facts.Kernel, want.GuestKernel)
	}
	if got := facts.Packages["rdma-core"]; !strings.HasPrefix(got, want.GuestRDMACore+".") {
		t.Errorf("guest has rdma-core %s, row says %s", got, want.GuestRDMACore)
	}
}

func TestResetRebootAndQuit(t *testing.T) {
	guest := bootGuest(t, harness.Config{Name: "one", Number: 1})

	t.Run("a reset boots the guest anew", func(t *testing.T) { resetBootsAnew(t, guest) })
	t.Run("a reboot from inside is a reset too", func(t *testing.T) { rebootFromInside(t, guest) })
	t.Run("quit ends the machine", func(t *testing.T) { quitEnds(t, guest) })
}

func resetBootsAnew(t *testing.T, guest *harness.Guest) {
	output(t, guest, 5*time.Second, "touch /run/of-this-life")
	sleeper := start(t, guest, time.Minute, "sleep 50")

	if err := guest.Reset(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}

	if _, err := sleeper.Wait(t.Context()); !errors.Is(err, harness.ErrReset) {
		t.Errorf("script that ran during the reset: %v, want %v", err, harness.ErrReset)
	}
	if out := output(t, guest, 5*time.Second, "ls /run"); strings.Contains(out, "of-this-life") {
		t.Errorf("a file of the last life is still there: %s", out)
	}
}

func rebootFromInside(t *testing.T, guest *harness.Guest) {
	got, err := guest.Run(within(t, 20*time.Second), "echo b >/proc/sysrq-trigger; sleep 10")
	if !errors.Is(err, harness.ErrReset) {
		t.Fatalf("script that reboots its guest: %+v, %v, want %v", got, err, harness.ErrReset)
	}

	if err := guest.WaitReady(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	output(t, guest, 5*time.Second, "true")
}

func quitEnds(t *testing.T, guest *harness.Guest) {
	if err := guest.Quit(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}

	if _, err := guest.Run(t.Context(), "true"); err == nil {
		t.Error("a script ran in a guest that has quit")
	}
}
