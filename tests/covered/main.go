// SPDX-License-Identifier: Apache-2.0

// Command covered reads a coverage profile and fails if the files that decode what a guest writes, and those that handle
// it, are covered less than they should be by the corpora that are committed. It prints what it found, file by file.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// module is what file names in a profile begin with.
const module = "github.com/pvrdmad/pvrdmad/"

// decoders are the files that look at a guest's bytes, and the handlers behind them.
var decoders = []string{
	"pvrdma/cmd_*.go", "pvrdma/command.go", "pvrdma/convert.go", "pvrdma/doorbell.go", "pvrdma/pdir.go", "pvrdma/table.go",
	"pvrdma/fastreg.go", "pvrdma/srq.go", "pvrdma/wqe.go", "pvrdma/abi/*.go", "pvrdma/pcifn/command.go", "pvrdma/pcifn/config.go", "pvrdma/pcifn/dsr.go",
	"pvrdma/pcifn/regions.go", "pvrdma/pcifn/regs.go",
}

// tally counts statements.
type tally struct{ covered, all int }

func (t tally) percent() float64 {
	if t.all == 0 {
		return 0
	}
	return 100 * float64(t.covered) / float64(t.all)
}

func main() {
	profile := flag.String("profile", "", "the coverage `file` of go test")
	least := flag.Float64("least", 90, "the `percent` of statements to cover")
	flag.Parse()
	if err := run(os.Stdout, *profile, *least); err != nil {
		fmt.Fprintln(os.Stderr, "covered:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, profile string, least float64) error {
	f, err := os.Open(profile)
	if err != nil {
		return fmt.Errorf("open the profile: %w", err)
	}
	defer f.Close()
	files, err := read(f)
	if err != nil {
		return fmt.Errorf("read %s: %w", profile, err)
	}
	return judge(out, files, least)
}

// judge prints the tally of every file and fails if those of a package together are covered too little, or if a pattern has no
// file: a name that changed would otherwise hide what it named.
func judge(out io.Writer, files map[string]tally, least float64) error {
	packages := map[string]tally{}
	for _, pattern := range decoders {
		found := false
		for name := range files {
			found = found || matches(pattern, name)
		}
		if !found {
			return fmt.Errorf("the profile has no file %s", pattern)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !slices.ContainsFunc(decoders, func(p string) bool { return matches(p, name) }) {
			continue
		}
		t, pkg := files[name], packages[path.Dir(name)]
		packages[path.Dir(name)] = tally{pkg.covered + t.covered, pkg.all + t.all}
		fmt.Fprintf(out, "%6.1f %%  %4d of %4d  %s\n", t.percent(), t.covered, t.all, name)
	}
	var low []string
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		t := packages[name]
		fmt.Fprintf(out, "%6.1f %%  %4d of %4d  %s in all\n", t.percent(), t.covered, t.all, name)
		if t.percent() < least {
			low = append(low, fmt.Sprintf("%s is covered to %.1f %%", name, t.percent()))
		}
	}
	if len(low) != 0 {
		return fmt.Errorf("%s, want %.0f %%; next: run the fuzzers longer and commit what they find", strings.Join(low, ", "),
			least)
	}
	return nil
}

// matches reports whether a pattern of one folder names a file.
func matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}

// read adds a profile up: a block counts as covered if any of the profile's packages has covered it.
func read(r io.Reader) (map[string]tally, error) {
	type block struct{ file, span string }
	statements, covered := map[block]int{}, map[block]bool{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if strings.HasPrefix(line, "mode:") {
			continue
		}
		place, rest, ok := strings.Cut(line, " ")
		file, span, ok2 := strings.Cut(strings.TrimPrefix(place, module), ":")
		stmts, hits, ok3 := strings.Cut(rest, " ")
		count, err := strconv.Atoi(stmts)
		if !ok || !ok2 || !ok3 || err != nil {
			return nil, fmt.Errorf("line %d is no block of a profile: %q", n, line)
		}
		b := block{file, span}
		statements[b] = count
		covered[b] = covered[b] || hits != "0"
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	files := map[string]tally{}
	for b, n := range statements {
		t := files[b.file]
		t.all += n
		if covered[b] {
			t.covered += n
		}
		files[b.file] = t
	}
	return files, nil
}
