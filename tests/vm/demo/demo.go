// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/bed"
	"github.com/pvrdmad/pvrdmad/tests/vm/harness"
	"golang.org/x/sys/unix"
)

// demo is the state that the stages share.
type demo struct {
	screen   *screen
	binary   string
	messages int
	logs     string
	lock     *os.File // held until the end of the process
	images   harness.Images
	bed      *bed.Bed
	result   result
}

func (d *demo) close() {
	if d.bed != nil {
		d.bed.Close()
	}
}

func (d *demo) loadImages(ctx context.Context) (err error) {
	if err := d.takeLogs(); err != nil {
		return err
	}
	if d.images, err = harness.LoadImages(ctx); err != nil {
		return err
	}
	if d.binary == "" {
		d.binary, err = bed.Build(ctx, d.logs)
	}
	return err
}

// takeLogs makes the directory of the logs and takes it for this run alone, without what guests of an earlier one left.
func (d *demo) takeLogs() (err error) {
	if err := os.MkdirAll(d.logs, 0o755); err != nil {
		return err
	}
	if d.lock, err = os.OpenFile(filepath.Join(d.logs, "lock"), os.O_CREATE|os.O_RDWR, 0o644); err != nil {
		return err
	}
	if err := unix.Flock(int(d.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("another demonstration writes its logs to %s; wait for it, or give -logs DIR: %w", d.logs, err)
	}
	for _, guest := range []string{"a", "b"} {
		if err := os.RemoveAll(filepath.Join(d.logs, guest)); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) boot(ctx context.Context) (err error) {
	d.bed, err = bed.Make(ctx, bed.Options{Images: d.images, Binary: d.binary, LogDir: d.logs, OnLog: d.onLog})
	if err != nil {
		return err
	}
	facts, err := d.bed.Guests[0].Facts(ctx)
	if err != nil {
		return err
	}
	d.screen.note("%s", facts.QEMU)
	d.screen.note("guests: Debian %s, Linux %s, rdma-core %s", facts.Debian, facts.Kernel, facts.Packages["rdma-core"])
	return nil
}

// onLog shows the lines of the daemon's log that tell the story.
func (d *demo) onLog(l bed.LogLine) {
	switch l.Message {
	case "virtual machine attached", "virtual machine detached", "driver switched the device on":
		d.screen.note("guest %s: %s", l.Guest, l.Message)
	case "queue pair changed state":
		if l.Values["to"] == "RTR" && l.Values["dest_qpn"] != nil {
			d.screen.note("guest %s: queue pair %v connects to %v of %v", l.Guest, l.Values["qpn"], l.Values["dest_qpn"],
				l.Values["dgid"])
		}
	}
	if l.Level == "error" {
		d.screen.note("pvrdmad: %s: %v", l.Message, l.Values["error"])
	}
}

// both runs fn for both guests at the same time.
func (d *demo) both(fn func(i int, g *harness.Guest) error) error {
	var errs [2]error
	var wg sync.WaitGroup
	for i, g := range d.bed.Guests {
		wg.Go(func() { errs[i] = fn(i, g) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) loadDrivers(ctx context.Context) error {
	return d.both(func(_ int, g *harness.Guest) error { return bed.LoadDriver(ctx, g) })
}

// pair runs a program as server in guest a and as its client in guest b, and returns what the client printed.
func (d *demo) pair(ctx context.Context, limit time.Duration, server, client string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s, err := d.bed.Guests[0].Start(ctx, server)
	if err != nil {
		return "", err
	}
	out, err := d.bed.Guests[1].Output(ctx, client)
	if err != nil {
		_ = s.Kill()
		return "", fmt.Errorf("client: %w", err)
	}
	r, err := s.Wait(ctx)
	if err == nil && r.Status != 0 {
		err = fmt.Errorf("exit status %d: %s", r.Status, strings.TrimSpace(r.Stdout+r.Stderr))
	}
	if err != nil {
		return "", fmt.Errorf("server: %w", err)
	}
	return out, nil
}

func (d *demo) pingpong(ctx context.Context) error {
	gid, err := bed.GIDIndex(ctx, d.bed.Guests[0])
	if err != nil {
		return err
	}
	gid2, err := bed.GIDIndex(ctx, d.bed.Guests[1])
	if err != nil {
		return err
	}
	// ibv_rc_pingpong takes one connection, so the client retries instead of looking whether the server listens.
	out, err := d.pair(ctx, time.Minute, "ibv_rc_pingpong -n 1000 -s 4096 -g "+gid, fmt.Sprintf(
		"for i in $(seq 20); do ibv_rc_pingpong -n 1000 -s 4096 -g %s %s && exit; sleep 0.3; done; exit 1",
		gid2, harness.Address(1)))
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		if strings.Contains(line, "usec/iter") {
			d.screen.note("%s", strings.TrimSpace(line))
		}
	}
	return nil
}

func (d *demo) payload(ctx context.Context) error {
	watch, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { d.watchTraffic(watch) })
	out, err := d.pair(ctx, 2*time.Minute, "pvcheck",
		fmt.Sprintf("for i in $(seq 20); do pvcheck -n %d %s && exit; s=$?; [ $s -eq 2 ] || exit $s; sleep 0.3; done; exit 1",
			d.messages, harness.Address(1)))
	stop()
	watching.Wait()
	if err != nil {
		return err
	}
	if t, err := d.traffic(ctx); err == nil {
		d.screen.picture(t)
	}
	d.result, err = parseResult(out)
	return err
}

// watchTraffic draws the picture every second.
func (d *demo) watchTraffic(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if t, err := d.traffic(ctx); err == nil {
				d.screen.picture(t)
			}
		}
	}
}

func (d *demo) kernelLogs(ctx context.Context) error {
	known, err := bed.Baseline(d.images.Row)
	if err != nil {
		return err
	}
	return d.both(func(_ int, g *harness.Guest) error {
		log, err := g.KernelLog(ctx)
		if err != nil {
			return err
		}
		if wrong := log.Check(known); len(wrong) != 0 {
			return fmt.Errorf("kernel log: %s", strings.Join(wrong, "\n"))
		}
		return nil
	})
}

func (d *demo) stop(context.Context) error {
	took, err := d.bed.Daemon.Stop()
	if err == nil {
		d.screen.note("pvrdmad ended after %.2f s with both guests attached", took.Seconds())
	}
	return err
}
