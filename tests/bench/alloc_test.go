// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"github.com/pvrdmad/pvrdmad/hostverbs"
	"github.com/pvrdmad/pvrdmad/hostverbs/soft"
	"github.com/pvrdmad/pvrdmad/pvrdma"
	"github.com/pvrdmad/pvrdmad/pvrdma/pcifn"
	"github.com/pvrdmad/pvrdmad/tests/bench/poster"
	"github.com/pvrdmad/pvrdmad/vfiouser"
)

// serveHere serves guests in this process, as the daemon serves them, and returns their sockets.
func serveHere(t testing.TB, guests int) []string {
	t.Helper()
	engine, domain := soft.New(nil), guestmem.NewDomain()
	worker, err := pvrdma.NewWorker(pvrdma.WorkerConfig{Provider: engine, Domain: domain, Spin: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	t.Cleanup(func() {
		stop()
		serving.Wait()
		if err := worker.Close(); err != nil {
			t.Error(err)
		}
	})
	var sockets []string
	for i := range guests {
		path := filepath.Join(t.TempDir(), "s")
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		f, err := pcifn.New(pcifn.Config{
			Device: pvrdma.Config{
				Name: path, MAC: [6]byte{2, 0, 0, 0, 0, byte(i + 1)}, GIDType: hostverbs.GIDTypeRoCEv2, MaxUAR: 64,
			},
			Doorbells: pcifn.Poll, Worker: worker, Domain: domain,
		})
		if err != nil {
			t.Fatal(err)
		}
		server := vfiouser.NewServer(l, vfiouser.Config{Open: f.Open})
		serving.Go(func() {
			if err := server.Serve(ctx); err != nil {
				t.Error(err)
			}
		})
		sockets = append(sockets, path)
	}
	return sockets
}

// bootHere boots a pair of guests in this process.
func bootHere(t testing.TB, o worldOptions) *child {
	t.Helper()
	c := &child{}
	if _, err := bootGuests(c, bootRequest{Sockets: serveHere(t, 2*o.Pairs), Options: o}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, p := range c.guests {
			for _, e := range []*end{p.a, p.b} {
				if err := e.m.PowerOff(); err != nil {
					t.Error(err)
				}
			}
		}
	})
	return c
}

// maxMallocs is how many allocations a million messages may cause: the runtime makes some of its own.
const maxMallocs = 10

func TestAMillionMessagesAllocateNothing(t *testing.T) {
	for name, q := range map[string]flowRequest{
		"WRITE":       {Size: smallSize, Slots: smallSlots, Window: smallWindow, Count: 1_000_000},
		"SEND":        {Size: smallSize, Slots: smallSlots, Window: smallWindow, Count: 100_000, Op: poster.SEND},
		"READ":        {Size: smallSize, Slots: smallSlots, Window: smallWindow, Count: 100_000, Op: poster.READ},
		"4 KiB WRITE": {Size: 4096, Slots: 4, Window: smallWindow, Count: 100_000},
	} {
		messages := q.Count / raceSlowdown
		t.Run(name, func(t *testing.T) {
			c := bootHere(t, worldOptions{Pairs: 1, Queues: 1, Depth: smallDepth, Bytes: 1 << 16, Scatter: true})
			f, _, _, err := c.flow(q)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Count(messages / 10); err != nil { // lists and queues have their size now
				t.Fatal(err)
			}
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if err := f.Count(messages); err != nil {
				t.Fatal(err)
			}
			runtime.ReadMemStats(&after)
			if n := after.Mallocs - before.Mallocs; n > maxMallocs {
				t.Errorf("%d messages allocate %d times, want %d at most", messages, n, maxMallocs)
			} else {
				t.Logf("%d messages allocate %d times", messages, n)
			}
		})
	}
}
