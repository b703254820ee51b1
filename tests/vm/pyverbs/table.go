// SPDX-License-Identifier: Apache-2.0

package pyverbs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Table says how each test of the suite ends, by the test's id: "" for a pass, or the name of the reason for a skip.
type Table map[string]string

// older is the row of matrix.toml with another rdma-core than the default row's; lacks are the modules of the suite that the
// rdma-core of a row has not yet.
const older = "debian12"

var lacks = map[string][]string{older: {"test_srq"}}

// ReadTable reads a committed table: a line for each test, its id and then "pass" or "skip" and a reason. Lines that
// begin with # are for people. Nothing else may be in there: a table that expects a failure is refused.
func ReadTable(r io.Reader) (Table, error) {
	t := Table{}
	lines, number := bufio.NewScanner(r), 0
	for lines.Scan() {
		number++
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		id, expected := fields[0], fields[1:]
		_, twice := t[id]
		switch {
		case twice:
			return nil, fmt.Errorf("table of pyverbs, line %d: %s is there twice", number, id)
		case len(expected) == 1 && expected[0] == passed:
			t[id] = ""
		case len(expected) == 2 && expected[0] == skipped && known(expected[1]):
			t[id] = expected[1]
		default:
			return nil, fmt.Errorf("table of pyverbs, line %d: %s is expected to %q: only to pass, or to skip for a reason of the list",
				number, id, strings.Join(expected, " "))
		}
	}
	return t, lines.Err()
}

// Write writes the table as ReadTable reads it, sorted by id.
func (t Table) Write(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "# %d tests, %d of them pass. The reasons are those of reasons.go.\n", len(t), t.passes())
	for _, id := range slices.Sorted(maps.Keys(t)) {
		expected := passed
		if t[id] != "" {
			expected = skipped + " " + t[id]
		}
		fmt.Fprintf(out, "%s %s\n", id, expected)
	}
	return out.Flush()
}

// passes is how many tests are expected to pass.
func (t Table) passes() int {
	n := 0
	for _, reason := range t {
		if reason == "" {
			n++
		}
	}
	return n
}

// Of returns the part of the table that is about some modules of the suite.
func (t Table) Of(modules []string) Table {
	part := Table{}
	for id, reason := range t {
		if slices.Contains(modules, moduleOf(id)) {
			part[id] = reason
		}
	}
	return part
}

// moduleOf is the module of a test "tests.MODULE.CLASS.METHOD", or "" if the id is none.
func moduleOf(id string) string {
	fields := strings.Split(id, ".")
	if len(fields) < 3 {
		return ""
	}
	return fields[1]
}

// Compare returns every difference between the table and how the tests ended, a sentence each.
func (t Table) Compare(outcomes []Outcome) []string {
	var differences []string
	complain := func(format string, args ...any) { differences = append(differences, fmt.Sprintf(format, args...)) }
	ran := map[string]bool{}
	for _, o := range outcomes {
		ran[o.ID] = true
		want, expected := t[o.ID]
		got := reasonOf(o.Text)
		switch {
		case o.Outcome == failed:
			complain("%s failed after %.1f s:\n%s", o.ID, o.Seconds, o.Text)
		case !expected:
			complain("%s is not in the table; it ended with %s %q", o.ID, o.Outcome, o.Text)
		case o.Outcome == passed && want != "":
			complain("%s passed, the table expects a skip (%s)", o.ID, want)
		case o.Outcome == skipped && got == "":
			complain("%s was skipped for a reason that is not in the list: %q", o.ID, o.Text)
		case o.Outcome == skipped && got != want:
			complain("%s was skipped (%s: %q), the table expects %s", o.ID, got, o.Text, orPass(want))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(t)) {
		if !ran[id] {
			complain("%s did not run", id)
		}
	}
	return differences
}

func orPass(reason string) string {
	if reason == "" {
		return "a pass"
	}
	return "a skip (" + reason + ")"
}

// Update returns the table for how the tests ended. It refuses a failure, a skip for a reason that is not in the list,
// and fewer passes than the table had: who wants those has to say so by hand.
func (t Table) Update(outcomes []Outcome) (Table, error) {
	updated := Table{}
	var refused []error
	for _, o := range outcomes {
		switch got := reasonOf(o.Text); {
		case o.Outcome == failed:
			refused = append(refused, fmt.Errorf("no table is written: %s failed:\n%s", o.ID, o.Text))
		case o.Outcome == skipped && got == "":
			refused = append(refused,
				fmt.Errorf("no table is written: %s was skipped for a reason that is not in the list: %q", o.ID, o.Text))
		case o.Outcome == skipped:
			updated[o.ID] = got
		default:
			updated[o.ID] = ""
		}
	}
	if len(refused) > 0 {
		return nil, errors.Join(refused...)
	}
	if updated.passes() < t.passes() {
		return nil, fmt.Errorf("no table is written: %d tests pass, and %d did before", updated.passes(), t.passes())
	}
	return updated, nil
}
