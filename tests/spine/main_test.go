// SPDX-License-Identifier: Apache-2.0

// Package spine drives the daemon's real binary over its real sockets with guests that are no virtual machines: what
// every layer must do together, in both doorbell modes.
package spine

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// daemonPath is the binary under test, built once for all tests. It is written by TestMain only.
var daemonPath string

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(runRole(role))
	}
	os.Exit(runTests(m))
}

// lookAtSources looks at every Go file of the module. The go command does not know that these tests build the daemon
// and would repeat an old result; of the files that a test has looked at it knows when they change.
func lookAtSources() error {
	return filepath.WalkDir("../..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		_, err = os.Stat(path)
		return err
	})
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "spine")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := lookAtSources(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	daemonPath = filepath.Join(dir, "pvrdmad")
	args := []string{"build", "-o", daemonPath}
	if raceEnabled { // the daemon is then watched as the tests are
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "../../cmd/pvrdmad")...)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintf(os.Stderr, "build the daemon: %v\n", err)
		return 1
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}
