// SPDX-License-Identifier: Apache-2.0

//go:build vm

// Package vm holds the tests that boot virtual machines: `go test -tags vm ./tests/vm/...`. They may take nothing
// for granted but a Linux machine with Go: harness.LoadImages brings the rest.
package vm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pvrdmad/pvrdmad/tests/vm/harness"
)

// images are what every guest of this package boots. TestMain sets them once, before any test.
var images harness.Images

func TestMain(m *testing.M) {
	var err error
	if images, err = harness.LoadImages(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// bootGuest boots a guest which ends with the test, and asks it what really runs.
func bootGuest(t *testing.T, config harness.Config) *harness.Guest {
	t.Helper()
	config.Images = images
	config.LogDir = logDir(t)
	guest, err := harness.Boot(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(guest.Close)
	facts, err := guest.Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: row %s: %s; booted in %.1f s", config.Name, images.Row, facts, guest.Hello().Uptime)
	return guest
}

// logDir is where the guests of a test leave their logs. They stay when the test fails.
func logDir(t *testing.T) string {
	t.Helper()
	base := os.Getenv("PVRDMAD_VM_LOGS")
	if base == "" {
		base = filepath.Join(os.TempDir(), "pvrdmad-vm-logs")
	}
	dir := filepath.Join(base, strings.ReplaceAll(t.Name(), "/", "-"))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("logs of the guests: %s", dir)
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// within gives a script a time limit.
func within(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// output runs a script that must succeed and returns its trimmed stdout.
func output(t *testing.T, guest *harness.Guest, limit time.Duration, script string) string {
	t.Helper()
	out, err := guest.Output(within(t, limit), script)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}
