// SPDX-License-Identifier: Apache-2.0

//go:build vm

package field

import (
	"context"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/bed"
	"github.com/pvrdmad/pvrdmad/tests/vm/harness"
	"github.com/pvrdmad/pvrdmad/tests/vm/stage"
)

// fielded is a guest's device as it is configured.
type fielded struct {
	version uint32
	roce    int
}

// TestDevicesOfAllVersionsTalkToThoseOfTheirRoCE has a guest for each version of the device, with stock drivers of two kernels.
// Two have addresses of RoCE v1, because 17 knows no other, and two of v2: no packet of one is read by the other.
func TestDevicesOfAllVersionsTalkToThoseOfTheirRoCE(t *testing.T) {
	guests := []fielded{{17, 1}, {18, 1}, {19, 2}, {20, 2}}
	opts := bed.Options{Guests: len(guests), Rows: []string{older, "", older, ""}}
	for _, g := range guests {
		opts.Keys = append(opts.Keys, fmt.Sprintf("device_version = %d\nroce = %d", g.version, g.roce))
	}
	s := stage.New(t, opts)
	s.LoadDrivers(t)
	before := s.Objects(t)
	for i, g := range guests {
		saysWhatItIs(t, s, i, g)
		s.Output(t, i, time.Minute, "pvcheck --self -n 100")
	}
	for _, p := range []stage.Pair{{Server: 0, Client: 1}, {Server: 1, Client: 0}, {Server: 2, Client: 3}, {Server: 3, Client: 2}} {
		t.Run(fmt.Sprintf("%d serves %d", guests[p.Server].version, guests[p.Client].version), func(t *testing.T) {
			s.Pingpong(t, p, "-s 4096 -n 100")
			s.Pingpong(t, p, "-s 4096 -n 100 -e")
			s.Pvcheck(t, p, "-n 200")
		})
	}
	s.Pvcheck(t, stage.Pair{Server: 0, Client: 1}, "--errors")
	t.Run("datagrams and connections over RoCE v1", func(t *testing.T) {
		datagramsAndConnections(t, s, stage.Pair{Server: 0, Client: 1})
		datagramsAndConnections(t, s, stage.Pair{Server: 1, Client: 0})
	})
	doNotMeet(t, s, stage.Pair{Server: 3, Client: 0})
	s.CheckObjects(t, before)
	s.CheckKernelLogs(t)
	s.CheckDaemon(t)
}

// datagramsAndConnections runs what finds its way by the addresses themselves: UD, and rdma_cm with both services.
func datagramsAndConnections(t *testing.T, s *stage.Stage, p stage.Pair) {
	t.Helper()
	s.PingpongOf(t, p, "ibv_ud_pingpong", "-c -s 1024 -n 200")
	s.PingpongOf(t, p, "ibv_ud_pingpong", "-c -s 1024 -n 200 -e")
	connects(t, s, p, "rping -s -a %v -V -C 10 -S 5000", "rping -c -a %v -V -C 10 -S 5000")
	connects(t, s, p, "udaddy -b %v -c 3 -C 10 -S 1000", "udaddy -s %v -c 3 -C 10 -S 1000")
}

// connects runs both sides of a tool of rdma_cm, with the server's address in their commands.
func connects(t *testing.T, s *stage.Stage, p stage.Pair, server, client string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Slow*time.Minute)
	defer cancel()
	addr := harness.Address(p.Server + 1)
	there := stage.Start(t, ctx, s.Guests[p.Server], fmt.Sprintf(serving, fmt.Sprintf(server, addr)))
	if err := there.Await(ctx, "listening"); err != nil {
		t.Fatal(err)
	}
	here := stage.Start(t, ctx, s.Guests[p.Client], "modprobe rdma_ucm && "+fmt.Sprintf(client, addr))
	for _, side := range []*harness.Script{here, there} {
		if r := stage.Wait(t, ctx, side); r.Status != 0 {
			t.Errorf("%s: exit status %d\n%s%s", client, r.Status, r.Stdout, r.Stderr)
		}
	}
}

// serving runs a server of rdma_cm, and says when a client may connect.
const serving = `
modprobe rdma_ucm || exit 4
%s & p=$!
until rdma resource show cm_id | grep -q 'state LISTEN'; do kill -0 $p || exit 5; sleep 0.05; done
echo listening
wait $p`

// doNotMeet expects that what one guest sends is lost on its way to the other.
func doNotMeet(t *testing.T, s *stage.Stage, p stage.Pair) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Slow*time.Minute)
	defer cancel()
	server, client := s.StartPvcheck(t, ctx, p, "-n 1")
	if r := stage.Wait(t, ctx, client); r.Status != stage.CheckLost {
		t.Errorf("guests %d and %d: status %d, want %d\n%s%s", p.Server, p.Client, r.Status, stage.CheckLost, r.Stdout, r.Stderr)
	}
	stage.Wait(t, ctx, server)
}

// saysWhatItIs compares what the guest sees of its device with the configuration.
func saysWhatItIs(t *testing.T, s *stage.Stage, guest int, g fielded) {
	t.Helper()
	got := s.Output(t, guest, 10*time.Second, "cat /sys/class/infiniband/vmw_pvrdma0/ports/1/gid_attrs/types/0")
	want := "RoCE v2"
	if g.roce == 1 {
		want = "IB/RoCE v1"
	}
	if got != want {
		t.Errorf("version %d: the addresses are of %q, want %q", g.version, got, want)
	}
	metric := fmt.Sprintf(`pvrdma_guest_info\{device_version="%d",[^}]*guest="%c",roce="%d"`, g.version, 'a'+guest, g.roce)
	if !regexp.MustCompile(metric).MatchString(s.Scrape(t)) {
		t.Errorf("version %d: no metric says so of guest %d", g.version, guest)
	}
}
