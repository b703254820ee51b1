// SPDX-License-Identifier: Apache-2.0

//go:build vm

package perf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/bed"
	"github.com/pvrdmad/pvrdmad/tests/vm/harness"
	"github.com/pvrdmad/pvrdmad/tests/vm/stage"
)

// The RDMA devices of a guest that perftest runs over.
const (
	ours = "vmw_pvrdma0"
	rxe  = "rxe0"
)

// rxeUp makes the second: the kernel's software RoCE over the guest's Ethernet.
const rxeUp = `modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0 && modprobe ib_uverbs
for i in $(seq 100); do
	grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state && exit 0
	sleep 0.1
done
exit 1`

// side is a script for one side: the device's IPv4 GID, what both sides must agree on, and the other side's address for
// the client.
const side = `
modprobe rdma_ucm || exit 4
gid=$(cd /sys/class/infiniband/%[2]s/ports/1/gids && grep -l '^0000:0000:0000:0000:0000:ffff:' 0 1 2 3 | head -n 1)
run() { %[1]s -d %[2]s -x $gid -F "$@"; }
`

// listen is the rest of the server's script: it says when the client may start.
const listen = `
run >server 2>&1 & p=$!
until %s; do
	kill -0 $p || { cat server >&2; exit 5; }
	sleep 0.02
done
echo listening
wait $p; s=$?
cat server
exit $s
`

// clockTries is how often a run is repeated in which perftest did not find out how fast the clock runs.
const clockTries = 5

// measure runs a cell over a device of both guests, which may be one, and returns the client's figures. It is an error if
// a side fails.
func measure(t *testing.T, s *stage.Stage, c cell, device string, server, client int) (Result, error) {
	t.Helper()
	err := ErrNoClock
	for try := 0; errors.Is(err, ErrNoClock) && try < clockTries; try++ {
		var out string
		if out, err = run(t, s, c, device, server, client); err != nil {
			break
		}
		var r Result
		if r, err = Parse(out); err == nil {
			return r, nil
		}
	}
	return Result{}, fmt.Errorf("%v over %s: %w", c, device, err)
}

// mustMeasure ends the test if a side fails.
func mustMeasure(t *testing.T, s *stage.Stage, c cell, device string, server, client int) Result {
	t.Helper()
	r, err := measure(t, s, c, device, server, client)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// run runs a cell and returns what the client wrote.
func run(t *testing.T, s *stage.Stage, c cell, device string, server, client int) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	listening := "ss -Hltn 'sport = :18515' | grep -q ."
	if c.throughCM() {
		listening = "rdma resource show cm_id | grep -q 'state LISTEN'"
	}
	common := fmt.Sprintf(side, c, device)
	serving := stage.Start(t, ctx, s.Guests[server], common+fmt.Sprintf(listen, listening))
	if err := serving.Await(ctx, "listening"); err != nil {
		return "", err
	}
	got, err := s.Guests[client].Run(ctx, common+"run "+harness.Address(server+1).String())
	there, thereErr := serving.Wait(ctx)
	if err := errors.Join(err, thereErr); err != nil {
		return "", err
	}
	if got.Status != 0 || there.Status != 0 {
		return "", fmt.Errorf("client's exit status %d, server's %d\n%s%s\n%s%s", got.Status, there.Status, got.Stdout, got.Stderr,
			there.Stdout, there.Stderr)
	}
	return got.Stdout, nil
}

// TestEveryShortCellIsACell keeps a slip of the pen from taking one away.
func TestEveryShortCellIsACell(t *testing.T) {
	all := cells()
	for _, name := range shortCells {
		if !slices.ContainsFunc(all, func(c cell) bool { return c.String() == name }) {
			t.Errorf("no cell is called %q", name)
		}
	}
}

// TestPerftestRunsBetweenGuests runs the cells, each from another guest to its neighbour, and prints what they gave.
func TestPerftestRunsBetweenGuests(t *testing.T) {
	s := stage.New(t, bed.Options{})
	s.LoadDrivers(t)
	objects := s.Objects(t)
	for i, c := range chosen() {
		t.Run(c.String(), func(t *testing.T) {
			start := time.Now()
			r := mustMeasure(t, s, c, ours, i%2, 1-i%2)
			t.Logf("%v (%v)", r, time.Since(start).Round(10*time.Millisecond))
			s.CheckObjects(t, objects)
		})
	}
	s.CheckKernelLogs(t)
	s.CheckDaemon(t)
}
