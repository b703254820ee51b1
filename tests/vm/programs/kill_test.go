// SPDX-License-Identifier: Apache-2.0

//go:build vm

package programs

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/harness"
	"github.com/pvrdmad/pvrdmad/tests/vm/pyverbs"
	"github.com/pvrdmad/pvrdmad/tests/vm/stage"
)

const (
	// killSeed makes the moments the same in each run, as far as the machine's own timing allows.
	killSeed = 20
	// latest is how long after its start a program may live: long enough that most are in the middle of their traffic.
	latest = 1500 * time.Millisecond
)

// victim is a program that runs until it is killed.
type victim struct {
	name string
	command
}

// victims are ping-pongs and payload checks that would go on for longer than anybody waits.
func (s *scene) victims() []victim {
	var all []victim
	for _, program := range []string{"ibv_rc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong"} {
		for _, events := range []string{"", " -e"} {
			all = append(all, victim{program + events, func(guest int, server string) string {
				return fmt.Sprintf("%s -g %s -n 10000000%s %s", program, s.gid[guest], events, server)
			}})
		}
	}
	for _, options := range []string{"", "-e", "-Q"} {
		all = append(all, victim{"pvcheck " + options, func(_ int, server string) string {
			return pvcheck(options, server, "-o all -t 600")
		}})
	}
	return all
}

// TestAProgramCanBeKilledAtAnyMoment kills programs with SIGKILL, in both guests, at moments that a seed chooses. After
// each the devices hold what they held before, and the next program works.
func TestAProgramCanBeKilledAtAnyMoment(t *testing.T) {
	s := makeScene(t, 2)
	s.putPyverbs(t)
	before := s.Objects(t)
	moments := rand.New(rand.NewPCG(killSeed, 0))
	victims := s.victims()
	rounds, busy := stage.Count(25, 500), 0
	for round := range rounds {
		sent := s.Messages(t)
		if v := round % (len(victims) + 1); v < len(victims) {
			s.killBoth(t, victims[v], moments)
		} else {
			s.killPyverbs(t, moments)
		}
		if s.Messages(t) > sent {
			busy++
		}
		s.CheckObjects(t, before)
		s.run(t, "pvcheck after a kill", worksOn, status)
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
	t.Logf("%d of %d programs were killed after their first message", busy, rounds)
	if busy < rounds/2 {
		t.Error("most programs were killed before they sent anything: this proves too little")
	}
	s.CheckKernelLogs(t, append(givenUp, pyverbs.InKernelLog)...)
	s.CheckDaemon(t)
}

// givenUp is what the driver says when a signal ends the wait for the answer to its command.
var givenUp = []*regexp.Regexp{
	regexp.MustCompile(`^vmw_pvrdma \S+: completion timeout or interrupted$`),
	regexp.MustCompile(`^vmw_pvrdma \S+: (could not|failed to) .*, error: -110$`),
	regexp.MustCompile(`^vmw_pvrdma \S+: .* failed, error: -110$`),
}

// moment is a random time before another.
func moment(r *rand.Rand, before time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(before)))
}

// worksOn is a short payload check.
func worksOn(_ int, server string) string { return pvcheck("", server, "-o all -m 4096 -n 50") }

// killBoth starts a program in both guests and kills each side at a moment of its own.
func (s *scene) killBoth(t *testing.T, v victim, moments *rand.Rand) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Slow*time.Minute)
	defer cancel()
	dies := [2]time.Duration{moment(moments, latest), moment(moments, latest)}
	t.Logf("%s: server killed after %v, client after %v", v.name, dies[0], dies[1])
	// The server's clock begins with the client's: a server alone has nothing to lose.
	running := s.start(t, ctx, s.ring(), func(guest int, server string) string {
		if server == "" {
			return fmt.Sprintf("%s & until [ -e /tmp/go ]; do sleep 0.01; done; rm /tmp/go; sleep %f; kill -KILL $!; wait; exit 0",
				v.command(guest, server), dies[0].Seconds())
		}
		return fmt.Sprintf("%s & sleep %f; kill -KILL $!; wait; exit 0", v.command(guest, server), dies[1].Seconds())
	})
	s.Output(t, running[0].server, harness.Slow*10*time.Second, "touch /tmp/go")
	for _, side := range running[0].sides {
		if wrong := status(stage.Wait(t, ctx, side)); wrong != "" {
			t.Errorf("script that kills %s: %s", v.name, wrong)
		}
	}
}

// killPyverbs kills rdma-core's own tests in the first guest, with the processes that they started.
func (s *scene) killPyverbs(t *testing.T, moments *rand.Rand) {
	t.Helper()
	dies := moment(moments, 2*latest)
	t.Logf("pyverbs: killed %v after its first test began", dies)
	s.Output(t, 0, harness.Slow*time.Minute, fmt.Sprintf(`
/tmp/run.py 60 1 '{}' tests.test_cq_events tests.test_srq tests.test_atomic tests.test_qp >/tmp/out 2>/dev/null &
until grep -q '"start"' /tmp/out; do kill -0 $! || exit 1; sleep 0.05; done
sleep %f
pkill -KILL -x run.py
wait; exit 0`, dies.Seconds()))
}

func (s *scene) putPyverbs(t *testing.T) {
	t.Helper()
	if err := s.Guests[0].Put(t.Context(), "/tmp/run.py", 0o755, bytes.NewReader(pyverbs.Runner)); err != nil {
		t.Fatal(err)
	}
}
