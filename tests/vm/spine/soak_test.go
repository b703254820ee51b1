// SPDX-License-Identifier: Apache-2.0

//go:build vm

package spine

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/bed"
)

// soakEnv says for how long traffic goes on, as a duration of Go.
const soakEnv = "PVRDMAD_SOAK"

// TestTrafficLeavesNothingBehind lets guests exchange data, and open and close everything that it takes, for as long as
// it is told; the daemon is then as large as before.
func TestTrafficLeavesNothingBehind(t *testing.T) {
	length := 15 * time.Second
	if text := os.Getenv(soakEnv); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", soakEnv, err)
		}
	}
	w := makeWorld(t, bed.Options{})
	w.LoadDrivers(t)
	w.pvcheck(t, "-n 200") // what is allocated once is there
	before := w.size(t)

	rounds := 0
	for end := time.Now().Add(length); time.Now().Before(end); rounds++ {
		w.pvcheck(t, fmt.Sprintf("-n 500 -S %d", rounds))
		w.pingpong(t, "-n 100 -e")
		if t.Failed() {
			t.Fatalf("round %d", rounds)
		}
	}

	after := w.size(t)
	t.Logf("%d rounds in %v: before %v, after %v", rounds, length, before, after)
	if after.fds > before.fds || after.goroutines > before.goroutines+2 {
		t.Errorf("descriptors and goroutines before %v, after %v", before, after)
	}
	// A heap that the collector has not looked at yet is no leak; one that doubles is.
	if after.anonymous > 2*before.anonymous+16<<20 {
		t.Errorf("memory of its own before %v, after %v", before, after)
	}
	w.CheckKernelLogs(t)
	w.CheckDaemon(t)
}

// size is what the daemon takes of its host: descriptors, goroutines, and memory of its own in bytes.
type size struct{ fds, goroutines, anonymous uint64 }

func (s size) String() string {
	return fmt.Sprintf("%d fds, %d goroutines, %.1f MiB", s.fds, s.goroutines, float64(s.anonymous)/(1<<20))
}

func (w *world) size(t *testing.T) size {
	t.Helper()
	metrics, err := w.Daemon.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.Daemon.PID()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(status), "RssAnon:")
	var kib uint64
	if n, _ := fmt.Sscan(rest, &kib); !ok || n != 1 {
		t.Fatalf("no RssAnon in:\n%s", status)
	}
	return size{
		fds: bed.Sum(metrics, "process_open_fds"), goroutines: bed.Sum(metrics, "go_goroutines"), anonymous: kib << 10,
	}
}
