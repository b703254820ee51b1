// SPDX-License-Identifier: Apache-2.0

// Command bench measures the daemon against what the machine allows. For each subject it takes turns between the real
// daemon, driven by guests in another process, and a bound on the same two processors with the same amount of memory,
// and prints the ratio; only figures of one run can be compared. docs/performance.md says what each subject is.
//
// It measures and judges; it may not make the daemon or a bound behave otherwise than they do without it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// options are the command line.
type options struct {
	short, strict  bool
	only           string
	daemon, record string
	rounds         int
	turn           time.Duration
	guestCPU, cpu  int
}

func main() {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(runRole(role))
	}
	var o options
	flag.BoolVar(&o.short, "short", false, "turns of 20 ms and few sizes, to see that all of it works")
	flag.BoolVar(&o.strict, "strict", false, "fail if an aim is missed")
	flag.StringVar(&o.only, "only", "", "measure the subjects that match this regular expression")
	flag.StringVar(&o.daemon, "daemon", "", "the daemon's binary; built if empty")
	flag.StringVar(&o.record, "record", "", "append the result to this file, one line of JSON")
	flag.IntVar(&o.rounds, "rounds", 11, "rounds of each subject, at least 10")
	flag.DurationVar(&o.turn, "turn", 100*time.Millisecond, "how long one turn of a subject or of its bound is")
	flag.IntVar(&o.guestCPU, "guest-cpu", 0, "processor of the guests")
	flag.IntVar(&o.cpu, "worker-cpu", 1, "processor of the daemon's worker, and of the other side of each bound")
	flag.Parse()
	if o.short {
		o.turn, o.rounds = 20*time.Millisecond, 10
	}
	missed, err := run(o)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	case missed && o.strict:
		os.Exit(2)
	}
}

// minRounds is how often subject and bound take turns at least.
const minRounds = 10

// choose returns the subjects that are asked for; none is an error, because measuring nothing misses no aim.
func choose(o options) (chosen []subject, err error) {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return nil, fmt.Errorf("-only: %w", err)
	}
	var names []string
	for _, s := range subjects() {
		names = append(names, s.name)
		if only.MatchString(s.name) && (!o.short || !s.long) {
			chosen = append(chosen, s)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("-only %s: no such subject, there are: %s", o.only, strings.Join(names, " "))
	}
	return chosen, nil
}

// run measures what is asked for and reports whether an aim was missed.
func run(o options) (missed bool, err error) {
	chosen, err := choose(o)
	if err != nil {
		return false, err
	}
	if o.rounds < minRounds {
		return false, fmt.Errorf("%d rounds, at least %d are needed", o.rounds, minRounds)
	}
	b, err := newBench(o)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, unix.SIGINT, unix.SIGTERM)
	run := newRecord(o)
	printHead(os.Stdout, run)
	for _, s := range chosen {
		select {
		case <-interrupted:
			return missed, errors.New("interrupted")
		default:
		}
		results, err := s.measure(b)
		if err != nil {
			return missed, fmt.Errorf("%s: %w", s.name, err)
		}
		for _, r := range results {
			printResult(os.Stdout, r)
			missed = missed || r.Verdict == verdictMissed
		}
		run.Results = append(run.Results, results...)
	}
	if o.record == "" {
		return missed, nil
	}
	return missed, run.appendTo(o.record)
}
