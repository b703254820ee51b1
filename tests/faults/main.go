// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	list := flag.Bool("list", false, "say what faults there are, and plant none")
	show := flag.Bool("v", false, "show what the red tests say")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, options{list: *list, show: *show, names: flag.Args()}); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

// options are the command line.
type options struct {
	list, show bool
	names      []string
}

func run(ctx context.Context, out io.Writer, o options) error {
	b, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	root := strings.TrimSpace(string(b))
	all, err := load(os.DirFS(filepath.Join(root, "tests/faults/planted")))
	if err != nil {
		return err
	}
	if all, err = choose(all, o.names); err != nil {
		return err
	}
	if o.list {
		return table(out, results(all))
	}
	r := newRunner(root)
	if o.show {
		r.show = out
	}
	rs, bad := plantAll(ctx, out, r, all)
	if err := table(out, rs); err != nil {
		return err
	}
	if bad != 0 {
		return fmt.Errorf("%d of %d faults prove nothing", bad, len(all))
	}
	return nil
}

// choose returns the faults with the names given, all if there are none.
func choose(all []*fault, names []string) ([]*fault, error) {
	if len(names) == 0 {
		return all, nil
	}
	var some []*fault
	for _, name := range names {
		i := slices.IndexFunc(all, func(f *fault) bool { return f.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no fault %s: go run ./tests/faults -list names them", name)
		}
		some = append(some, all[i])
	}
	return some, nil
}

// result is what came of a fault.
type result struct {
	fault *fault
	took  time.Duration
	err   error
	// planted says that it was tried at all.
	planted bool
}

func results(all []*fault) (rs []result) {
	for _, f := range all {
		rs = append(rs, result{fault: f})
	}
	return rs
}

// plantAll plants one fault after the other and says at once what came of it. bad counts those that prove nothing.
func plantAll(ctx context.Context, out io.Writer, r *runner, all []*fault) (rs []result, bad int) {
	rs = results(all)
	for i := range rs {
		if ctx.Err() != nil {
			return rs, bad + len(all) - i
		}
		rs[i].planted = true
		rs[i].took, rs[i].err = r.plant(ctx, all[i])
		fmt.Fprintf(out, "%s: %s\n", all[i].name, rs[i])
		if rs[i].err != nil {
			bad++
		}
	}
	return rs, bad
}

// String says in a few words what came of a fault, and in full if it proves nothing.
func (r result) String() string {
	switch {
	case r.err != nil:
		return "PROVES NOTHING: " + r.err.Error()
	case !r.planted:
		return ""
	}
	return fmt.Sprintf("red after %.1f s", r.took.Seconds())
}

// table prints a line for each fault.
func table(out io.Writer, rs []result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\noracle\tfault\tname\tresult\n")
	for _, r := range rs {
		what, _, _ := strings.Cut(r.String(), "\n")
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.fault.Oracle, r.fault.Fault, r.fault.name, what)
	}
	return w.Flush()
}
