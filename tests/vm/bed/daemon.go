// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/harness"
)

const (
	// readyLimit is how long the daemon may take until its sockets listen.
	readyLimit = harness.Slow * 10 * time.Second
	// stopLimit is how long it may take after SIGTERM.
	stopLimit = harness.Slow * 2 * time.Second
)

// Limits of every guest's device, other than the defaults, so that a test can see that they come from the configuration.
const (
	MaxQP  = 1000
	MaxCQ  = 2000
	MaxMR  = 5000
	MaxPD  = 300
	MaxSRQ = 100
)

// mac is the hardware address that guest number i's device is configured with.
func mac(i int) string { return fmt.Sprintf("02:00:00:77:00:%02x", i+1) }

// GUID is the GUID that follows from it, as ibv_devinfo prints it.
func GUID(i int) string { return fmt.Sprintf("0000:00ff:fe77:%04x", i+1) }

// LogLine is a line of the daemon's log: its message, the guest that it is about, and its other values.
type LogLine struct {
	Level, Message, Guest string
	Values                map[string]any
}

// DaemonConfig says how to run pvrdmad.
type DaemonConfig struct {
	// Binary is the program.
	Binary string
	// Guests are the names of the guests, Doorbells how their doorbells travel: "poll" or "trap".
	Guests    []string
	Doorbells string
	// Workers is how many threads serve them, 0 for the default.
	Workers int
	// Keys are further lines of the guests' tables in the configuration, in the guests' order.
	Keys []string
	// LogDir receives pvrdmad.log.
	LogDir string
	// OnLog, if not nil, hears every line of the log, on one goroutine.
	OnLog func(LogLine)
}

// Daemon is a running pvrdmad.
type Daemon struct {
	cfg  DaemonConfig
	dir  string // sockets and configuration
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	err  error         // how it ended; valid once done is closed
	logs sync.WaitGroup
}

// Build compiles pvrdmad from the module that the working directory lies in.
func Build(ctx context.Context, into string) (string, error) {
	path := filepath.Join(into, "pvrdmad")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/pvrdmad/pvrdmad/cmd/pvrdmad")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build pvrdmad: %w\n%s", err, out)
	}
	return path, nil
}

// StartDaemon starts pvrdmad and waits until it says that it is ready.
func StartDaemon(ctx context.Context, cfg DaemonConfig) (*Daemon, error) {
	d := &Daemon{cfg: cfg, done: make(chan struct{})}
	if err := d.start(ctx); err != nil {
		d.Close()
		return nil, fmt.Errorf("start pvrdmad: %w", err)
	}
	return d, nil
}

func (d *Daemon) start(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "pvrdmad-bed")
	if err != nil {
		return err
	}
	d.dir = dir
	config, err := d.writeConfig()
	if err != nil {
		return err
	}
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: d.path("notify"), Net: "unixgram"})
	if err != nil {
		return err
	}
	defer notify.Close()
	log, err := os.Create(filepath.Join(d.cfg.LogDir, "pvrdmad.log"))
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		log.Close()
		return err
	}
	d.logs.Go(func() { d.readLog(r, log) })
	d.cmd = exec.Command(d.cfg.Binary, "serve", "--config", config)
	d.cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+d.path("notify"))
	d.cmd.Stdout, d.cmd.Stderr = w, w
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	err = d.launch()
	w.Close()
	if err != nil {
		d.cmd = nil
		return err
	}
	return d.awaitReady(ctx, notify)
}

// launch starts the process on a thread that lives as long as it does: the kernel kills the process when that thread
// ends.
func (d *Daemon) launch() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := d.cmd.Start()
		started <- err
		if err == nil {
			d.err = d.cmd.Wait()
			close(d.done)
		}
	}()
	return <-started
}

func (d *Daemon) path(name string) string { return filepath.Join(d.dir, name) }

// Socket is where a guest's device listens.
func (d *Daemon) Socket(guest string) string { return d.path(guest + ".sock") }

// writeConfig writes the configuration in which the ports of some guests are down, and returns its file.
func (d *Daemon) writeConfig(down ...string) (string, error) {
	file := filepath.Join(d.dir, "pvrdmad.toml")
	return file, os.WriteFile(file, []byte(d.config(down)), 0o600)
}

