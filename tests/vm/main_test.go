// SPDX-License-Identifier: Apache-2.0

//go:build vm

// Package vm holds the tests that boot virtual machines: `go test -tags vm ./tests/vm/...`. They may take nothing
// for granted but a Debian machine with Go: harness.LoadImages brings the rest.
package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pvrdmad/pvrdmad/tests/vm/harness"
	"github.com/pvrdmad/pvrdmad/tests/vm/harness/klog"
)

// images are what every guest of this package boots. TestMain sets them once, before any test.
var images harness.Images

func TestMain(m *testing.M) {
	var err error
	if images, err = harness.LoadImages(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if os.Getenv(helperEnv) != "" {
		os.Exit(helper())
	}
	goleak.VerifyTestMain(m)
}

// bootGuest boots a guest which ends with the test. Whatever the test does, the guest's kernel log must be clean.
func bootGuest(t *testing.T, config harness.Config) *harness.Guest {
	t.Helper()
	guest := bootUnchecked(t, config)[0]
	checkAtEnd(t, guest)
	return guest
}

// bootPair boots guests number 1 and 2 on one network.
func bootPair(t *testing.T) (a, b *harness.Guest) {
	t.Helper()
	network, err := harness.NewSwitch()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(network.Close)
	guests := bootUnchecked(t,
		harness.Config{Name: "a", Number: 1, Switch: network}, harness.Config{Name: "b", Number: 2, Switch: network})
	checkAtEnd(t, guests[0])
	checkAtEnd(t, guests[1])
	return guests[0], guests[1]
}

func checkAtEnd(t *testing.T, guest *harness.Guest) {
	t.Cleanup(func() {
		select {
		case <-guest.Exited(): // the test ended it
			return
		default:
		}
		for _, line := range kernelLog(t, guest).Check(readBaseline(t)) {
			t.Errorf("%s: kernel log: %s", guest.Hello().Name, line)
		}
	})
}

// bootUnchecked boots guests side by side, for a test that may spoil their kernel logs.
func bootUnchecked(t *testing.T, configs ...harness.Config) []*harness.Guest {
	t.Helper()
	guests, errs := make([]*harness.Guest, len(configs)), make([]error, len(configs))
	var boots sync.WaitGroup
	for i, config := range configs {
		config.Images = images
		config.LogDir = logDir(t, config.Name)
		boots.Go(func() { guests[i], errs[i] = harness.Boot(t.Context(), config) })
	}
	boots.Wait()
	for i, guest := range guests {
		if errs[i] == nil {
			t.Cleanup(guest.Close)
		}
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for i, guest := range guests {
		facts, err := guest.Facts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: row %s: %s; ready %.1f s after power-on", configs[i].Name, images.Row, facts, guest.Hello().Uptime)
	}
	return guests
}

// logDir is where the guests of a test leave their logs. Those of a guest stay when the test fails.
func logDir(t *testing.T, guest string) string {
	t.Helper()
	base := os.Getenv("PVRDMAD_VM_LOGS")
	if base == "" {
		base = filepath.Join(os.TempDir(), "pvrdmad-vm-logs")
	}
	dir := filepath.Join(base, strings.ReplaceAll(t.Name(), "/", "-"))
	t.Cleanup(func() {
		logs := filepath.Join(dir, guest)
		if t.Failed() {
			t.Logf("logs of guest %s: %s", guest, logs)
			return
		}
		if err := os.RemoveAll(logs); err != nil {
			t.Error(err)
		}
		_ = os.Remove(dir) // if it is empty
	})
	return dir
}

// within gives something a time limit, which is for a quiet machine and outlives the test's own context so that clean-up can
// use it too.
func within(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), harness.Slow*limit)
	t.Cleanup(cancel)
	return ctx
}

// output runs a script that must succeed and returns its trimmed stdout. Its limit is for a quiet machine.
func output(t *testing.T, guest *harness.Guest, limit time.Duration, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), harness.Slow*limit)
	defer cancel()
	out, err := guest.Output(ctx, script)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// start runs a script in the background.
func start(t *testing.T, guest *harness.Guest, limit time.Duration, script string) *harness.Script {
	t.Helper()
	s, err := guest.Start(within(t, limit), script)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func kernelLog(t *testing.T, guest *harness.Guest) klog.Log {
	t.Helper()
	log, err := guest.KernelLog(within(t, 20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return log
}
