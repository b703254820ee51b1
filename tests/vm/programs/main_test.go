// SPDX-License-Identifier: Apache-2.0

//go:build vm

// Package programs runs the programs of rdma-core that need no connection manager, and pvcheck, between two and three
// guests, and kills them at random moments.
package programs

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/bed"
	"github.com/pvrdmad/pvrdmad/tests/vm/harness"
	"github.com/pvrdmad/pvrdmad/tests/vm/stage"
)

func TestMain(m *testing.M) { stage.Main(m) }

// limit is how long programs may run that exchange messages, on a machine that others use too.
func limit() time.Duration { return time.Duration(stage.Count(2, 20)) * harness.Slow * time.Minute }

// scene is a stage with the driver loaded, and what the tests of this package know of it.
type scene struct {
	*stage.Stage
	gid []string // index of the IPv4 GID of each guest
}

func makeScene(t *testing.T, guests int) *scene {
	t.Helper()
	s := &scene{Stage: stage.New(t, bed.Options{Guests: guests})}
	s.LoadDrivers(t)
	for _, g := range s.Guests {
		gid, err := bed.GIDIndex(t.Context(), g)
		if err != nil {
			t.Fatal(err)
		}
		s.gid = append(s.gid, gid)
	}
	return s
}

// flow is a client in one guest and its server in another. A guest serves one flow at a time.
type flow struct{ server, client int }

// ring is a flow from each guest to the next; with two guests it is one flow.
func (s *scene) ring() []flow {
	n := len(s.Guests)
	if n == 2 {
		return []flow{{server: 0, client: 1}}
	}
	var flows []flow
	for i := range n {
		flows = append(flows, flow{server: i, client: (i + 1) % n})
	}
	return flows
}

// command gives the command line of a flow's side; server is its address, or "" on the server itself.
type command func(guest int, server string) string

// started are the two sides of a flow.
type started struct {
	flow
	sides [2]*harness.Script // server, client
}

// listening waits in a guest until a program listens on the port that all of them use, 18515, in hexadecimal.
const listening = `for i in $(seq 400); do
	grep -qE '^ *[0-9]+: [0-9A-F]+:4853 [0-9A-F]+:0000 0A' /proc/net/tcp /proc/net/tcp6 && exit 0; sleep 0.05
done; exit 1`

// start starts the two sides of all flows: servers, then clients.
func (s *scene) start(t *testing.T, ctx context.Context, flows []flow, c command) []started {
	t.Helper()
	running := make([]started, len(flows))
	for i, f := range flows {
		running[i].flow = f
		running[i].sides[0] = stage.Start(t, ctx, s.Guests[f.server], c(f.server, ""))
	}
	for i, f := range flows {
		if r, err := s.Guests[f.server].Run(ctx, listening); err != nil || r.Status != 0 {
			stdout, stderr := running[i].sides[0].Output()
			t.Fatalf("%s does not listen: %v\n%s%s", c(f.server, ""), err, stdout, stderr)
		}
		address := harness.Address(f.server + 1).String()
		running[i].sides[1] = stage.Start(t, ctx, s.Guests[f.client], c(f.client, address))
	}
	return running
}

// run runs a program on both sides of all flows at once; judge tells of a side's result what is wrong, or "".
func (s *scene) run(t *testing.T, name string, c command, judge func(harness.Result) string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit())
	defer cancel()
	begin := time.Now()
	for _, f := range s.start(t, ctx, s.ring(), c) {
		for i, side := range []string{"server", "client"} {
			r := stage.Wait(t, ctx, f.sides[i])
			if wrong := judge(r); wrong != "" {
				t.Errorf("%s, %s of guest %d serving guest %d: %s\n%s%s", name, side, f.server, f.client, wrong,
					r.Stdout, r.Stderr)
			}
		}
	}
	t.Logf("%s: %.1f s", name, time.Since(begin).Seconds())
}

// status judges by the exit status alone.
func status(r harness.Result) string {
	if r.Status != 0 {
		return fmt.Sprintf("exit status %d", r.Status)
	}
	return ""
}
