// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/bed"
	"github.com/pvrdmad/pvrdmad/tests/vm/harness"
)

// CheckKernelLogs fails the test for every line of a guest's kernel log that an operator would have to ask about. The
// lines that match expected are what this test provokes.
func (s *Stage) CheckKernelLogs(t *testing.T, expected ...*regexp.Regexp) {
	t.Helper()
	for i, g := range s.Guests {
		log, err := g.KernelLog(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range log.Check(s.known[i]) {
			if slices.ContainsFunc(expected, func(e *regexp.Regexp) bool { return e.MatchString(line) }) {
				continue
			}
			t.Errorf("guest %d: kernel log: %s", i, line)
		}
	}
}

// CheckDaemon fails the test if the daemon has ended, had a fault of its own, or saw a guest break a rule.
func (s *Stage) CheckDaemon(t *testing.T) {
	t.Helper()
	for line := range strings.Lines(s.Scrape(t)) {
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

// Scrape returns the daemon's metrics.
func (s *Stage) Scrape(t *testing.T) string {
	t.Helper()
	metrics, err := s.Daemon.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return metrics
}

// Messages asks the daemon how many messages its engine has carried.
func (s *Stage) Messages(t *testing.T) uint64 {
	t.Helper()
	return bed.Sum(s.Scrape(t), "pvrdma_engine_messages_total")
}

// Objects asks the daemon what the guests' devices hold now, by guest and type.
func (s *Stage) Objects(t *testing.T) map[string]uint64 {
	t.Helper()
	return bed.Series(s.Scrape(t), "pvrdma_objects")
}

// objectsLimit is how long the kernel of a guest may take to destroy what an ended program had: it does part of it
// behind the program's back.
const objectsLimit = harness.Slow * 10 * time.Second

// CheckObjects fails the test if the guests' devices do not soon hold what they held before.
func (s *Stage) CheckObjects(t *testing.T, before map[string]uint64) {
	t.Helper()
	now := s.Objects(t)
	for end := time.Now().Add(objectsLimit); !maps.Equal(now, before) && time.Now().Before(end); now = s.Objects(t) {
		time.Sleep(100 * time.Millisecond)
	}
	for series, n := range now {
		if n != before[series] {
			t.Errorf("%s is %d, was %d before", series, n, before[series])
		}
	}
	for series, n := range before {
		if _, ok := now[series]; !ok {
			t.Errorf("%s is gone, was %d before", series, n)
		}
	}
}
