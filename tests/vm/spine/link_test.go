// SPDX-License-Identifier: Apache-2.0

//go:build vm

package spine

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/harness"
	"github.com/pvrdmad/pvrdmad/tests/vm/stage"
)

// followsItsOperator takes guest 0's port down and up again. Its programs hear of both, and see the port as it is; the other
// guest hears nothing.
func (w *world) followsItsOperator(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	watches := make([]*harness.Script, len(w.Guests))
	for i, g := range w.Guests {
		watches[i] = stage.Start(t, ctx, g, "exec timeout 100 stdbuf -oL ibv_asyncwatch -d vmw_pvrdma0")
	}
	for _, s := range watches {
		await(t, ctx, s, "vmw_pvrdma0")
	}
	for _, c := range []struct {
		down        []string
		event, port string
	}{{[]string{"a"}, "IBV_EVENT_PORT_ERR", "PORT_DOWN"}, {nil, "IBV_EVENT_PORT_ACTIVE", "PORT_ACTIVE"}} {
		if err := w.Daemon.Reload(c.down...); err != nil {
			t.Fatal(err)
		}
		await(t, ctx, watches[0], c.event)
		if out := w.Output(t, 0, time.Minute, "ibv_devinfo"); !strings.Contains(out, c.port) {
			t.Errorf("after %s the guest sees:\n%s", c.event, out)
		}
	}
	w.pvcheck(t, "-n 100")
	for i, s := range watches {
		out, _ := s.Output()
		if n := strings.Count(out, "event_type"); n != 2*(1-i) {
			t.Errorf("guest %d: %d events, want %d:\n%s", i, n, 2*(1-i), out)
		}
		w.Output(t, i, time.Minute, "pkill ibv_asyncwatch")
	}
}

// await waits until a script has said something.
func await(t *testing.T, ctx context.Context, s *harness.Script, text string) {
	t.Helper()
	if err := s.Await(ctx, text); err != nil {
		t.Fatal(err)
	}
}
