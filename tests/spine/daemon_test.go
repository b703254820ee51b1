// SPDX-License-Identifier: Apache-2.0

package spine

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
)

const (
	readyTime = time.Minute
	// stopTime is how long the daemon may take after SIGTERM on a machine that is busy with other things. It promises 2 s on
	// a quiet one.
	stopTime = 10 * time.Second
)

// modes are the doorbell modes. Everything must pass in both.
var modes = []string{"poll", "trap"}

// eachMode runs a test against a daemon of its own in each doorbell mode, in one with a window for every memory region and in
// the other with lists of pages alone. What is about neither runs with what is the default.
func eachMode(t *testing.T, test func(t *testing.T, d *daemon)) {
	t.Helper()
	for i, mode := range modes {
		t.Run(mode, func(t *testing.T) { test(t, startLane(t, mode, windows[i])) })
	}
}

// windows are how memory regions lie in the daemon, the values of the key.
var windows = []string{"always", "off"}

// eachLane is eachMode with both kinds of memory regions in each mode.
func eachLane(t *testing.T, test func(t *testing.T, d *daemon)) {
	t.Helper()
	for _, mode := range modes {
		for _, w := range windows {
			t.Run(mode+", windows "+w, func(t *testing.T) { test(t, startLane(t, mode, w)) })
		}
	}
}

func startLane(t *testing.T, mode, windows string) *daemon {
	t.Helper()
	d := launch(t, mode, fmt.Sprintf("windows = %q\n", windows), func(string) string { return "" })
	d.windows = windows
	return d
}

// workersVariable is the environment variable that says how many workers the daemon has, 1 without it: every test passes with
// several.
const workersVariable = "PVRDMAD_WORKERS"

// versionVariable is the environment variable that says which version the devices have, that of the default without it: every
// test passes with each.
const versionVariable = "PVRDMAD_DEVICE_VERSION"

// ofVersion is what goes into a guest's table: what a test wants there, and the version of the device unless the test says it.
func ofVersion(extra string) string {
	v := os.Getenv(versionVariable)
	if v == "" || strings.Contains(extra, "device_version") {
		return extra
	}
	return "device_version = " + v + "\n" + extra
}

// daemon is a running pvrdmad with the guests a and b, if names says nothing else.
type daemon struct {
	t    *testing.T
	dir  string
	mode string
	// names are the guests'.
	names []string
	// windows is the value of the key, empty for the default.
	windows string
	cmd     *exec.Cmd
	log     *logBuffer
	done    chan error
}

// logBuffer is the daemon's log so far.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// startDaemon starts a daemon for a test and ends it with the test. Lines of extra go into both guests' tables.
func startDaemon(t *testing.T, mode string, extra ...string) *daemon {
	t.Helper()
	return startDaemonWith(t, mode, func(string) string { return strings.Join(extra, "\n") })
}

// startDaemonWith is startDaemon with what goes into the table of each guest.
func startDaemonWith(t *testing.T, mode string, extra func(guest string) string) *daemon {
	t.Helper()
	return launch(t, mode, "", extra)
}

func launch(t *testing.T, mode, global string, extra func(guest string) string) *daemon {
	t.Helper()
	return launchFor(t, []string{"a", "b"}, mode, global, extra)
}

// launchFor is launch for guests of other names.
func launchFor(t *testing.T, names []string, mode, global string, extra func(guest string) string) *daemon {
	t.Helper()
	d := &daemon{t: t, dir: t.TempDir(), mode: mode, names: names, log: &logBuffer{}, done: make(chan error, 1)}
	text := global + "workers = " + cmp.Or(os.Getenv(workersVariable), "1") + "\nspin = \"0s\"\n[log]\nlevel = \"debug\"\n[metrics]\nlisten = \"off\"\n"
	for i, name := range names {
		text += fmt.Sprintf("[[guest]]\nname = %q\nsocket_path = %q\nmac = \"02:00:00:00:00:%02x\"\ndoorbells = %q\n%s\n",
			name, d.socket(name), i+1, mode, ofVersion(extra(name)))
	}
	config := filepath.Join(d.dir, "pvrdmad.toml")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d.cmd = exec.Command(daemonPath, "serve", "--config", config)
	d.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0") // the race detector would wait a second at the end
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { d.done <- d.cmd.Wait() }()
	t.Cleanup(d.stop)
	d.awaitSockets()
	return d
}

