// SPDX-License-Identifier: Apache-2.0

//go:build vm

package vm

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/harness"
	"github.com/pvrdmad/pvrdmad/tests/vm/harness/klog"
)

var updateBaseline = flag.Bool("update-baseline", false, "write testdata/baseline-ROW.txt from a boot without our device")

// rdmaModules are loaded for the baseline: all whose complaints are judged later.
var rdmaModules = []string{"vmw_pvrdma", "ib_uverbs", "ib_umad", "rdma_ucm", "rdma_rxe"}

func baselinePath() string { return "testdata/baseline-" + images.Row + ".txt" }

func readBaseline(t *testing.T) klog.Baseline {
	t.Helper()
	file, err := os.Open(baselinePath())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	known, err := klog.ReadBaseline(file)
	if err != nil {
		t.Fatal(err)
	}
	return known
}

func TestABootWithoutOurDeviceComplainsOfNothingBeyondTheBaseline(t *testing.T) {
	guest := bootUnchecked(t, harness.Config{Name: "one", Number: 1, Modules: rdmaModules})[0]
	log := kernelLog(t, guest)
	checkModuleOrder(t, guest)
	if len(log) < 100 {
		t.Fatalf("kernel log has only %d lines", len(log))
	}
	if *updateBaseline {
		writeBaseline(t, klog.NewBaseline(log))
	}

	for _, line := range log.Check(readBaseline(t)) {
		t.Errorf("kernel log: %s", line)
	}
}

// checkModuleOrder: vmxnet3 comes first, and all that were asked for are there when the guest is ready.
func checkModuleOrder(t *testing.T, guest *harness.Guest) {
	t.Helper()
	newestFirst := strings.Fields(output(t, guest, 10*time.Second, "cut -d' ' -f1 /proc/modules"))
	nic := slices.Index(newestFirst, "vmxnet3")
	for _, module := range rdmaModules {
		if at := slices.Index(newestFirst, module); at < 0 || at > nic {
			t.Errorf("%s is not loaded, or was before vmxnet3: %v", module, newestFirst)
		}
	}
}

func writeBaseline(t *testing.T, known klog.Baseline) {
	t.Helper()
	lines := []string{
		"# Errors and warnings of the RDMA modules in a guest without our device; numbers are replaced by N.",
		"# Written by: go test -tags vm ./tests/vm -run TestABootWithoutOurDevice -update-baseline",
	}
	for text := range known {
		lines = append(lines, text)
	}
	slices.Sort(lines[2:])
	if err := os.WriteFile(baselinePath(), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestPlantedTroubleInTheKernelLogIsFoundAndAPanicAtOnce(t *testing.T) {
	guest := bootUnchecked(t, harness.Config{Name: "one", Number: 1})[0]
	planted := []string{
		"<6>WARNING: CPU: 1 PID: 7 at drivers/infiniband/core/cq.c:119 planted",
		"<3>infiniband planted0: could not do something",
		"<4>vmw_pvrdma 0000:01:01.1: planted warning",
	}
	before := kernelLog(t, guest).Check(readBaseline(t))

	for _, line := range planted {
		output(t, guest, 5*time.Second, fmt.Sprintf("echo '%s' >/dev/kmsg", line))
	}

	found := kernelLog(t, guest).Check(readBaseline(t))
	if len(before) != 0 || len(found) != len(planted) {
		t.Fatalf("found %q, before that %q, want the planted %q alone", found, before, planted)
	}
	for i, line := range planted {
		if found[i] != line[len("<6>"):] {
			t.Errorf("found %q, planted %q", found[i], line)
		}
	}
	panicEndsTheWait(t, guest)
}

func panicEndsTheWait(t *testing.T, guest *harness.Guest) {
	t.Helper()
	begin := time.Now()

	_, err := guest.Run(within(t, time.Minute), "echo c >/proc/sysrq-trigger; sleep 300")

	if err == nil || !strings.Contains(err.Error(), "Kernel panic") || time.Since(begin) > 4*time.Minute {
		t.Errorf("after %s: %v, want an error that says Kernel panic, soon", time.Since(begin), err)
	}
}
