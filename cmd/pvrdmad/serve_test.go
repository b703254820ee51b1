// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs/soft"
	"github.com/pvrdmad/pvrdmad/internal/config"
	"github.com/pvrdmad/pvrdmad/internal/telemetry"
	"github.com/pvrdmad/pvrdmad/internal/testguest/vfio"
)

// twoGuests writes a configuration of two guests and metrics, all below one directory.
func twoGuests(t *testing.T) (file, dir string) {
	t.Helper()
	dir = socketDir(t)
	if err := os.Mkdir(filepath.Join(dir, config.DropInDir), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "DIR", dir)), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("guests.d/b.toml", "socket_path = \"DIR/b.sock\"\ndoorbells = \"trap\"\nsocket_mode = \"0600\"\n")
	return write("pvrdmad.toml", `
[metrics]
listen = "unix:DIR/metrics.sock"
[[guest]]
name = "a"
socket_path = "DIR/a.sock"
`), dir
}

// attach connects as QEMU does.
func attach(t *testing.T, socket string) *vfio.Client {
	t.Helper()
	c, err := vfio.Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestReadyIsSaidWhenEveryGuestCanAttach(t *testing.T) {
	file, dir := twoGuests(t)
	p := start(t, "serve", "--config", file)
	p.told("READY=1\nSTATUS=serving 2 guests with the soft engine")

	// Nothing is waited for from here on.
	attach(t, filepath.Join(dir, "a.sock"))
	attach(t, filepath.Join(dir, "b.sock"))
	for _, path := range []string{"/readyz", "/healthz"} {
		if code, body := get(t, filepath.Join(dir, "metrics.sock"), path); code != 200 || body != "ok\n" {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	for name, want := range map[string]fs.FileMode{"a.sock": 0o660, "b.sock": 0o600, "metrics.sock": 0o660} {
		st, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if st.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", name, st.Mode().Perm(), want)
		}
	}
	p.silent()
	p.end(syscall.SIGTERM)
}

func TestOneSocketThatCannotBeOpenedKeepsTheDaemonFromStarting(t *testing.T) {
	file, dir := twoGuests(t)
	inTheWay := filepath.Join(dir, "b.sock")
	if err := os.WriteFile(inTheWay, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := start(t, "serve", "--config", file)
	if code := p.exitCode(); code != exitUnavailable {
		t.Errorf("exit code %d, want %d", code, exitUnavailable)
	}
	for _, want := range []string{`guest "b"`, inTheWay, "remove what is in its place, or set socket_path"} {
		if !strings.Contains(p.text(), want) {
			t.Errorf("no %s in: %s", want, p.text())
		}
	}
	p.silent()
	if b, err := os.ReadFile(inTheWay); err != nil || string(b) != "precious" {
		t.Errorf("what was in the way is now %q, %v", b, err)
	}
}

func TestASignalEndsTheDaemonInTimeWhileGuestsAreAttached(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			file, dir := twoGuests(t)
			p := start(t, "serve", "--config", file)
			p.told("READY=1")
			attach(t, filepath.Join(dir, "a.sock"))
			attach(t, filepath.Join(dir, "b.sock"))
			p.end(sig)
			p.told("STOPPING=1")
			for _, want := range []string{"guest=a", "guest=b"} {
				if !strings.Contains(p.text(), "virtual machine detached: "+want) {
					t.Errorf("no line that %s was let go", want)
				}
			}
		})
	}
}

