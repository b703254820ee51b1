// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/hostverbs/soft"
	"github.com/pvrdmad/pvrdmad/internal/config"
	"github.com/pvrdmad/pvrdmad/internal/systemd"
	"github.com/pvrdmad/pvrdmad/internal/telemetry"
	"github.com/pvrdmad/pvrdmad/pvrdma"
	"github.com/pvrdmad/pvrdmad/pvrdma/pcifn"
	"github.com/pvrdmad/pvrdmad/vfiouser"
)

// autoSpin is how long a worker polls before it sleeps where the machine has cores to spare: longer than a guest takes to
// answer a message.
const autoSpin = 200 * time.Microsecond

// heapFloor is how much the heap grows at least before the runtime collects garbage, bytes. The daemon's own heap is a few
// megabytes, so that every twentieth page of metrics would start a collection, and wait for it among threads that poll. It
// is memory that nobody touches, and so none of the machine's.
const heapFloor = 32 << 20

// daemon is everything that runs, wired together.
type daemon struct {
	// cfg is what the daemon was started with.
	cfg     *config.Config
	floor   []byte
	log     *telemetry.Log
	tel     *telemetry.Telemetry
	engine  *soft.Engine
	workers []*pvrdma.Worker
	guests  []*guest
	metrics net.Listener
	// metricsAddr is where metrics are served, with the port that the kernel chose.
	metricsAddr string
	alive       *telemetry.Probe
	observer    *faultObserver

	mu      sync.Mutex
	missing map[string]string // guarded by mu: what keeps the daemon from being ready, by whom it is missing
}

// guest is one guest's socket and the device behind it.
type guest struct {
	name     string
	listener *net.UnixListener
	server   *vfiouser.Server
	observer *telemetry.Guest
	function *pcifn.Function
	// cfg is what the guest was made with, but for its link. Written by reload.
	cfg config.Guest
}

// faultObserver has the guest reset whose memory failed under the engine, and counts and logs it.
type faultObserver struct {
	// guests and workers are written before the engine has any context: by name, who counts for a guest and who serves it.
	guests  map[string]*telemetry.Guest
	workers map[string]*pvrdma.Worker
}

// MemoryFault implements soft.Observer.
func (o *faultObserver) MemoryFault(err *guestmem.FaultError) {
	if g := o.guests[err.Owner]; g != nil {
		g.Observe(pvrdma.GuestError{Guest: pvrdma.Guest{Name: err.Owner}, Reason: pvrdma.BadMemory, Err: err})
	}
	if w := o.workers[err.Owner]; w != nil {
		w.MemoryFault(err)
	}
}

// openDaemon opens the engine and all sockets. If one cannot be opened, all are closed, and the error names it.
func openDaemon(c *config.Config, fd int, log *telemetry.Log) (_ *daemon, err error) {
	d := &daemon{
		cfg: c, floor: make([]byte, heapFloor), log: log, tel: telemetry.New(log, buildInfo()), missing: map[string]string{"daemon": "starting"},
		observer: &faultObserver{guests: map[string]*telemetry.Guest{}, workers: map[string]*pvrdma.Worker{}},
	}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	workers := int(c.Workers)
	spin := spinBudget(c.Spin, runtime.GOMAXPROCS(0), workers, len(c.Guests))
	// A worker's thread is busy for long; goroutines that serve sockets must not wait for it.
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + workers)
	d.engine = soft.New(d.observer)
	d.tel.AddEngine(d.engine.Counters)
	domain := guestmem.NewDomainWith(windows(c.Windows))
	for i := range workers {
		var w *pvrdma.Worker
		if w, err = pvrdma.NewWorker(pvrdma.WorkerConfig{
			Provider: d.engine, Domain: domain, Spin: spin, Index: i,
		}); err != nil {
			return nil, unavailable("engine %s: %w", engineName, err)
		}
		d.workers = append(d.workers, w)
	}
	d.alive = telemetry.NewProbe("a worker", d.engine.Barrier)
	for i := range c.Guests {
		if err = d.openGuest(&c.Guests[i], fd, domain, d.workers[i%workers]); err != nil {
			return nil, err
		}
	}
	if d.metrics, d.metricsAddr, err = listenMetrics(c.Metrics.Listen); err != nil {
		return nil, err
	}
	return d, nil
}

// spinBudget is how long an idle worker polls. On its own it polls only if a core is left over when all workers and a
// virtual CPU of each guest are busy.
func spinBudget(s config.Spin, cores, workers, guests int) time.Duration {
	switch {
	case !s.Auto:
		return time.Duration(s.Budget)
	case cores > workers+guests:
		return autoSpin
	default:
		return 0
	}
}

// windows is how the engine's memory regions become contiguous.
func windows(w config.Windows) guestmem.Windows {
	policy := guestmem.DefaultWindows()
	switch w {
	case config.WindowsOff:
		return guestmem.Windows{}
	case config.WindowsAlways:
		policy.MinPages, policy.MaxRun = 1, guestmem.MaxPinPages
	}
	return policy
}