// Reload has the daemon read a configuration in which the ports of some guests are down, and those of all others up.
func (d *Daemon) Reload(down ...string) error {
	if _, err := d.writeConfig(down...); err != nil {
		return err
	}
	return d.cmd.Process.Signal(syscall.SIGHUP)
}

func (d *Daemon) config(down []string) string {
	var b strings.Builder
	if d.cfg.Workers != 0 {
		fmt.Fprintf(&b, "workers = %d\n", d.cfg.Workers)
	}
	fmt.Fprintf(&b, "spin = \"0s\"\n[log]\nlevel = \"debug\"\nformat = \"json\"\n[metrics]\nlisten = %q\n",
		"unix:"+d.path("metrics"))
	for i, g := range d.cfg.Guests {
		fmt.Fprintf(&b, "[[guest]]\nname = %q\nsocket_path = %q\ndoorbells = %q\nmac = %q\n", g, d.Socket(g),
			d.cfg.Doorbells, mac(i))
		if i < len(d.cfg.Keys) {
			fmt.Fprintln(&b, d.cfg.Keys[i])
		}
		fmt.Fprintf(&b, "max_qp = %d\nmax_cq = %d\nmax_mr = %d\nmax_pd = %d\nmax_srq = %d\n", MaxQP, MaxCQ, MaxMR, MaxPD, MaxSRQ)
		if slices.Contains(down, g) {
			b.WriteString("link = \"down\"\n")
		}
	}
	return b.String()
}

// awaitReady waits for READY=1 on the notification socket, sd_notify(3).
func (d *Daemon) awaitReady(ctx context.Context, notify *net.UnixConn) error {
	ready := make(chan error, 1)
	if err := notify.SetReadDeadline(time.Now().Add(readyLimit)); err != nil {
		return err
	}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := notify.Read(buf)
			if err != nil {
				ready <- fmt.Errorf("not ready after %v: %w", readyLimit, err)
				return
			}
			if strings.Contains("\n"+string(buf[:n])+"\n", "\nREADY=1\n") {
				ready <- nil
				return
			}
		}
	}()
	select {
	case err := <-ready:
		return err
	case <-d.done:
		return fmt.Errorf("it ended: %w; see its log", d.ended())
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ended says how the process ended.
func (d *Daemon) ended() error {
	if d.err == nil {
		return errors.New("exit status 0")
	}
	return d.err
}

// readLog copies the log to its file and tells OnLog of each line.
func (d *Daemon) readLog(r, log *os.File) {
	defer r.Close()
	defer log.Close()
	in := bufio.NewReader(io.TeeReader(r, log))
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 && d.cfg.OnLog != nil {
			if l, ok := parseLog(line); ok {
				d.cfg.OnLog(l)
			}
		}
		if err != nil {
			return
		}
	}
}

// parseLog reads a line in hclog's JSON format.
func parseLog(line []byte) (LogLine, bool) {
	var v map[string]any
	if json.Unmarshal(line, &v) != nil {
		return LogLine{}, false
	}
	l := LogLine{Values: v}
	l.Level, _ = v["@level"].(string)
	l.Message, _ = v["@message"].(string)
	l.Guest, _ = v["guest"].(string)
	return l, true
}

// PID is the number of the process.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Metrics scrapes the daemon.
func (d *Daemon) Metrics(ctx context.Context) (string, error) {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", d.path("metrics"))
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://pvrdmad/metrics", nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", fmt.Errorf("scrape pvrdmad: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// Stop sends SIGTERM and returns how long the daemon took to end. It is an error if that is too long, or if it had ended
// before, or ends with another status than 0.
func (d *Daemon) Stop() (time.Duration, error) {
	select {
	case <-d.done:
		return 0, fmt.Errorf("pvrdmad had ended: %w", d.ended())
	default:
	}
	start := time.Now()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	select {
	case <-d.done:
		return time.Since(start), d.err
	case <-time.After(stopLimit):
		return stopLimit, fmt.Errorf("pvrdmad did not end within %v of SIGTERM", stopLimit)
	}
}

// Close kills what still runs and removes the sockets.
func (d *Daemon) Close() {
	if d.cmd != nil {
		select {
		case <-d.done:
		default:
			_ = syscall.Kill(-d.cmd.Process.Pid, syscall.SIGKILL)
			<-d.done
		}
	}
	d.logs.Wait()
	if d.dir != "" {
		_ = os.RemoveAll(d.dir)
	}
}