func TestAClientThatSaysNothingDoesNotDelayTheEnd(t *testing.T) {
	file, dir := twoGuests(t)
	p := start(t, "serve", "--config", file)
	p.told("READY=1")
	conn, err := net.Dial("unix", filepath.Join(dir, "a.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p.end(syscall.SIGTERM)
}

func TestMetricsTellTheGuestsApart(t *testing.T) {
	file, dir := twoGuests(t)
	p := start(t, "serve", "--config", file)
	p.told("READY=1")
	a := attach(t, filepath.Join(dir, "a.sock"))
	scrape := func() string {
		_, body := get(t, filepath.Join(dir, "metrics.sock"), "/metrics")
		return body
	}
	for _, want := range []string{
		`pvrdma_guest_up{guest="a"} 1`, `pvrdma_guest_up{guest="b"} 0`, `pvrdma_vfiouser_connections_total{guest="a"} 1`,
		`pvrdma_guest_info{device_version="20",doorbells="poll",engine="soft",guest="a",roce="2"} 1`,
		`pvrdma_guest_info{device_version="20",doorbells="trap",engine="soft",guest="b",roce="2"} 1`,
		`pvrdma_completions_total{guest="b",status="success"} 0`, "pvrdma_build_info{", "go_goroutines ", "process_open_fds ",
	} {
		if text := scrape(); !strings.Contains(text, want) {
			t.Errorf("no series %s", want)
		}
	}
	a.Close()
	eventually(t, "guest a is down", func() bool { return strings.Contains(scrape(), `pvrdma_guest_up{guest="a"} 0`) })
	if !strings.Contains(scrape(), `pvrdma_vfiouser_disconnects_total{guest="a",reason="client_closed"} 1`) {
		t.Error("the disconnect is not counted")
	}
	p.end(syscall.SIGTERM)
}

func TestASecondDaemonLeavesTheFirstOneItsSocket(t *testing.T) {
	file, dir := twoGuests(t)
	p := start(t, "serve", "--config", file)
	p.told("READY=1")
	second := start(t, "serve", "--config", file)
	if code := second.exitCode(); code != exitUnavailable {
		t.Errorf("exit code %d, want %d", code, exitUnavailable)
	}
	if !strings.Contains(second.text(), "stop the daemon that serves it, or set socket_path") {
		t.Errorf("no next step in: %s", second.text())
	}
	attach(t, filepath.Join(dir, "a.sock"))
	p.end(syscall.SIGTERM)
}

func TestASocketThatAKilledDaemonLeftIsReplaced(t *testing.T) {
	file, dir := twoGuests(t)
	first := start(t, "serve", "--config", file)
	first.told("READY=1")
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	first.exitCode()
	second := start(t, "serve", "--config", file)
	second.told("READY=1")
	attach(t, filepath.Join(dir, "a.sock"))
	second.end(syscall.SIGTERM)
}

func TestADescriptorTakesTheSocketsPlace(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(socketDir(t), "fd.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.UnixListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := startWith(t, nil, []*os.File{f}, "--fd=3", "--name", "vm7")
	p.told("READY=1\nSTATUS=serving 1 guests")
	attach(t, l.Addr().String())
	p.logged("virtual machine attached: guest=vm7")
	p.end(syscall.SIGTERM)
	if _, err := os.Stat(l.Addr().String()); err != nil {
		t.Errorf("the socket of somebody else is gone: %v", err)
	}
}

func TestAReaderOfTheLogThatGoesAwayTakesNobodyWithIt(t *testing.T) {
	dir := socketDir(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	proc, err := os.StartProcess(binary(), []string{
		"pvrdmad", "serve", "--socket-path", filepath.Join(dir, "y.sock"), "--metrics-listen",
		"unix:" + filepath.Join(dir, "n.sock"),
	}, &os.ProcAttr{Env: os.Environ(), Files: []*os.File{nil, nil, w}})
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	r.Close()
	eventually(t, "it listens", func() bool { _, err := os.Stat(filepath.Join(dir, "n.sock")); return err == nil })
	for range 3 {
		c, err := vfio.Dial(filepath.Join(dir, "y.sock"))
		if err != nil {
			t.Fatalf("the daemon is gone: %v", err)
		}
		c.Close()
		eventually(t, "the guest is let go", func() bool {
			_, text := get(t, filepath.Join(dir, "n.sock"), "/metrics")
			return strings.Contains(text, "pvrdma_guest_up{guest=\"y\"} 0")
		})
	}
	if err := proc.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if st, err := proc.Wait(); err != nil || st.ExitCode() != exitOK {
		t.Errorf("ended with %v, %v; want exit code 0", st, err)
	}
}

func TestTheWatchdogIsFedByTheWorkersProgress(t *testing.T) {
	p := startWith(t, []string{"WATCHDOG_USEC=200000"}, nil, "serve", "--socket-path", filepath.Join(socketDir(t), "x.sock"))
	got := map[string]bool{}
	for range 4 {
		b := make([]byte, 4096)
		if err := p.notify.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		n, err := p.notify.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(string(b[:n]), "\n")
		got[first] = true
	}
	if !got["READY=1"] || !got["WATCHDOG=1"] || len(got) != 2 {
		t.Errorf("notifications %v, want READY=1 and WATCHDOG=1", got)
	}
	p.end(syscall.SIGTERM)
}

func TestTheSocketBelongsToTheGroupThatIsNamed(t *testing.T) {
	path := filepath.Join(socketDir(t), "x.sock")
	own := strconv.Itoa(os.Getgid())
	p := start(t, "serve", "--socket-path", path, "--socket-group", own)
	p.told("READY=1")
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if gid := st.Sys().(*syscall.Stat_t).Gid; strconv.Itoa(int(gid)) != own {
		t.Errorf("group %d, want %s", gid, own)
	}
	p.end(syscall.SIGTERM)
}

func TestTheLimitsOfTheConfigurationAreWhatTheEngineOffers(t *testing.T) {
	have, g := soft.New(nil).QueryDevice(), config.DefaultGuest()
	want := fmt.Sprint(g.MaxQP, g.MaxCQ, g.MaxMR, g.MaxPD, g.MaxSRQ)
	if got := fmt.Sprint(have.MaxQP, have.MaxCQ, have.MaxMR, have.MaxPD, have.MaxSRQ); got != want {
		t.Errorf("the engine offers %s, the configuration's defaults are %s", got, want)
	}
	for key, most := range map[string]uint32{
		"max-qp": have.MaxQP, "max-cq": have.MaxCQ, "max-mr": have.MaxMR, "max-pd": have.MaxPD,
		"max-srq": have.MaxSRQ,
	} {
		_, err := config.ForFlags(map[string]string{"socket-path": "/x", key: fmt.Sprint(most + 1)})
		if err == nil {
			t.Errorf("--%s takes more than the engine offers", key)
		}
	}
}

func TestAWorkerSpinsByItselfOnlyWithACoreToSpare(t *testing.T) {
	auto := config.Spin{Auto: true}
	for _, tt := range []struct {
		spin                   config.Spin
		cores, workers, guests int
		want                   time.Duration
	}{
		{auto, 2, 1, 1, 0},
		{auto, 3, 1, 1, autoSpin},
		{auto, 4, 1, 3, 0},
		{auto, 4, 2, 2, 0},
		{auto, 5, 2, 2, autoSpin},
		{config.Spin{}, 64, 1, 1, 0},
		{config.Spin{Budget: config.Duration(time.Millisecond)}, 1, 1, 9, time.Millisecond},
	} {
		if got := spinBudget(tt.spin, tt.cores, tt.workers, tt.guests); got != tt.want {
			t.Errorf("spin %+v with %d cores, %d workers and %d guests: %v, want %v", tt.spin, tt.cores, tt.workers, tt.guests, got, tt.want)
		}
	}
}

func TestReadinessNamesWhoIsMissing(t *testing.T) {
	d := &daemon{missing: map[string]string{"daemon": "starting"}}
	if err := d.ready(); err == nil || err.Error() != "daemon: starting" {
		t.Errorf("error %v, want that it is starting", err)
	}
	d.setMissing("daemon", "")
	if err := d.ready(); err != nil {
		t.Error(err)
	}
	d.setMissing("vm1", errors.New("listener failed").Error())
	if err := d.ready(); err == nil || err.Error() != "vm1: listener failed" {
		t.Errorf("error %v, want that of vm1", err)
	}
	if _, ok := any(&faultObserver{guests: map[string]*telemetry.Guest{}}).(soft.Observer); !ok {
		t.Error("the daemon does not hear of memory faults")
	}
}

func TestTheKeyWindowsDecidesWhichRegionsAreContiguous(t *testing.T) {
	auto := guestmem.DefaultWindows()
	for key, want := range map[config.Windows]guestmem.Windows{
		config.WindowsAuto: auto, config.WindowsOff: {},
		config.WindowsAlways: {Budget: auto.Budget, MinPages: 1, MaxRun: guestmem.MaxPinPages},
	} {
		if got := windows(key); got != want {
			t.Errorf("%s: %+v, want %+v", key, got, want)
		}
	}
}
