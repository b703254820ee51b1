// SPDX-License-Identifier: Apache-2.0

// Command caseserver serves the device that the cases of vfiouser/testdata/cases.tsv are written for, on the Unix
// socket that is its argument, and tells a client in any language how many file descriptors and goroutines it has. It is
// for tests: it may not be used by anything else, and imports nothing of the project but vfiouser.
//
//	caseserver SOCKET
//
// It writes a line with the word "ready" when the socket is there. Then it answers each line of its standard input,
// whatever is in it, with one line of JSON, and ends with its standard input. vfiouser/testdata/cases.md says what the
// JSON holds.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/pvrdmad/pvrdmad/vfiouser"
)

// timeout is how long a client may take with its VERSION, and with reading an answer. Short, so that the cases about it
// do not take long.
const timeout = time.Second

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: caseserver SOCKET")
		os.Exit(2)
	}
	if err := serve(os.Args[1], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "caseserver:", err)
		os.Exit(1)
	}
}

// serve serves clients at path, and status lines from in to out, until in ends.
func serve(path string, in io.Reader, out io.Writer) error {
	l, err := vfiouser.Listen(path, 0o600)
	if err != nil {
		return err
	}
	var seen counters
	server := vfiouser.NewServer(l, vfiouser.Config{
		Open: openDevice, Observer: &seen, HandshakeTimeout: timeout, WriteTimeout: timeout,
	})
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx) }()

	err = report(&seen, in, out)
	stop()
	if failed := <-served; err == nil {
		err = failed
	}
	return err
}

// report answers each line of in with the state of the process.
func report(seen *counters, in io.Reader, out io.Writer) error {
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return err
	}
	encoder := json.NewEncoder(out)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		state := seen.state()
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return err
		}
		// Not the one with which the directory was read.
		state.FDs, state.Goroutines = len(entries)-1, runtime.NumGoroutine()
		if err := encoder.Encode(state); err != nil {
			return err
		}
	}
	return lines.Err()
}
