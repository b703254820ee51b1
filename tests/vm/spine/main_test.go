// SPDX-License-Identifier: Apache-2.0

//go:build vm

package spine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pvrdmad/pvrdmad/tests/vm/bed"
	"github.com/pvrdmad/pvrdmad/tests/vm/harness"
	"github.com/pvrdmad/pvrdmad/tests/vm/harness/klog"
)

var (
	images harness.Images
	binary string
)

func TestMain(m *testing.M) {
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(filepath.Dir(binary))
		os.Exit(code)
	}))
}

func prepare() (err error) {
	if images, err = harness.LoadImages(context.Background()); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "pvrdmad-spine")
	if err != nil {
		return err
	}
	binary, err = bed.Build(context.Background(), dir)
	return err
}

// world is a bed in a test: two guests, a and b, whose logs stay if the test fails.
type world struct {
	*bed.Bed
	logs  string
	known klog.Baseline
}

func makeWorld(t *testing.T, opts bed.Options) *world {
	t.Helper()
	opts.Images, opts.Binary, opts.LogDir = images, binary, logDir(t)
	b, err := bed.Make(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Bed: b, logs: opts.LogDir}
	t.Cleanup(func() {
		b.Close()
		if !t.Failed() {
			_ = os.RemoveAll(w.logs)
		}
	})
	if w.known, err = bed.Baseline(images.Row); err != nil {
		t.Fatal(err)
	}
	facts, err := b.Guests[0].Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("row %s: %s; logs: %s", images.Row, facts, w.logs)
	return w
}

func logDir(t *testing.T) string {
	t.Helper()
	base := os.Getenv("PVRDMAD_VM_LOGS")
	if base == "" {
		base = filepath.Join(os.TempDir(), "pvrdmad-vm-logs")
	}
	dir := filepath.Join(base, strings.ReplaceAll(t.Name(), "/", "-"))
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// loadDrivers loads the driver in both guests.
func (w *world) loadDrivers(t *testing.T) {
	t.Helper()
	for i := range w.Guests {
		w.loadDriver(t, i)
	}
}

func (w *world) loadDriver(t *testing.T, i int) {
	t.Helper()
	if err := bed.LoadDriver(t.Context(), w.Guests[i]); err != nil {
		t.Fatalf("guest %d: %v", i, err)
	}
}

// output runs a script in a guest and returns what it printed; anything but success ends the test.
func (w *world) output(t *testing.T, i int, limit time.Duration, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	out, err := w.Guests[i].Output(ctx, script)
	if err != nil {
		t.Fatalf("guest %d: %v\n%s", i, err, out)
	}
	return strings.TrimSpace(out)
}

// checkKernelLogs fails the test for every line of a guest's kernel log that an operator would have to ask about.
func (w *world) checkKernelLogs(t *testing.T) {
	t.Helper()
	for i, g := range w.Guests {
		log, err := g.KernelLog(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range log.Check(w.known) {
			t.Errorf("guest %d: kernel log: %s", i, line)
		}
	}
}

// checkDaemon fails the test if the daemon has ended, had a fault of its own, or saw a guest break a rule.
func (w *world) checkDaemon(t *testing.T) {
	t.Helper()
	metrics, err := w.Daemon.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(metrics) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if value == "0" {
			continue
		}
		for _, bad := range []string{
			"pvrdma_guest_panics_total", "pvrdma_guest_protocol_errors_total", `pvrdma_guest_resets_total{cause="fault"`,
			"pvrdma_engine_memory_faults_total", "pvrdma_guest_error_state",
		} {
			if strings.HasPrefix(name, bad) && !strings.Contains(name, "vfiouser_absent") {
				t.Errorf("daemon: %s", strings.TrimSpace(line))
			}
		}
	}
}
