// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/driver"
)

// links rewrites the links of all guests in the configuration from one state to another, and has the daemon read it.
func (d *daemon) links(from, to string) {
	d.t.Helper()
	file := filepath.Join(d.dir, "pvrdmad.toml")
	text, err := os.ReadFile(file)
	if err != nil {
		d.t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte("link = \""+from), []byte("link = \""+to))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		d.t.Fatal(err)
	}
	if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		d.t.Fatal(err)
	}
}

// TestAPortThatItsOperatorTakesDownIsDownForItsGuestAlone: link is a key of guest a only.
func TestAPortThatItsOperatorTakesDownIsDownForItsGuestAlone(t *testing.T) {
	eachMode(t, func(t *testing.T, d *daemon) {
		d = startDaemonWith(t, d.mode, func(guest string) string {
			if guest == "a" {
				return "link = \"up\""
			}
			return ""
		})
		a, b := d.connected(testguest.Shape{})
		port := func(g *testguest.Guest, event, state string) {
			t.Helper()
			want := driver.AsyncEvent{Type: g.Const("PVRDMA_EVENT_" + event), Info: 1}
			if e, err := g.Dev.WaitAsync(testguest.Patience); err != nil || e != want {
				t.Fatalf("event %+v, %v, want %s", e, err, event)
			}
			if p, err := g.Dev.QueryPort(1); err != nil || p.Get32("state") != g.Const("PVRDMA_PORT_"+state) {
				t.Errorf("after %s the port is %v, %v", event, p, err)
			}
			if e, err := g.Dev.WaitAsync(settle); err == nil {
				t.Errorf("event %+v after %s", e, event)
			}
		}
		a.Sent(a.Write(b.Address(), 0, 8), "SUCCESS")
		d.links("up", "down")
		port(a.P.G, "PORT_ERR", "DOWN")
		if e, err := b.P.G.Dev.WaitAsync(settle); err == nil {
			t.Errorf("event %+v of the other guest", e)
		}
		b.Sent(b.Write(a.Address(), 0, 8), "RETRY_EXC_ERR")
		d.links("down", "up")
		port(a.P.G, "PORT_ACTIVE", "ACTIVE")
		x, y := a.P.Endpoint(testguest.Shape{}), b.P.Endpoint(testguest.Shape{})
		testguest.Connect(x, y)
		x.Sent(x.Write(y.Address(), 0, 8), "SUCCESS")
	})
}
