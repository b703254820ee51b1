// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/bed"
	"github.com/pvrdmad/pvrdmad/tests/vm/harness"
)

// Exit statuses of pvcheck.
const (
	CheckPass = 0
	CheckFail = 1
	CheckLost = 3
)

// retry runs a client until its server listens; any other failure than a set-up that failed counts.
const retry = "for i in $(seq 150); do %s && exit 0; s=$?; [ $s -eq 2 ] || exit $s; sleep 0.2; done; exit 2"

// Pair is two guests of a stage, by their numbers.
type Pair struct{ Server, Client int }

// Pvcheck runs the payload check between two guests.
func (s *Stage) Pvcheck(t *testing.T, p Pair, options string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Slow*time.Minute)
	defer cancel()
	server, client := s.StartPvcheck(t, ctx, p, options)
	if r := Wait(t, ctx, client); r.Status != CheckPass {
		t.Errorf("client of pvcheck %s: exit status %d\n%s%s", options, r.Status, r.Stdout, r.Stderr)
	}
	if r := Wait(t, ctx, server); r.Status != CheckPass {
		t.Errorf("server of pvcheck %s: exit status %d\n%s%s", options, r.Status, r.Stdout, r.Stderr)
	}
}

// StartPvcheck starts a payload check and returns its two sides.
func (s *Stage) StartPvcheck(t *testing.T, ctx context.Context, p Pair, options string) (server, client *harness.Script) {
	t.Helper()
	server = Start(t, ctx, s.Guests[p.Server], "pvcheck "+options)
	client = Start(t, ctx, s.Guests[p.Client],
		fmt.Sprintf(retry, fmt.Sprintf("pvcheck %s %s", options, harness.Address(p.Server+1))))
	return server, client
}

// Pingpong runs ibv_rc_pingpong between two guests.
func (s *Stage) Pingpong(t *testing.T, p Pair, options string) {
	t.Helper()
	s.PingpongOf(t, p, "ibv_rc_pingpong", options)
}

// PingpongOf runs one of the library's ping-pongs between two guests.
func (s *Stage) PingpongOf(t *testing.T, p Pair, program, options string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Slow*time.Minute)
	defer cancel()
	gid := func(guest int) string {
		index, err := bed.GIDIndex(ctx, s.Guests[guest])
		if err != nil {
			t.Fatal(err)
		}
		return index
	}
	server := Start(t, ctx, s.Guests[p.Server], program+" -g "+gid(p.Server)+" "+options)
	client := Start(t, ctx, s.Guests[p.Client], fmt.Sprintf(
		"for i in $(seq 150); do %s -g %s %s %s && exit 0; sleep 0.2; done; exit 1",
		program, gid(p.Client), options, harness.Address(p.Server+1)))
	for _, side := range []*harness.Script{client, server} {
		r := Wait(t, ctx, side)
		if r.Status != 0 || !strings.Contains(r.Stdout, "usec/iter") {
			t.Errorf("%s %s: exit status %d\n%s%s", program, options, r.Status, r.Stdout, r.Stderr)
		}
	}
}
