// SPDX-License-Identifier: Apache-2.0

//go:build vm

package spine

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

// Exit statuses of pvcheck.
const (
	checkPass = 0
	checkFail = 1
	checkLost = 3
)

// retry runs a client until its server listens; any other failure than a set-up that failed counts.
const retry = "for i in $(seq 150); do %s && exit 0; s=$?; [ $s -eq 2 ] || exit $s; sleep 0.2; done; exit 2"

// pvcheck runs the payload check between guest 0 (server) and guest 1 (client).
func (w *world) pvcheck(t *testing.T, options string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Slow*time.Minute)
	defer cancel()
	s, c := w.startCheck(t, ctx, options)
	if r := stage.Wait(t, ctx, c); r.Status != checkPass {
		t.Errorf("client of pvcheck %s: exit status %d\n%s%s", options, r.Status, r.Stdout, r.Stderr)
	}
	if r := stage.Wait(t, ctx, s); r.Status != checkPass {
		t.Errorf("server of pvcheck %s: exit status %d\n%s%s", options, r.Status, r.Stdout, r.Stderr)
	}
}

// startCheck starts a payload check and returns its two sides.
func (w *world) startCheck(t *testing.T, ctx context.Context, options string) (server, client *harness.Script) {
	t.Helper()
	server = stage.Start(t, ctx, w.Guests[0], "pvcheck "+options)
	client = stage.Start(t, ctx, w.Guests[1], fmt.Sprintf(retry, fmt.Sprintf("pvcheck %s %s", options, harness.Address(1))))
	return server, client
}

// pingpong runs ibv_rc_pingpong between the guests.
func (w *world) pingpong(t *testing.T, options string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Slow*time.Minute)
	defer cancel()
	gid := make([]string, 2)
	for i, g := range w.Guests {
		var err error
		if gid[i], err = bed.GIDIndex(ctx, g); err != nil {
			t.Fatal(err)
		}
	}
	s := stage.Start(t, ctx, w.Guests[0], "ibv_rc_pingpong -g "+gid[0]+" "+options)
	c := stage.Start(t, ctx, w.Guests[1], fmt.Sprintf(
		"for i in $(seq 150); do ibv_rc_pingpong -g %s %s %s && exit 0; sleep 0.2; done; exit 1",
		gid[1], options, harness.Address(1)))
	for _, side := range []*harness.Script{c, s} {
		r := stage.Wait(t, ctx, side)
		if r.Status != 0 || !strings.Contains(r.Stdout, "usec/iter") {
			t.Errorf("ibv_rc_pingpong %s: exit status %d\n%s%s", options, r.Status, r.Stdout, r.Stderr)
		}
	}
}
