// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
)

func TestAVirtualMachineThatIsKilledUnderTrafficLeavesThePeerAnErrorAndTheSocketFree(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		n := d.neighbour()
		p := n.flow.From.P // another endpoint of the program that the neighbour runs in
		for round := range 3 {
			b := p.Endpoint(testguest.Shape{Bytes: 4 * stormSize, Depth: 32})
			c := startChild(t, d.socket("a"))
			b.ConnectTo(c.Address)
			c.connect(t, b.Address())
			wantMoving(t, b.MR.Mem) // the other process writes
			s := startStorm(b, c.Address)

			c.killAfter(time.Duration(round*7) * time.Millisecond)

			s.ended(t, b, "RETRY_EXC_ERR")
			b.StateIs("ERR")
			wantStill(t, "the kill", b.MR.Mem)
			b.Destroy()
		}
		n.check()
		d.exchangeAfter(d.guest("a"), n.flow.From.P.G)
	})
}

// Whoever connects and goes, at whatever point, leaves neither a descriptor nor a thread.
func TestConnectionsLeaveNothingBehindInTheDaemon(t *testing.T) {
	d := startDaemon(t, "poll")
	n := d.neighbour()
	cycle := func() {
		m, err := testguest.Boot(d.socket("a"), guestOptions("a"))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.PowerOff(); err != nil {
			t.Fatal(err)
		}
	}
	before := d.usage(t)
	for range 25 {
		cycle()
	}
	deadline := time.Now().Add(testguest.Patience)
	for d.usage(t) != before && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond) // the last connection is being let go
	}
	if after := d.usage(t); after != before {
		t.Errorf("the daemon held %+v before 25 connections, %+v after", before, after)
	}
	n.check()
}

// usage is what a process holds.
type usage struct{ fds, maps int }

func (d *daemon) usage(t *testing.T) usage {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d/", d.cmd.Process.Pid)
	fds, err := os.ReadDir(proc + "fd")
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile(proc + "maps")
	if err != nil {
		t.Fatal(err)
	}
	return usage{fds: len(fds), maps: strings.Count(string(maps), "memfd:")}
}