func (d *daemon) openGuest(g *config.Guest, fd int, domain *guestmem.Domain, worker *pvrdma.Worker) error {
	l, err := listenGuest(g, fd)
	if err != nil {
		return err
	}
	entry := &guest{name: string(g.Name), listener: l, cfg: *g}
	d.guests = append(d.guests, entry)
	// The function and its observer need each other: counters are read long after both are there.
	var function *pcifn.Function
	entry.observer = d.tel.AddGuest(telemetry.GuestInfo{
		Name: entry.name, Engine: engineName, Doorbells: string(g.Doorbells), DeviceVersion: g.DeviceVersion, RoCE: g.RoCE,
		Counters: func() pvrdma.Counters { return function.Counters() },
		Objects:  func() pvrdma.Objects { return function.Objects() },
	})
	d.observer.guests[entry.name], d.observer.workers[entry.name] = entry.observer, worker
	function, err = pcifn.New(pcifn.Config{
		Device: deviceConfig(g), Doorbells: doorbellMode(g.Doorbells), Worker: worker, Domain: domain, Observer: entry.observer,
	})
	if err != nil {
		return unavailable("guest %q: %w", g.Name, err)
	}
	entry.function = function
	entry.server = vfiouser.NewServer(l, vfiouser.Config{Open: function.Open, Observer: entry.observer.Door()})
	d.log.Info("guest can attach", "guest", entry.name, "socket", g.SocketPath, "mac", g.MAC.String(),
		"doorbells", string(g.Doorbells))
	return nil
}

func doorbellMode(d config.Doorbells) pcifn.DoorbellMode {
	if d == config.DoorbellsTrap {
		return pcifn.Trap
	}
	return pcifn.Poll
}

func deviceConfig(g *config.Guest) pvrdma.Config {
	c := pvrdma.Config{
		Name: string(g.Name), MAC: g.MAC, Version: g.DeviceVersion, GIDType: hostverbs.GIDTypeRoCEv2, MaxUAR: g.MaxUAR,
		LinkDown: g.Link == config.LinkDown,
		Limits: hostverbs.Limits{
			MaxQP: int(g.MaxQP), MaxCQ: int(g.MaxCQ), MaxMR: int(g.MaxMR), MaxPD: int(g.MaxPD),
			MaxSRQ: int(g.MaxSRQ),
		},
		// The device takes 0 for its default; the shortest grace is the nearest to none.
		CQGrace: max(time.Duration(g.CQGrace), time.Nanosecond),
	}
	if g.RoCE == 1 {
		c.GIDType = hostverbs.GIDTypeRoCEv1
	}
	for _, gid := range g.GIDs {
		c.GIDs = append(c.GIDs, hostverbs.GID(gid))
	}
	return c
}

// run serves until ctx ends and every guest is let go.
func (d *daemon) run(ctx context.Context, reload *reloader) {
	var wg sync.WaitGroup
	for _, g := range d.guests {
		wg.Go(func() {
			if err := g.server.Serve(ctx); err != nil {
				// The other guests go on; readiness and the log say which one is without a socket.
				d.setMissing(g.name, err.Error())
				d.log.Error("guest cannot attach any more, restart the daemon", "guest", g.name, "error", err)
			}
		})
	}
	if d.metrics != nil {
		wg.Go(func() {
			health := telemetry.Health{Ready: d.ready, Healthy: d.alive.Check}
			if err := d.tel.Serve(ctx, d.metrics, health); err != nil {
				d.log.Error("no metrics any more, restart the daemon", "error", err)
			}
		})
		d.log.Info("metrics are served", "listen", d.metricsAddr)
	}
	wg.Go(func() {
		err := systemd.Watchdog(ctx, d.alive.Check, func(err error) { d.log.Error("watchdog", "error", err) })
		d.warn(err)
	})
	wg.Go(func() { reload.run(ctx, d) })
	d.setMissing("daemon", "")
	d.warn(systemd.Ready(fmt.Sprintf("serving %d guests with the %s engine", len(d.guests), engineName)))
	d.log.Info("ready", "guests", len(d.guests), "pid", os.Getpid())

	<-ctx.Done()
	d.setMissing("daemon", "stopping")
	d.log.Info("stopping, a second signal ends at once")
	d.warn(systemd.Stopping("letting guests go"))
	wg.Wait()
	d.close()
}

// close closes what is open, guests first.
func (d *daemon) close() {
	for _, g := range d.guests {
		_ = g.listener.Close()
	}
	if d.metrics != nil {
		_ = d.metrics.Close()
	}
	for _, w := range d.workers {
		d.warn(w.Close())
	}
	if d.engine != nil {
		d.warn(d.engine.Close())
	}
}

func (d *daemon) warn(err error) {
	if err != nil {
		d.log.Warn("goes on", "error", err)
	}
}

// setMissing notes what who lacks; nothing if what is empty.
func (d *daemon) setMissing(who, what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if what == "" {
		delete(d.missing, who)
		return
	}
	d.missing[who] = what
}

// ready returns nil when all guests can attach.
func (d *daemon) ready() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for who, what := range d.missing {
		errs = append(errs, fmt.Errorf("%s: %s", who, what))
	}
	return errors.Join(errs...)
}
