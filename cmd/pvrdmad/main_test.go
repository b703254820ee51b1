// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// binary is the daemon, built once for all tests.
func binary() string { return filepath.Join(os.TempDir(), fmt.Sprintf("pvrdmad-test-%d", os.Getpid())) }

func TestMain(m *testing.M) {
	build := exec.Command("go", "build", "-o", binary(), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the daemon: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	os.Remove(binary())
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// patience is how long a test waits for what takes milliseconds.
const patience = time.Minute

// process is a daemon that runs.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	notify *net.UnixConn
	exited chan struct{}

	mu  sync.Mutex
	log bytes.Buffer // guarded by mu: what it wrote to standard error
}

// start starts a daemon with a service manager's socket.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	return startWith(t, nil, nil, args...)
}

// startWith starts a daemon with further environment and files from descriptor 3 on.
func startWith(t *testing.T, env []string, files []*os.File, args ...string) *process {
	t.Helper()
	path := filepath.Join(socketDir(t), "notify")
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(binary(), args...), notify: notify, exited: make(chan struct{})}
	p.cmd.Env = append(append(os.Environ(), "NOTIFY_SOCKET="+path), env...)
	p.cmd.ExtraFiles = files
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.exited)
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			p.mu.Lock()
			p.log.WriteString(lines.Text() + "\n")
			p.mu.Unlock()
		}
		_ = p.cmd.Wait() // the exit code is what counts
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
		notify.Close()
		if t.Failed() {
			t.Logf("log of the daemon:\n%s", p.text())
		}
	})
	return p
}

// socketDir is a directory whose name is short enough for sockets.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pvrdmad")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// told waits for a notification that begins with want.
func (p *process) told(want string) {
	p.t.Helper()
	b := make([]byte, 4096)
	if err := p.notify.SetReadDeadline(time.Now().Add(patience)); err != nil {
		p.t.Fatal(err)
	}
	n, err := p.notify.Read(b)
	if err != nil || !strings.HasPrefix(string(b[:n]), want) {
		p.t.Fatalf("notification %q, %v; want %q", b[:n], err, want)
	}
}

// silent checks that the service manager was told nothing more.
func (p *process) silent() {
	p.t.Helper()
	b := make([]byte, 4096)
	if err := p.notify.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		p.t.Fatal(err)
	}
	if n, err := p.notify.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		p.t.Errorf("notification %q, %v; want none", b[:n], err)
	}
}

// exitCode waits until the daemon has ended by itself.
func (p *process) exitCode() int {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		p.t.Fatal("the daemon does not end")
	}
	return p.cmd.ProcessState.ExitCode()
}

// endTime is how long the daemon may take to end on a machine that is busy with other things; 2 s on a quiet one.
const endTime = 10 * time.Second

// end sends a signal and checks that the daemon ends in time and well.
func (p *process) end(sig syscall.Signal) {
	p.t.Helper()
	began := time.Now()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
	code := p.exitCode()
	if d := time.Since(began); d > endTime || code != exitOK {
		p.t.Errorf("%v ended the daemon after %v with exit code %d, want 0 within %v", sig, d, code, endTime)
	}
}

// logged waits for a log line that contains want.
func (p *process) logged(want string) {
	p.t.Helper()
	eventually(p.t, "log line "+want, func() bool { return strings.Contains(p.text(), want) })
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// get asks for a page over a Unix socket.
func get(t *testing.T, socket, path string) (int, string) {
	t.Helper()
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", socket) }}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, Timeout: patience}).Get("http://daemon" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, b.String()
}
