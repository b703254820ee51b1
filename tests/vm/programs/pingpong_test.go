// SPDX-License-Identifier: Apache-2.0

//go:build vm

package programs

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/pvrdmad/pvrdmad/tests/vm/harness"
	"github.com/pvrdmad/pvrdmad/tests/vm/stage"
)

// iterations is how often each ping-pong goes there and back.
func iterations() int { return stage.Count(10_000, 100_000) }

// TestPingPongsAndPvcheckPassBetweenGuests runs between two guests, and around a ring of three at once, so that nothing
// passes because there is only one other guest where it could go.
func TestPingPongsAndPvcheckPassBetweenGuests(t *testing.T) {
	for _, guests := range []int{2, 3} {
		t.Run(fmt.Sprintf("%d guests", guests), func(t *testing.T) {
			s := makeScene(t, guests)
			before := s.Objects(t)
			s.pingpongs(t)
			s.comparesEveryByte(t)
			s.CheckObjects(t, before)
			s.CheckKernelLogs(t)
			s.CheckDaemon(t)
		})
	}
}

// pingpongs runs the library's ping-pongs, polled and with events, each side comparing what it receives.
func (s *scene) pingpongs(t *testing.T) {
	t.Helper()
	for _, program := range []string{"ibv_rc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong"} {
		for _, events := range []string{"", " -e"} {
			n := iterations()
			s.run(t, program+events, func(guest int, server string) string {
				return fmt.Sprintf("%s -c -g %s -n %d%s %s", program, s.gid[guest], n, events, server)
			}, func(r harness.Result) string { return judgePingPong(r, n) })
		}
	}
}

var iterationsLine = regexp.MustCompile(`(?m)^(\d+) iters in [\d.]+ seconds = [\d.]+ usec/iter$`)

// judgePingPong wants the program to say that it did all of its iterations.
func judgePingPong(r harness.Result, n int) string {
	if wrong := status(r); wrong != "" {
		return wrong
	}
	m := iterationsLine.FindStringSubmatch(r.Stdout)
	if m == nil {
		return "it says nothing of its iterations"
	}
	if did, err := strconv.Atoi(m[1]); err != nil || did != n {
		return fmt.Sprintf("it did %s iterations, want %d", m[1], n)
	}
	return ""
}

// comparesEveryByte runs the payload check over every operation: polled, with events, and with a shared receive queue.
func (s *scene) comparesEveryByte(t *testing.T) {
	t.Helper()
	n := iterations()
	for _, options := range []string{"", "-e", "-Q", "-Q -e -u 8"} {
		s.run(t, "pvcheck "+options, func(_ int, server string) string {
			return pvcheck(options, server, fmt.Sprintf("-o all -m 16384 -n %d", n))
		}, status)
	}
}

// pvcheck is the payload check with options that each side decides for itself; those of the plan are the client's alone.
func pvcheck(options, server, plan string) string {
	if server == "" {
		return "pvcheck " + options
	}
	return fmt.Sprintf("pvcheck %s %s %s", options, plan, server)
}
