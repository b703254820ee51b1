// SPDX-License-Identifier: Apache-2.0

//go:build vm

package programs

import (
	"bytes"
	"context"
	_ "embed"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pvrdmad/pvrdmad/tests/vm/harness"
	"github.com/pvrdmad/pvrdmad/tests/vm/stage"
)

//go:embed events.py
var events []byte

// expectedEvents is what events.py prints.
const expectedEvents = `SQD: IBV_EVENT_SQ_DRAINED
SEND to RTR: IBV_EVENT_COMM_EST
ERR with an SRQ: IBV_EVENT_QP_LAST_WQE_REACHED
SRQ below its limit: IBV_EVENT_SRQ_LIMIT_REACHED
CQ overflow: IBV_EVENT_CQ_ERR
WRITE that the queue pair forbids: IBV_EVENT_QP_REQ_ERR
WRITE that the region forbids: IBV_EVENT_QP_ACCESS_ERR`

// TestAGuestSeesAsynchronousEvents takes a guest's link down and up again before the eyes of ibv_asyncwatch, and lets a
// program hear of its own queue pairs and queues.
func TestAGuestSeesAsynchronousEvents(t *testing.T) {
	s := makeScene(t, 2)
	before := s.Objects(t)
	s.watchesItsPort(t)
	s.CheckDaemon(t) // before the daemon counts the completion queue that overflows
	if err := s.Guests[0].Put(t.Context(), "/tmp/events.py", 0o755, bytes.NewReader(events)); err != nil {
		t.Fatal(err)
	}

	got := s.Output(t, 0, harness.Slow*time.Minute, "/tmp/events.py "+s.gid[0])

	if diff := cmp.Diff(expectedEvents, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	s.run(t, "pvcheck", func(_ int, server string) string { return pvcheck("", server, "-n 100") }, status)
	s.CheckObjects(t, before)
	s.CheckKernelLogs(t)
}

func (s *scene) watchesItsPort(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Slow*time.Minute)
	defer cancel()
	watch := stage.Start(t, ctx, s.Guests[0], "exec stdbuf -oL ibv_asyncwatch -d vmw_pvrdma0")
	if err := watch.Await(ctx, "async event FD"); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ do, event string }{
		{"ip link set eth0 down", "IBV_EVENT_PORT_ERR"},
		{"ip link set eth0 up", "IBV_EVENT_PORT_ACTIVE"},
	} {
		s.Output(t, 0, harness.Slow*10*time.Second, step.do)
		if err := watch.Await(ctx, step.event); err != nil {
			t.Fatalf("after %q: %v", step.do, err)
		}
	}
	if err := watch.Kill(); err != nil {
		t.Error(err)
	}
	stage.Wait(t, ctx, watch)
}
