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

// spare is an address that the first guest does not have at first.
const spare = "10.77.0.101"

// listening waits in a guest until somebody listens.
const listening = "for i in $(seq 100); do rdma res show cm_id | grep -q LISTEN && exit 0; sleep 0.2; done; exit 1"

// TestAConnectionComesUpAlthoughItsRequestsAreLostOrNotAnswered: connection management sends again what nobody answers, and
// whoever gets a request several times takes it once.
func TestAConnectionComesUpAlthoughItsRequestsAreLostOrNotAnswered(t *testing.T) {
	s := stage.New(t, bed.Options{})
	s.LoadDrivers(t)
	for _, c := range []struct {
		name string
		// before and after are what the server's guest does before the client asks, and when it has asked often enough.
		before, after string
		// asked says how often the client has asked.
		asked func() uint64
		often uint64
	}{
		{
			name: "requests are lost", before: "true", after: "ip addr add " + spare + "/24 dev eth0",
			asked: func() uint64 { return bed.Sum(s.Scrape(t), `pvrdma_engine_drops_total{reason="no_address"}`) }, often: 1,
		},
		{
			name: "requests are not answered", before: "kill -STOP $(pgrep -x rping)", after: "kill -CONT $(pgrep -x rping)",
			asked: func() uint64 { return s.Messages(t) }, often: 2,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			objects := s.Objects(t)
			mac := s.Output(t, 0, time.Minute, "cat /sys/class/net/eth0/address")
			s.Output(t, 1, time.Minute, fmt.Sprintf("ip neigh replace %s lladdr %s dev eth0 nud permanent", spare, mac))
			server := stage.Start(t, ctx, s.Guests[0], "timeout 150 rping -s -v -C 3 -a 0.0.0.0")
			s.Output(t, 0, time.Minute, listening)
			s.Output(t, 0, time.Minute, c.before)
			before := c.asked()

			client := stage.Start(t, ctx, s.Guests[1], "timeout 150 rping -c -v -C 3 -a "+spare)
			for c.asked() < before+c.often {
				if ctx.Err() != nil {
					t.Fatal("the client does not ask")
				}
				time.Sleep(200 * time.Millisecond)
			}
			s.Output(t, 0, time.Minute, c.after)

			for who, script := range map[string]*harness.Script{"client": client, "server": server} {
				r := stage.Wait(t, ctx, script)
				if r.Status != 0 || strings.Count(r.Stdout, "ping data") != 3 {
					t.Errorf("%s: exit status %d\n%s%s", who, r.Status, r.Stdout, r.Stderr)
				}
			}
			s.CheckObjects(t, objects)
		})
	}
	s.CheckKernelLogs(t)
	s.CheckDaemon(t)
}
