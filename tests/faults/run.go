// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// testTimeout is when a test is taken for stuck, in the words of go test -timeout, and patience when the go command
	// is, which compiles before.
	testTimeout = "100s"
	patience    = 5 * time.Minute
	// tail is how many bytes of a test's output are shown when something is wrong with it.
	tail = 4000
)

// runner plants faults in the module at root.
type runner struct {
	root string
	// test runs go test and returns its output and whether it passed.
	test func(ctx context.Context, f *fault, at place) (output string, passed bool, err error)
	// green remembers which tests passed without a fault.
	green map[string]bool
	// show takes what red tests say; nil for nowhere.
	show io.Writer
}

// place is where tests run: a module, and a file for go build -overlay, or "" for none.
type place struct{ dir, overlay string }

func newRunner(root string) *runner {
	return &runner{root: root, test: goTest, green: map[string]bool{}}
}

// plant plants one fault and returns how long it took until a test was red, compiling included. An error says why the
// fault proves nothing.
func (r *runner) plant(ctx context.Context, f *fault) (time.Duration, error) {
	texts, err := f.apply(os.DirFS(r.root))
	if err != nil {
		return 0, fmt.Errorf("does not apply: %w", err)
	}
	if err := r.check(ctx, f); err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "fault")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	at := place{dir: r.root}
	if f.Copy {
		at.dir = dir
		err = copyModule(dir, r.root, texts)
	} else {
		at.overlay, err = overlay(dir, r.root, texts)
	}
	if err != nil {
		return 0, err
	}
	start := time.Now()
	output, passed, err := r.test(ctx, f, at)
	if err != nil {
		return 0, err
	}
	took := time.Since(start)
	if r.show != nil {
		fmt.Fprintln(r.show, output)
	}
	return took, judge(f, output, passed)
}

// check runs a fault's test without it, once for all faults of that test.
func (r *runner) check(ctx context.Context, f *fault) error {
	key := fmt.Sprint(f.Package, f.Run, f.Race, f.Args)
	if r.green[key] {
		return nil
	}
	output, passed, err := r.test(ctx, f, place{dir: r.root})
	if err != nil {
		return err
	}
	if !passed {
		return fmt.Errorf("the test fails without the fault:\n%s", last(output))
	}
	if !strings.Contains(output, "--- PASS: ") {
		return fmt.Errorf("no test runs: -run %q matches none", f.Run)
	}
	if strings.Contains(output, f.Expect) {
		return fmt.Errorf("the test says %q without the fault, too", f.Expect)
	}
	r.green[key] = true
	return nil
}

// judge says whether a test's output shows that it noticed the fault.
func judge(f *fault, output string, passed bool) error {
	switch {
	case strings.Contains(output, "[build failed]") || strings.Contains(output, "[setup failed]"):
		return fmt.Errorf("does not compile:\n%s", last(output))
	case passed:
		return errors.New("nobody noticed")
	case !strings.Contains(output, f.Expect):
		return fmt.Errorf("the test fails without saying %q:\n%s", f.Expect, last(output))
	}
	return nil
}

func last(output string) string {
	if len(output) > tail {
		return "[...]" + output[len(output)-tail:]
	}
	return output
}

// goTest runs a fault's tests. The overlay is in the environment, since some tests build programs of this module.
func goTest(ctx context.Context, f *fault, at place) (output string, passed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	args := []string{"test", "-count=1", "-vet=off", "-v", "-timeout", testTimeout, "-run", f.Run}
	if f.Race {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", slices.Concat(args, []string{f.Package}, f.Args)...)
	cmd.Dir = at.dir
	cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS"))
	if at.overlay != "" {
		cmd.Env = append(cmd.Env, strings.TrimSpace("GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+at.overlay))
	}
	// The tests' processes end with the go command, all of them.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	b, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return "", false, fmt.Errorf("go test took more than %v: %w", patience, ctx.Err())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return "", false, fmt.Errorf("run go test: %w", err)
	}
	return string(b), err == nil, nil
}
