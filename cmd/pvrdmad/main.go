// SPDX-License-Identifier: Apache-2.0

// Command pvrdmad gives virtual machines a paravirtual RDMA device. This package is flags, configuration, wiring and
// readiness; what the device does is in the packages below it, and no decision about a guest may be made here.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/pvrdmad/pvrdmad/internal/config"
)

// Exit codes, those of sysexits.h.
const (
	exitOK = 0
	// exitFailed: the doctor found a fault, or the daemon had to be torn down.
	exitFailed = 1
	// exitUsage: the command line is wrong.
	exitUsage = 64
	// exitUnavailable: a socket or the engine cannot be opened.
	exitUnavailable = 69
	// exitConfig: the configuration is wrong.
	exitConfig = 78
)

// exitError is an error with the exit code that it deserves.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }

func (e *exitError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

func unavailable(format string, args ...any) error {
	return &exitError{exitUnavailable, fmt.Errorf(format, args...)}
}

// errFound is the doctor's failure, which is printed already.
var errFound = errors.New("something is missing")

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run runs one command and returns its exit code.
func run(args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetArgs(withCommand(args))
	cmd, err := root.ExecuteC()
	if err == nil {
		return exitOK
	}
	if errors.Is(err, errFound) {
		return exitFailed
	}
	var problems config.Problems
	if errors.As(err, &problems) {
		// FILE:LINE: first, so that an editor finds it.
		fmt.Fprintln(stderr, problems)
		return exitConfig
	}
	fmt.Fprintln(stderr, "pvrdmad:", err)
	var e *exitError
	if errors.As(err, &e) {
		return e.code
	}
	// What is left are the command line library's own complaints.
	fmt.Fprintf(stderr, "see %s --help\n", cmd.CommandPath())
	return exitUsage
}

// withCommand lets programs that know QEMU's conventions for back ends start the daemon: they give no command.
func withCommand(args []string) []string {
	for _, flag := range []string{"--socket-path", "--fd", "--print-capabilities"} {
		if len(args) > 0 && (args[0] == flag || strings.HasPrefix(args[0], flag+"=")) {
			return append([]string{"serve"}, args...)
		}
	}
	return args
}
