// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	idleGuests = 64
	// maxIdle is how much of a processor they may cost, per cent.
	maxIdle = 1
	// idleTurn is how long the daemon is watched in a round.
	idleTurn = 500 * time.Millisecond
)

// measureIdle measures what the daemon costs while 64 guests are attached, each with a program that has a doorbell page
// and a queue pair, and none does anything.
func measureIdle(b *bench) ([]result, error) {
	w, err := b.open(worldOptions{
		Pairs: idleGuests / 2, Queues: idleGuests / 2, Depth: smallDepth, Bytes: smallSize * smallSlots, Sleeps: true,
	})
	if err != nil {
		return nil, err
	}
	defer w.close()
	time.Sleep(2 * idleTurn) // the last command has been forgotten
	var costs []float64
	for range b.rounds {
		before, err := w.d.processorTime()
		if err != nil {
			return nil, err
		}
		began := time.Now()
		time.Sleep(idleTurn)
		after, err := w.d.processorTime()
		if err != nil {
			return nil, err
		}
		costs = append(costs, 100*float64(after-before)/float64(time.Since(began)))
	}
	return []result{bounded(fmt.Sprintf("%d idle guests, of a processor", idleGuests), "%", costs, maxIdle)}, nil
}

// bounded is a result without a bound to take turns with: an aim for the median of some rounds.
func bounded(name, unit string, values []float64, atMost float64) result {
	r := result{
		Name: name, Unit: unit, Value: spreadOf(values), Rounds: len(values), Aim: aim{AtMost: atMost}.String(),
		Verdict: verdictMet,
	}
	if r.Value.Median > atMost {
		r.Verdict = verdictMissed
	}
	return r
}

// processorTime is what all threads of the daemon have used so far.
func (d *daemon) processorTime() (sum time.Duration, err error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", d.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if errors.Is(err, os.ErrNotExist) {
			continue // the thread has ended
		}
		if err != nil {
			return 0, err
		}
		ns, _, _ := strings.Cut(string(b), " ")
		n, err := strconv.ParseInt(ns, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", f, err)
		}
		sum += time.Duration(n)
	}
	if sum == 0 {
		return 0, errors.New("the daemon has used no processor time")
	}
	return sum, nil
}

// maxAnswer is how long the daemon's HTTP socket may take, ms, at the 99th percentile.
const maxAnswer = 5

// measureMetrics measures how long the daemon's HTTP socket takes to answer while its worker polls: a page of metrics, and
// whether the worker makes progress.
func measureMetrics(b *bench) (all []result, err error) {
	w := &world{bench: b}
	defer func() { err = errors.Join(err, w.close()) }()
	socket := filepath.Join(b.dir, "metrics.sock")
	if w.d, err = startDaemon(b, daemonOptions{Guests: 2, Metrics: socket}); err != nil {
		return nil, err
	}
	if w.guest, err = startProcess(roleGuest, b.guestCPU); err != nil {
		return nil, err
	}
	o := worldOptions{Pairs: 1, Queues: 1, Depth: smallDepth, Bytes: smallSize * smallSlots}
	if err := w.guest.call("boot", bootRequest{Sockets: w.d.sockets(), Options: o}, nil); err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	defer client.CloseIdleConnections()
	for _, page := range []string{"/metrics", "/healthz"} {
		var tails []float64
		for range b.rounds {
			ms, err := w.answers(client, page)
			if err != nil {
				return nil, err
			}
			tails = append(tails, ms)
		}
		all = append(all, bounded("GET "+page+" while the worker polls, p99", "ms", tails, maxAnswer))
	}
	return all, nil
}

// answers asks for a page over and over, for as long as a worker polls after a message, and returns the 99th percentile of
// the answers' times in ms.
func (w *world) answers(client *http.Client, page string) (ms float64, err error) {
	q := flowRequest{Size: smallSize, Slots: smallSlots, Window: 1, Count: 1}
	if err := w.subject("count", q, nil); err != nil {
		return 0, err
	}
	var times []float64
	for end := time.Now().Add(max(w.turn, 200*time.Millisecond)); time.Now().Before(end); {
		began := time.Now()
		r, err := client.Get("http://pvrdmad" + page)
		if err != nil {
			return 0, err
		}
		_, err = io.Copy(io.Discard, r.Body)
		if err = errors.Join(err, r.Body.Close()); err != nil {
			return 0, err
		}
		if r.StatusCode != http.StatusOK {
			return 0, fmt.Errorf("GET %s: %s", page, r.Status)
		}
		times = append(times, float64(time.Since(began))/1e6)
	}
	slices.Sort(times)
	return times[len(times)*99/100], nil
}