func (d *daemon) socket(guest string) string { return filepath.Join(d.dir, guest+".sock") }

func (d *daemon) awaitSockets() {
	d.t.Helper()
	deadline := time.Now().Add(readyTime)
	for _, name := range d.names {
		for {
			conn, err := net.Dial("unix", d.socket(name))
			if err == nil {
				conn.Close()
				break
			}
			if time.Now().After(deadline) {
				d.t.Fatalf("the daemon does not serve %s: %v\n%s", name, err, d.log)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// stop ends the daemon, which must leave in time, with success and without having panicked.
func (d *daemon) stop() {
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // if it has ended already, that is seen below
	select {
	case err := <-d.done:
		if err != nil {
			d.t.Errorf("the daemon ended with %v", err)
		}
	case <-time.After(stopTime):
		_ = d.cmd.Process.Kill()
		<-d.done
		d.t.Errorf("the daemon did not end within %v of SIGTERM", stopTime)
	}
	log := d.log.String()
	for _, bad := range []string{"panic", "DATA RACE", "fatal error"} {
		if strings.Contains(log, bad) {
			d.t.Errorf("the daemon's log speaks of %q", bad)
		}
	}
	if d.t.Failed() {
		d.t.Logf("the daemon's log:\n%s", log)
	}
}

// logSays waits until a line of the daemon's log has all of some texts.
func (d *daemon) logSays(texts ...string) {
	d.t.Helper()
	for deadline := time.Now().Add(d.soon()); ; time.Sleep(5 * time.Millisecond) {
		for line := range strings.Lines(d.log.String()) {
			if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
				return
			}
		}
		if time.Now().After(deadline) {
			d.t.Errorf("no line of the log has %q", texts)
			return
		}
	}
}

// soon is what nobody has to wait longer for: 50 times what it takes on a busy machine, and more with the race detector, which
// slows all processes down.
func (d *daemon) soon() time.Duration {
	if raceEnabled {
		return 8 * time.Second
	}
	return time.Second
}

// alive fails the test if the daemon has ended.
func (d *daemon) alive() {
	d.t.Helper()
	select {
	case err := <-d.done:
		d.done <- err
		d.t.Fatalf("the daemon has ended: %v", err)
	default:
	}
}

// guestOptions are those of guest a or b. Their memory is scattered, so that nothing lies side by side by accident. They
// post few receives at boot, each of which is a message, since they boot often.
func guestOptions(name string) testguest.Options {
	n := name[0] - 'a' + 1
	return testguest.Options{
		Memory: ram.Options{Size: 32 << 20, Scatter: true, Seed: uint64(n)},
		MAC:    [6]byte{2, 0, 0, 0, 0, n}, IP: [4]byte{10, 0, 0, n}, MADReceives: 4,
	}
}

// guest boots guest a or b.
func (d *daemon) guest(name string) *testguest.Guest {
	d.t.Helper()
	return testguest.Start(d.t, d.socket(name), guestOptions(name))
}

// endpoints boots both guests and returns an endpoint of each, not connected yet.
func (d *daemon) endpoints(s testguest.Shape) (a, b *testguest.Endpoint) {
	d.t.Helper()
	return d.guest("a").Open().Endpoint(s), d.guest("b").Open().Endpoint(s)
}

// connected boots both guests and returns two endpoints that are connected with each other.
func (d *daemon) connected(s testguest.Shape) (a, b *testguest.Endpoint) {
	d.t.Helper()
	a, b = d.endpoints(s)
	testguest.Connect(a, b)
	return a, b
}
