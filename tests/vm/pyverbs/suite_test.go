// SPDX-License-Identifier: Apache-2.0

//go:build vm

package pyverbs

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/bed"
	"github.com/pvrdmad/pvrdmad/tests/vm/harness"
	"github.com/pvrdmad/pvrdmad/tests/vm/stage"
)

var (
	update = flag.Bool("update", false, "write the tables of the rows from this run; all modules run")
	only   = flag.String("modules", "", "run these modules of the suite alone, names with commas between")
)

// common are the modules that are about verbs and rdma_cm. The others of the suite are for the hardware of one vendor:
// they run in make test-long.
var common = []string{
	"test_addr", "test_atomic", "test_cq", "test_cq_events", "test_cqex", "test_device", "test_flow", "test_fork", "test_mr",
	"test_odp", "test_parent_domain", "test_pd", "test_qp", "test_qpex", "test_rdmacm", "test_relaxed_ordering",
	"test_rss_traffic", "test_shared_pd", "test_srq", "test_tag_matching",
}

const (
	// testLimit is how many seconds one test of the suite may take. Those of rdma_cm give up after 180 themselves.
	testLimit = 240
	// suiteLimit is how long all of them may take, on a machine that others use too.
	suiteLimit = harness.Slow * 5 * time.Minute
	// seed makes the queue pairs of random shape of test_qp such that each is one that the driver can make.
	seed = 217
)

func TestMain(m *testing.M) { stage.Main(m) }

// TestTheSuiteOfPyverbsEndsAsItsTableSays runs rdma-core's own tests in a guest of each row that has a table, then a few
// without a device: the suite skips what has no active port, and that must not look like a success.
func TestTheSuiteOfPyverbsEndsAsItsTableSays(t *testing.T) {
	for _, row := range slices.Compact([]string{stage.Row(), older}) {
		if modules := chosen(row); modules == nil || len(modules) > 0 {
			t.Run(row, func(t *testing.T) { endsAsItsTableSays(t, row, modules) })
		}
	}
}

func endsAsItsTableSays(t *testing.T, row string, modules []string) {
	table, path := readTable(t, row)
	s := stage.New(t, bed.Options{Guests: 1, CPUs: 2, Rows: []string{row}})
	s.LoadDrivers(t)
	putRunner(t, s)
	before := s.Objects(t)
	if modules != nil {
		table = table.Of(modules)
	}

	outcomes, err := run(t, s, modules)
	if err != nil {
		t.Error(err)
	}

	report(t, outcomes)
	if *update && err == nil {
		writeTable(t, table, path, outcomes)
		return
	}
	for _, difference := range table.Compare(outcomes) {
		t.Error(difference)
	}
	s.CheckObjects(t, before)
	s.CheckKernelLogs(t, InKernelLog)
	s.CheckDaemon(t)
	failsWithoutADevice(t, s, row)
}

// chosen are the modules that run in a guest of a row; nil are all.
func chosen(row string) []string {
	modules := slices.Clone(common)
	switch {
	case *update:
		return nil
	case *only != "":
		modules = strings.Split(*only, ",")
	case stage.Long():
		return nil
	}
	return slices.DeleteFunc(modules, func(m string) bool { return slices.Contains(lacks[row], m) })
}

// failsWithoutADevice takes the driver away, after which the suite finds no active port, and sees that the comparison
// notices. (The link going down would not do: the device's port stays active.)
func failsWithoutADevice(t *testing.T, s *stage.Stage, row string) {
	t.Helper()
	table, _ := readTable(t, row)
	modules := []string{"test_cq_events"}
	s.Output(t, 0, harness.Slow*10*time.Second, "modprobe -r vmw_pvrdma")

	outcomes, err := run(t, s, modules)
	if err != nil {
		t.Error(err)
	}

	differences := table.Of(modules).Compare(outcomes)
	if len(outcomes) == 0 || len(differences) != len(outcomes) || !strings.Contains(differences[0], "No supported port is up") {
		t.Errorf("without a device %d tests ran, and these are the differences from the table: %q", len(outcomes), differences)
	}
}

// run runs modules of the suite, or all of it, and returns how each test ended.
func run(t *testing.T, s *stage.Stage, modules []string) ([]Outcome, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suiteLimit)
	defer cancel()
	command := fmt.Sprintf("echo 16 >/proc/sys/vm/nr_hugepages && exec /tmp/run.py %d %d %s", testLimit, seed, quote(Skips()))
	for _, m := range modules {
		command += " tests." + m
	}
	result, err := s.Guests[0].Run(ctx, command)
	if err == nil && result.Status != 0 {
		err = fmt.Errorf("the suite ended with status %d:\n%s", result.Status, result.Stderr)
	}
	outcomes, parseErr := Parse(result.Stdout)
	return outcomes, errors.Join(err, parseErr)
}

// quote makes one word of a text for the guest's shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

func putRunner(t *testing.T, s *stage.Stage) {
	t.Helper()
	if err := s.Guests[0].Put(t.Context(), "/tmp/run.py", 0o755, bytes.NewReader(Runner)); err != nil {
		t.Fatal(err)
	}
}

// readTable reads the table of the row that runs; there may be none yet if it is about to be written.
func readTable(t *testing.T, row string) (Table, string) {
	t.Helper()
	path := filepath.Join("testdata", row+".txt")
	file, err := os.Open(path)
	if *update && errors.Is(err, os.ErrNotExist) {
		return Table{}, path
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	table, err := ReadTable(file)
	if err != nil {
		t.Fatal(err)
	}
	return table, path
}

func writeTable(t *testing.T, table Table, path string, outcomes []Outcome) {
	t.Helper()
	updated, err := table.Update(outcomes)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := updated.Write(&text); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// report logs how many tests ended how, and which took longest.
func report(t *testing.T, outcomes []Outcome) {
	t.Helper()
	count, slow := map[string]int{}, []string(nil)
	for _, o := range outcomes {
		count[o.Outcome]++
		if o.Seconds > 5 {
			slow = append(slow, fmt.Sprintf("%s %.1f s", o.ID, o.Seconds))
		}
	}
	t.Logf("pyverbs: %d tests: %d passed, %d skipped, %d failed; long ones: %s", len(outcomes), count[passed], count[skipped],
		count[failed], strings.Join(slow, ", "))
}
