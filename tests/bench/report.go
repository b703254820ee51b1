// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
)

// printHead says what was measured where. Lines fit 80 columns.
func printHead(w io.Writer, r *record) {
	fmt.Fprintf(w, "commit %s, %s, Linux %s\n", r.Commit, r.Go, r.Kernel)
	fmt.Fprintf(w, "%d x %s\n", r.CPUs, r.CPU)
	fmt.Fprintf(w, "%d rounds of %v; a ratio is of one round's two figures\n", r.Rounds, r.Turn)
	fmt.Fprintf(w, "\n%-42s %9s %9s %9s\n", "", "median", "min", "max")
}

// printResult prints a line for the subject, and if there is a bound one for it and one for the ratio.
func printResult(w io.Writer, r result) {
	line := func(name string, s spread, end string) {
		fmt.Fprintf(w, "%-42s %9.4g %9.4g %9.4g %s\n", name, s.Median, s.Min, s.Max, end)
	}
	line(r.Name, r.Value, r.Unit)
	if r.BoundValue != nil {
		line("  bound: "+r.Bound, *r.BoundValue, r.Unit)
	}
	if r.Ratio != nil {
		line("  ratio", *r.Ratio, "")
	}
	switch {
	case r.Verdict == verdictNone:
		fmt.Fprintf(w, "  aim %s: no verdict: %s\n", r.Aim, r.Why)
	case r.Aim != "":
		fmt.Fprintf(w, "  aim %s: %s\n", r.Aim, r.Verdict)
	}
}
