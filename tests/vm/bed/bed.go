// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pvrdmad/pvrdmad/tests/vm/harness"
	"github.com/pvrdmad/pvrdmad/tests/vm/harness/klog"
)

// Options say what to set up.
type Options struct {
	Images harness.Images
	// Rows are the rows of matrix.toml that guests boot instead of Images, in the guests' order. "" and those that are
	// not there mean Images.
	Rows []string
	// Binary is pvrdmad; Build makes one.
	Binary string
	// Guests is how many virtual machines run, 2 if 0.
	Guests int
	// CPUs is how many processors each has, 1 if 0: two machines then fit a host with two cores.
	CPUs int
	// Doorbells is "poll" or "trap", "poll" if empty.
	Doorbells string
	// Workers is how many threads of the daemon serve the guests, 0 for the default.
	Workers int
	// Keys are further lines of the guests' tables in the daemon's configuration, in the guests' order.
	Keys []string
	// NoPostedWrites makes QEMU wait for every register write, whatever the device's regions say.
	NoPostedWrites bool
	// Devices are further arguments of QEMU, before those of the device; Cmdline further words for the guests' kernels.
	Devices, Cmdline []string
	// LogDir keeps the logs of the daemon and of the guests.
	LogDir string
	// OnLog hears the daemon's log.
	OnLog func(LogLine)
}

// Bed is a daemon with its guests, booted and with the driver not loaded yet.
type Bed struct {
	Daemon *Daemon
	Guests []*harness.Guest
	opts   Options
	names  []string
	// images are what each guest boots.
	images []harness.Images
	net    *harness.Switch
}

// Make starts the daemon, then all guests at once.
func Make(ctx context.Context, opts Options) (*Bed, error) {
	opts = opts.withDefaults()
	b := &Bed{opts: opts}
	for i := range opts.Guests {
		b.names = append(b.names, string(rune('a'+i)))
	}
	if err := b.make(ctx); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

func (o Options) withDefaults() Options {
	if o.Guests == 0 {
		o.Guests = 2
	}
	if o.CPUs == 0 {
		o.CPUs = 1
	}
	if o.Doorbells == "" {
		o.Doorbells = "poll"
	}
	return o
}

func (b *Bed) make(ctx context.Context) (err error) {
	if err := os.MkdirAll(b.opts.LogDir, 0o755); err != nil {
		return err
	}
	if b.images, err = b.opts.guestImages(ctx); err != nil {
		return err
	}
	if b.Daemon, err = StartDaemon(ctx, DaemonConfig{
		Binary: b.opts.Binary, Guests: b.names, Keys: b.opts.Keys, Doorbells: b.opts.Doorbells, Workers: b.opts.Workers, LogDir: b.opts.LogDir, OnLog: b.opts.OnLog,
	}); err != nil {
		return err
	}
	if b.net, err = harness.NewSwitch(); err != nil {
		return err
	}
	b.Guests = make([]*harness.Guest, len(b.names))
	errs := make([]error, len(b.names))
	var boots sync.WaitGroup
	for i := range b.names {
		boots.Go(func() { errs[i] = b.Boot(ctx, i) })
	}
	boots.Wait()
	return errors.Join(errs...)
}

// guestImages returns what each guest boots.
func (o Options) guestImages(ctx context.Context) ([]harness.Images, error) {
	list := make([]harness.Images, o.Guests)
	known := map[string]harness.Images{"": o.Images, o.Images.Row: o.Images}
	for i := range list {
		row := ""
		if i < len(o.Rows) {
			row = o.Rows[i]
		}
		if _, ok := known[row]; !ok {
			images, err := harness.LoadImagesOf(ctx, row)
			if err != nil {
				return nil, err
			}
			known[row] = images
		}
		list[i] = known[row]
	}
	return list, nil
}

// Row is the row of matrix.toml that guest number i boots.
func (b *Bed) Row(i int) string { return b.images[i].Row }

// Boot boots guest number i (from 0) of the bed; the machine that had its place before is gone.
func (b *Bed) Boot(ctx context.Context, i int) error {
	device := harness.PvrdmaDevice(b.Daemon.Socket(b.names[i]), harness.PvrdmaOptions{
		NoPostedWrites: b.opts.NoPostedWrites,
	})
	g, err := harness.Boot(ctx, harness.Config{
		Name: b.names[i], Images: b.images[i], Number: i + 1, Switch: b.net, CPUs: b.opts.CPUs, LogDir: b.opts.LogDir,
		Devices: slices.Concat(b.opts.Devices, device), Cmdline: b.opts.Cmdline,
	})
	b.Guests[i] = g
	return err
}

// loadDriver loads the unmodified driver and waits until the port is up and its IPv4 address is in the GID table.
const loadDriver = `
modprobe vmw_pvrdma && modprobe ib_uverbs || exit 1
port=/sys/class/infiniband/vmw_pvrdma0/ports/1
for i in $(seq 100); do
	if grep -q ACTIVE $port/state 2>/dev/null && [ -e /dev/infiniband/uverbs0 ] &&
		grep -q '^0000:0000:0000:0000:0000:ffff:' $port/gids/0 $port/gids/1 2>/dev/null; then
		exit 0
	fi
	sleep 0.1
done
echo "no active port with an IPv4 address after 10 s" >&2
dmesg | tail -n 20 >&2
exit 1
`

// LoadDriver loads the driver in a guest and waits until a program can use the device.
func LoadDriver(ctx context.Context, g *harness.Guest) error {
	ctx, cancel := context.WithTimeout(ctx, harness.Slow*30*time.Second)
	defer cancel()
	if _, err := g.Output(ctx, loadDriver); err != nil {
		return fmt.Errorf("load vmw_pvrdma: %w", err)
	}
	return nil
}

// GIDIndex returns the index of a guest's IPv4 GID.
func GIDIndex(ctx context.Context, g *harness.Guest) (string, error) {
	out, err := g.Output(ctx, `cd /sys/class/infiniband/vmw_pvrdma0/ports/1/gids
grep -l '^0000:0000:0000:0000:0000:ffff:' 0 1 2 3 | head -n 1`)
	if err == nil && strings.TrimSpace(out) == "" {
		err = errors.New("no IPv4 address in the GID table")
	}
	return strings.TrimSpace(out), err
}

// Close ends the guests, then the daemon.
func (b *Bed) Close() {
	for _, g := range b.Guests {
		if g != nil {
			g.Close()
		}
	}
	if b.net != nil {
		b.net.Close()
	}
	if b.Daemon != nil {
		b.Daemon.Close()
	}
}

// Baseline returns the complaints of a guest's kernel that are known without our device.
func Baseline(row string) (klog.Baseline, error) {
	path, err := harness.TestData("baseline-" + row + ".txt")
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return klog.ReadBaseline(f)
}
