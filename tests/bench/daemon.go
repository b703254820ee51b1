// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	readyTime = 10 * time.Second
	stopTime  = 5 * time.Second
	// workerName is the name that the daemon gives the thread of its first worker.
	workerName = "pvrdma-worker0"
)

// daemon is a running pvrdmad, its worker alone on its processor.
type daemon struct {
	dir    string
	guests int
	cmd    *exec.Cmd
	log    bytes.Buffer
	done   chan error
	// worker is the number of the worker's thread.
	worker int
}

// daemonOptions say what a daemon is like.
type daemonOptions struct {
	// Guests is how many it serves.
	Guests int
	// Sleeps says that its worker sleeps when it has nothing to do, and runs on any of the processors; otherwise it polls
	// on its own.
	Sleeps bool
	// Windows is the key of that name, "auto" if empty.
	Windows string
	// Metrics is the socket on which it serves metrics; "" for none.
	Metrics string
}

// startDaemon starts a daemon.
func startDaemon(b *bench, o daemonOptions) (*daemon, error) {
	dir, err := os.MkdirTemp(b.dir, "d")
	if err != nil {
		return nil, err
	}
	d := &daemon{dir: dir, guests: o.Guests, done: make(chan error, 1)}
	spin, metrics := "1s", "off"
	if o.Sleeps {
		spin = "0s"
	}
	if o.Metrics != "" {
		metrics = "unix:" + o.Metrics
	}
	text := fmt.Sprintf("spin = %q\nwindows = %q\n[log]\nlevel = \"warn\"\n[metrics]\nlisten = %q\n", spin,
		cmp.Or(o.Windows, "auto"), metrics)
	for i, s := range d.sockets() {
		text += fmt.Sprintf("[[guest]]\nname = \"g%d\"\nsocket_path = %q\nmac = \"02:00:00:00:00:%02x\"\n", i, s, i+1)
	}
	config := filepath.Join(dir, "pvrdmad.toml")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	d.cmd = exec.Command(b.daemon, "serve", "--config", config)
	d.cmd.Stdout, d.cmd.Stderr = &d.log, &d.log
	if err := startOn(d.cmd, b.cpus...); err != nil {
		return nil, fmt.Errorf("start the daemon: %w", err)
	}
	go func() { d.done <- d.cmd.Wait() }()
	err = d.awaitSockets()
	if err == nil && !o.Sleeps {
		err = d.pinWorker(b.cpu)
	}
	if err != nil {
		return nil, errors.Join(err, d.stop())
	}
	return d, nil
}

func (d *daemon) sockets() []string {
	var all []string
	for i := range d.guests {
		all = append(all, filepath.Join(d.dir, fmt.Sprintf("g%d.sock", i)))
	}
	return all
}

func (d *daemon) awaitSockets() error {
	deadline := time.Now().Add(readyTime)
	for _, s := range d.sockets() {
		for {
			conn, err := net.Dial("unix", s)
			if err == nil {
				conn.Close()
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("the daemon does not serve: %w", err)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	return nil
}

// pinWorker finds the worker's thread by its name and keeps it on one processor. The daemon's other threads may run
// where they want: they have nothing to do while it is measured.
func (d *daemon) pinWorker(cpu int) error {
	tasks := fmt.Sprintf("/proc/%d/task", d.cmd.Process.Pid)
	entries, err := os.ReadDir(tasks)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name, err := os.ReadFile(filepath.Join(tasks, e.Name(), "comm"))
		if err != nil || strings.TrimSpace(string(name)) != workerName {
			continue
		}
		if d.worker, err = strconv.Atoi(e.Name()); err != nil {
			return err
		}
		var set unix.CPUSet
		set.Set(cpu)
		if err := unix.SchedSetaffinity(d.worker, &set); err != nil {
			return fmt.Errorf("pin the worker's thread: %w", err)
		}
		return nil
	}
	return fmt.Errorf("the daemon has no thread named %s", workerName)
}

// pinOthers keeps the daemon's other threads on one processor: those that are there, and those that they start.
func (d *daemon) pinOthers(cpu int) error {
	tasks := fmt.Sprintf("/proc/%d/task", d.cmd.Process.Pid)
	entries, err := os.ReadDir(tasks)
	if err != nil {
		return err
	}
	var set unix.CPUSet
	set.Set(cpu)
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil || id == d.worker {
			continue
		}
		if err := unix.SchedSetaffinity(id, &set); err != nil {
			return fmt.Errorf("pin thread %d of the daemon: %w", id, err)
		}
	}
	return nil
}

// signalStop makes the daemon stand still and returns when it does.
func (d *daemon) signalStop() {
	_ = unix.Kill(d.cmd.Process.Pid, unix.SIGSTOP)
	stat := fmt.Sprintf("/proc/%d/task/%d/stat", d.cmd.Process.Pid, d.worker)
	for range 1000 {
		b, err := os.ReadFile(stat)
		if err != nil || strings.Contains(string(b), ") T ") {
			return
		}
		time.Sleep(100 * time.Microsecond)
	}
}

func (d *daemon) signalContinue() { _ = unix.Kill(d.cmd.Process.Pid, unix.SIGCONT) }

// stop ends the daemon, which must leave in time and with success.
func (d *daemon) stop() error {
	_ = d.cmd.Process.Signal(unix.SIGTERM)
	var err error
	select {
	case err = <-d.done:
	case <-time.After(stopTime):
		_ = d.cmd.Process.Kill()
		<-d.done
		err = fmt.Errorf("it did not end within %v of SIGTERM", stopTime)
	}
	if err != nil {
		return fmt.Errorf("the daemon: %w; its log:\n%s", err, d.log.String())
	}
	return nil
}
