// SPDX-License-Identifier: Apache-2.0

// Package stage is a bed in a test: the daemon and its guests, whose logs stay if the test fails, scripts in the guests
// that must succeed, and what must hold of the guests' kernels and of the daemon at any time.
//
// It may not decide what a test means: subjects have packages of their own.
package stage

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

// What all tests of a package share. Main writes it, once, before any test.
var (
	images harness.Images
	binary string
)

// Main is TestMain of a package whose tests make stages.
func Main(m *testing.M) {
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
	dir, err := os.MkdirTemp("", "pvrdmad-stage")
	if err != nil {
		return err
	}
	binary, err = bed.Build(context.Background(), dir)
	return err
}

// Stage is a bed in a test.
type Stage struct {
	*bed.Bed
	// known are the complaints of each guest's kernel that are no news.
	known []klog.Baseline
}

// New makes a stage that ends with the test. Images, binary and log directory of opts are the stage's own.
func New(t *testing.T, opts bed.Options) *Stage {
	t.Helper()
	opts.Images, opts.Binary, opts.LogDir = images, binary, logDir(t)
	b, err := bed.Make(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	s := &Stage{Bed: b}
	t.Cleanup(func() {
		b.Close()
		if !t.Failed() {
			_ = os.RemoveAll(opts.LogDir)
		}
	})
	told := map[string]bool{}
	for i, g := range b.Guests {
		row := b.Row(i)
		known, err := bed.Baseline(row)
		if err != nil {
			t.Fatal(err)
		}
		s.known = append(s.known, known)
		if told[row] {
			continue
		}
		told[row] = true
		facts, err := g.Facts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("row %s: %s; logs: %s", row, facts, opts.LogDir)
	}
	return s
}

// Row is the name of the row of matrix.toml that the guests of all stages are of.
func Row() string { return images.Row }

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

// LoadDrivers loads the driver in all guests.
func (s *Stage) LoadDrivers(t *testing.T) {
	t.Helper()
	for i := range s.Guests {
		s.LoadDriver(t, i)
	}
}

// LoadDriver loads the driver in a guest and waits until a program can use the device.
func (s *Stage) LoadDriver(t *testing.T, i int) {
	t.Helper()
	if err := bed.LoadDriver(t.Context(), s.Guests[i]); err != nil {
		t.Fatalf("guest %d: %v", i, err)
	}
}

// Output runs a script in a guest and returns what it printed; anything but success ends the test.
func (s *Stage) Output(t *testing.T, i int, limit time.Duration, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Slow*limit)
	defer cancel()
	out, err := s.Guests[i].Output(ctx, script)
	if err != nil {
		t.Fatalf("guest %d: %v\n%s", i, err, out)
	}
	return strings.TrimSpace(out)
}

// Start starts a script in a guest.
func Start(t *testing.T, ctx context.Context, g *harness.Guest, script string) *harness.Script {
	t.Helper()
	s, err := g.Start(ctx, script)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Wait waits for a script's end, which may not be its time limit.
func Wait(t *testing.T, ctx context.Context, s *harness.Script) harness.Result {
	t.Helper()
	r, err := s.Wait(ctx)
	if err != nil {
		stdout, stderr := s.Output()
		t.Fatalf("%v\n%s%s", err, stdout, stderr)
	}
	return r
}
