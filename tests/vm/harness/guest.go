// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/harness/agentproto"
	"github.com/pvrdmad/pvrdmad/tests/vm/harness/qmp"
)

// Files of a guest: sockets in its run directory, logs in its log directory.
const (
	qmpSocket   = "qmp"
	agentSocket = "agent"
	serialLog   = "serial.log"
	qemuLog     = "qemu.log"
	agentLog    = "agent.log"
	kernelLog   = "kernel.log"
)

// Guest is a virtual machine. Its methods may be called from several goroutines, but for Close.
type Guest struct {
	config  Config
	run     string // directory of the sockets
	logs    string
	qemu    *process
	monitor *qmp.Client
	link    *link
	files   []*os.File
	// qemuSaid is the length of QEMU's log before this one wrote to it: that of a guest of the same name may be there.
	qemuSaid int
	watch    sync.WaitGroup
	stop     chan struct{} // closed by Close
	ending   sync.Once
}

// Boot starts a guest and waits until it is ready. It must be closed.
func Boot(ctx context.Context, config Config) (*Guest, error) {
	g, err := Launch(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := g.WaitReady(ctx); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// Launch starts a guest and does not wait for its kernel. It must be closed.
func Launch(ctx context.Context, config Config) (*Guest, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	g := &Guest{config: config, stop: make(chan struct{})}
	if err := g.launch(ctx); err != nil {
		g.Close()
		return nil, fmt.Errorf("vm lane (row %s): guest %s: %w", config.Images.Row, config.Name, err)
	}
	return g, nil
}

func (g *Guest) launch(ctx context.Context) error {
	var err error
	if g.run, err = os.MkdirTemp("", "pvrdmad-vm"); err != nil {
		return fmt.Errorf("make run directory: %w", err)
	}
	g.logs = g.run
	if g.config.LogDir != "" {
		g.logs = filepath.Join(g.config.LogDir, g.config.Name)
		if err := os.MkdirAll(g.logs, 0o755); err != nil {
			return fmt.Errorf("make log directory: %w", err)
		}
	}
	out, err := g.openLog(qemuLog)
	if err != nil {
		return err
	}
	if before, err := out.Stat(); err == nil {
		g.qemuSaid = int(before.Size())
	}
	transcript, err := g.openLog(agentLog)
	if err != nil {
		return err
	}
	if g.qemu, err = startProcess(g.config.Images.QEMU, g.config.qemuArgs(g.run, g.logs), out); err != nil {
		return err
	}
	if g.link, err = g.connect(ctx, transcript); err != nil {
		return err
	}
	g.watch.Go(g.watchQEMU)
	g.watch.Go(g.watchConsole)
	return nil
}

func (g *Guest) openLog(name string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(g.logs, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	g.files = append(g.files, file)
	return file, nil
}

// startLimit is how long QEMU may take to open its monitor, which it does before it builds the machine.
const startLimit = Slow * 10 * time.Second

func (g *Guest) connect(ctx context.Context, transcript *os.File) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		conn, err := net.Dial("unix", filepath.Join(g.run, qmpSocket))
		if err == nil {
			return g.connected(conn, transcript)
		}
		select {
		case <-g.qemu.done:
			return nil, g.qemuEnded()
		case <-ctx.Done():
			return nil, fmt.Errorf("QEMU opens no monitor socket: %w", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// connected speaks first to the monitor: it answers when the machine is built, or QEMU has ended because it cannot be.
func (g *Guest) connected(conn net.Conn, transcript *os.File) (*link, error) {
	var l *link
	linked := make(chan struct{})
	defer close(linked)
	monitor, err := qmp.NewClient(conn, func(event string) {
		<-linked
		if event == "RESET" && l != nil {
			l.reset()
		}
	})
	if err == nil {
		g.monitor = monitor
		l, err = newLink(filepath.Join(g.run, agentSocket), transcript)
	}
	if err != nil {
		select {
		case <-g.qemu.done:
			return nil, g.qemuEnded()
		case <-time.After(time.Second): // it may be about to end
			return nil, err
		}
	}
	return l, nil
}

// qemuEnded explains the end of QEMU by its own words. Its process has ended.
func (g *Guest) qemuEnded() error {
	text, _ := os.ReadFile(filepath.Join(g.logs, qemuLog))
	text = text[min(g.qemuSaid, len(text)):]
	how := "without an error"
	if g.qemu.err != nil {
		how = "with " + g.qemu.err.Error()
	}
	said := "said nothing"
	if text := strings.TrimSpace(string(text)); text != "" {
		said = "said: " + text
	}
	return fmt.Errorf("QEMU (%s) ended %s and %s", g.config.Images.QEMU, how, said)
}

func (g *Guest) watchQEMU() {
	<-g.qemu.done
	g.link.close(g.qemuEnded())
}

// watchConsole looks for the end of the guest's kernel, which would otherwise only show as silence.
func (g *Guest) watchConsole() {
	marks := [][]byte{[]byte("Kernel panic - not syncing"), []byte("pvrdmad-guest: ")}
	const pause = 200 * time.Millisecond
	seen := 0
	for {
		text, err := os.ReadFile(filepath.Join(g.logs, serialLog))
		if err == nil {
			seen = min(seen, len(text)) // somebody else may have begun the file anew
			for _, mark := range marks {
				if at := bytes.Index(text[seen:], mark); at >= 0 {
					line, _, _ := bytes.Cut(text[seen+at:], []byte("\n"))
					g.link.end(g.link.current(), fmt.Errorf("guest died: %s", bytes.TrimSpace(line)))
				}
			}
			seen = bytes.LastIndexByte(text, '\n') + 1
		}
		select {
		case <-g.stop:
			return
		case <-g.qemu.done:
			return
		case <-time.After(pause):
		}
	}
}

// WaitReady waits until the agent of the guest's current boot answers, at most ReadyLimit.
func (g *Guest) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, ReadyLimit, fmt.Errorf("not ready after %s", ReadyLimit))
	defer cancel()
	err := ErrReset
	for tries := 0; errors.Is(err, ErrReset); { // firmware answers a reset with one of its own
		b := g.link.current()
		if err = g.waitBoot(ctx, b); err == nil && b.clockRunsAhead() && tries < clockTries {
			tries++
			err = cmp.Or(g.restart(ctx, b), ErrReset)
		}
	}
	if err != nil {
		return fmt.Errorf("guest %s: boot: %w (console: %s)", g.config.Name, err, filepath.Join(g.logs, serialLog))
	}
	return nil
}

// clockTries is how often a guest is reset because its clock runs ahead.
const clockTries = 3

// clockRunsAhead tells whether the guest's clock has counted more time since it started than has passed. A kernel measures
// its processor's clock when it starts, and gets it wrong by a factor of ten when the host takes the processor away just
// then: all time limits in the guest are wrong from then on.
func (b *boot) clockRunsAhead() bool {
	const slack = 5 // seconds: a guest runs before we are connected to it
	return b.hello.Uptime > slack+b.took.Seconds()
}

func (g *Guest) waitBoot(ctx context.Context, b *boot) error {
	select {
	case <-b.ready:
		if len(b.hello.Errors) > 0 {
			return errors.New(strings.Join(b.hello.Errors, "; "))
		}
	case <-b.over:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-b.over:
	default:
		return nil
	}
	select {
	case <-g.qemu.done:
		return g.qemuEnded()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(5 * time.Millisecond): // the next life begins right after
		return b.err
	}
}

// Hello is what the agent said of itself in the current boot; it is zero before the guest is ready.
func (g *Guest) Hello() agentproto.Hello {
	b := g.link.current()
	select {
	case <-b.ready:
		return b.hello
	default:
		return agentproto.Hello{}
	}
}

// Monitor is the connection to QEMU.
func (g *Guest) Monitor() *qmp.Client { return g.monitor }

// Reset resets the machine, as its reset button would, and waits until it is ready again. Scripts that run end with
// ErrReset.
func (g *Guest) Reset(ctx context.Context) error {
	if err := g.restart(ctx, g.link.current()); err != nil {
		return fmt.Errorf("guest %s: reset: %w", g.config.Name, err)
	}
	return g.WaitReady(ctx)
}

// restart ends the life b of the machine.
func (g *Guest) restart(ctx context.Context, b *boot) error {
	if err := g.monitor.Execute(ctx, "system_reset", nil, nil); err != nil {
		return err
	}
	select {
	case <-b.over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Quit asks QEMU to end, as its quit command does, and waits until it has.
func (g *Guest) Quit(ctx context.Context) error {
	if err := g.monitor.Execute(ctx, "quit", nil, nil); err != nil && !errors.Is(err, qmp.ErrClosed) {
		return fmt.Errorf("guest %s: quit: %w", g.config.Name, err)
	}
	select {
	case <-g.qemu.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("guest %s: quit: QEMU lives on: %w", g.config.Name, context.Cause(ctx))
	}
}

// Kill ends QEMU with SIGKILL and waits until it has ended.
func (g *Guest) Kill() { g.qemu.kill() }

// PID is the number of the QEMU process, also after its end.
func (g *Guest) PID() int { return g.qemu.cmd.Process.Pid }

// Exited is closed when QEMU has ended.
func (g *Guest) Exited() <-chan struct{} { return g.qemu.done }

// Close ends the guest if it still runs, and frees all it holds on the host. Logs stay if the configuration names a
// directory for them.
func (g *Guest) Close() {
	g.ending.Do(func() {
		close(g.stop)
		if g.qemu != nil {
			g.qemu.kill()
		}
		g.watch.Wait()
		if g.monitor != nil {
			g.monitor.Close()
		}
		for _, file := range g.files {
			_ = file.Close()
		}
		if g.run != "" {
			_ = os.RemoveAll(g.run)
		}
	})
}
