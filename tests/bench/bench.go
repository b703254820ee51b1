// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// bench is what all subjects are measured with.
type bench struct {
	options
	dir    string
	lock   *os.File
	daemon string
	cpus   []int
}

// newBench builds the daemon if it has to.
func newBench(o options) (_ *bench, err error) {
	if n := runtime.NumCPU(); n < 2 || o.guestCPU == o.cpu || o.guestCPU >= n || o.cpu >= n {
		return nil, fmt.Errorf("processors %d and %d of %d: guests and worker need one each", o.guestCPU, o.cpu, n)
	}
	b := &bench{options: o, daemon: o.daemon, cpus: []int{o.guestCPU, o.cpu}}
	if b.lock, err = alone(); err != nil {
		return nil, err
	}
	if b.dir, err = os.MkdirTemp("", "bench"); err != nil {
		return nil, err
	}
	if b.daemon != "" {
		return b, nil
	}
	b.daemon = filepath.Join(b.dir, "pvrdmad")
	build := exec.Command("go", "build", "-trimpath", "-o", b.daemon, "./cmd/pvrdmad")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return nil, errors.Join(fmt.Errorf("build the daemon: %w", err), b.close())
	}
	return b, nil
}

func (b *bench) close() error { return errors.Join(os.RemoveAll(b.dir), b.lock.Close()) }

// alone waits until nobody else on this machine measures: two at a time would measure each other.
func alone() (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(os.TempDir(), "pvrdmad-bench.lock"), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		return f, nil
	}
	fmt.Fprintln(os.Stderr, "bench: another one is running, waiting for its end")
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return f, nil
}

// world is the daemon and the processes around it.
type world struct {
	*bench
	d          *daemon
	guest, far *process
	// held says that the daemon stands still.
	held bool
}

// worldOptions say what a world is like.
type worldOptions struct {
	// Pairs is the number of pairs of guests, Queues how many connections there are between the guests of all pairs
	// together, Depth the length of their queues.
	Pairs, Queues, Depth int
	// Bytes is the size in bytes of the memory at each end, which all connections of a pair share.
	Bytes int
	// Scatter says that the guests' pages lie in no order.
	Scatter bool
	// Windows is the daemon's key of that name, "auto" if empty.
	Windows string
	// Sleeps says that the daemon's worker sleeps when it has nothing to do.
	Sleeps bool
	// Polling says that programs store a word into their doorbell page whenever they find no completion.
	Polling bool
}

// open starts a daemon and everything around it.
func (b *bench) open(o worldOptions) (w *world, err error) {
	w = &world{bench: b}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
			w = nil
		}
	}()
	if w.d, err = startDaemon(b, daemonOptions{Guests: 2 * o.Pairs, Sleeps: o.Sleeps, Windows: o.Windows}); err != nil {
		return w, err
	}
	if w.guest, err = startProcess(roleGuest, b.guestCPU); err != nil {
		return w, err
	}
	if w.far, err = startProcess(roleFar, b.cpu); err != nil {
		return w, err
	}
	return w, w.guest.call("boot", bootRequest{Sockets: w.d.sockets(), Options: o}, nil)
}

func (w *world) close() error {
	w.release()
	err := errors.Join(w.guest.stop(), w.far.stop())
	if w.d != nil {
		err = errors.Join(err, w.d.stop())
	}
	return err
}

// hold makes the daemon stand still, so that its worker's processor is free for a bound; release lets it go on.
func (w *world) hold() {
	if !w.held {
		w.d.signalStop()
		w.held = true
	}
}

func (w *world) release() {
	if w.held {
		w.d.signalContinue()
		w.held = false
	}
}

// subject runs an operation of the guests against the daemon.
func (w *world) subject(op string, arg any, result any) error {
	w.release()
	return w.guest.call(op, arg, result)
}

// against runs an operation of the guests while the other side runs one of its own, which the guests' ends.
func (w *world) against(op string, arg any, farOp string, farArg any, result any) error {
	w.hold()
	if err := w.far.begin(farOp, farArg); err != nil {
		return err
	}
	return errors.Join(w.guest.call(op, arg, result), w.far.end(nil))
}
