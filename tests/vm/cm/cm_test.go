// SPDX-License-Identifier: Apache-2.0

//go:build vm

package cm

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/bed"
	"github.com/pvrdmad/pvrdmad/tests/vm/harness"
	"github.com/pvrdmad/pvrdmad/tests/vm/stage"
)

// Connections that each tool makes, in make test and in make test-long.
const (
	short = 50
	long  = 500
)

// TestToolsOfConnectionManagementConnectEveryTime runs each tool between two of three guests, another pair each time.
func TestToolsOfConnectionManagementConnectEveryTime(t *testing.T) {
	s := stage.New(t, bed.Options{Guests: 3})
	s.LoadDrivers(t)
	count := stage.Count(short, long)
	for i, c := range tools {
		server, client, other := i%3, (i+1)%3, (i+2)%3
		t.Run(c.name, func(t *testing.T) {
			objects, idle := s.Objects(t), work(t, s, other)

			start := time.Now()
			for left := count; left > 0; left -= batch {
				connect(t, s, c, server, client, min(left, batch))
			}

			t.Logf("%s: %d connections, 0 failures, %v", c.name, count, time.Since(start).Round(100*time.Millisecond))
			s.CheckObjects(t, objects)
			if now := work(t, s, other); now != idle {
				t.Errorf("a guest that has no part in it had %d work requests and completions, now %d", idle, now)
			}
		})
	}
	t.Run("nobody listens", func(t *testing.T) { isRejected(t, s) })
	s.CheckKernelLogs(t)
	s.CheckDaemon(t)
}

// isRejected asks for a connection where nobody listens: that ends at once, and not when the tries run out.
func isRejected(t *testing.T, s *stage.Stage) {
	t.Helper()
	for _, guest := range []int{0, 2} { // a kernel without connection management answers nothing
		s.Output(t, guest, time.Minute, "modprobe rdma_ucm")
	}
	objects := s.Objects(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := s.Guests[2].Run(ctx, fmt.Sprintf("timeout 15 ucmatose -s %v -p 7999", harness.Address(1)))
	if err != nil || !strings.Contains(r.Stdout, "RDMA_CM_EVENT_REJECTED") {
		t.Errorf("ucmatose without a server: status %d, %v\n%s%s", r.Status, err, r.Stdout, r.Stderr)
	}
	s.CheckObjects(t, objects)
}

// connect makes n connections, all of which must be made.
func connect(t *testing.T, s *stage.Stage, c tool, server, client, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	addr := harness.Address(server + 1).String()
	serving := stage.Start(t, ctx, s.Guests[server], c.serve(addr, n))
	if err := serving.Await(ctx, "listening"); err != nil {
		t.Fatal(err)
	}
	connecting := stage.Start(t, ctx, s.Guests[client], c.connect(addr, n))
	for who, script := range map[string]*harness.Script{"client": connecting, "server": serving} {
		if r := stage.Wait(t, ctx, script); r.Status != 0 {
			t.Errorf("%s, %s: exit status %d\n%s%s", c.name, who, r.Status, r.Stdout, r.Stderr)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// work is how many work requests a guest's device has taken and how many completions it has written.
func work(t *testing.T, s *stage.Stage, guest int) uint64 {
	t.Helper()
	scrape, total := s.Scrape(t), uint64(0)
	for _, name := range []string{"pvrdma_work_requests_total", "pvrdma_completions_total"} {
		for series, n := range bed.Series(scrape, name) {
			if strings.Contains(series, fmt.Sprintf("guest=%q", string(rune('a'+guest)))) {
				total += n
			}
		}
	}
	return total
}
