// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

var (
	pitfallRow = regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$`)
	namedTest  = regexp.MustCompile("`([\\w./-]+): ((?:Test|Fuzz)\\w+)`")
	namedFault = regexp.MustCompile("`([\\w-]+)`")
)

// pitfallFaults returns what is wrong with the table of pitfalls: each row names tests that exist, and planted faults that do, or
// says that there is none.
func pitfallFaults(repo fs.FS, page string) (faults []string, rows, unplanted int) {
	page, _, found := strings.Cut(page, "\n## What cannot happen here\n")
	if !found {
		return []string{"the page does not say what cannot happen"}, 0, 0
	}
	var seen []string
	for _, row := range pitfallRow.FindAllStringSubmatch(page, -1) {
		what := row[1]
		if what == "what went wrong" || strings.HasPrefix(what, "-") {
			continue
		}
		rows++
		complain := func(format string, args ...any) {
			faults = append(faults, what+": "+fmt.Sprintf(format, args...))
		}
		if slices.Contains(seen, what) {
			complain("is there twice")
		}
		seen = append(seen, what)
		tests := namedTest.FindAllStringSubmatch(row[2], -1)
		if len(tests) == 0 {
			complain("names no test")
		}
		for _, test := range tests {
			if !hasTest(repo, test[1], test[2]) {
				complain("%s has no test %s", test[1], test[2])
			}
		}
		planted := namedFault.FindAllStringSubmatch(row[3], -1)
		if len(planted) == 0 {
			unplanted++
			if row[3] != "none" {
				complain("names no planted fault, and does not say so")
			}
		}
		for _, fault := range planted {
			if _, err := fs.Stat(repo, "tests/faults/planted/"+fault[1]+".toml"); err != nil {
				complain("there is no planted fault %s", fault[1])
			}
		}
	}
	return faults, rows, unplanted
}

func TestEveryPitfallNamesTestsAndPlantedFaultsThatThereAre(t *testing.T) {
	faults, rows, unplanted := pitfallFaults(os.DirFS(root), read(t, "docs/pitfalls.md"))
	for _, fault := range faults {
		t.Error(fault)
	}
	if rows < 40 {
		t.Errorf("the page has %d rows: does this test still read them?", rows)
	}
	t.Logf("%d pitfalls, %d of them without a planted fault", rows, unplanted)
}

func TestAPitfallWithoutATestOrAFaultIsFound(t *testing.T) {
	repo := fstest.MapFS{
		"a/b/x_test.go":               {Data: []byte("package b\n\nfunc TestX(t *testing.T) {}\n")},
		"tests/faults/planted/f.toml": {},
	}
	for _, c := range []struct{ row, want string }{
		{"| one | `a/b: TestX` | `f` |", ""},
		{"| one | `a/b: TestX` | none |", ""},
		{"| one | `a/b: TestZ` | `f` |", "one: a/b has no test TestZ"},
		{"| one | nothing | `f` |", "one: names no test"},
		{"| one | `a/b: TestX` | `g` |", "one: there is no planted fault g"},
		{"| one | `a/b: TestX` | later |", "one: names no planted fault, and does not say so"},
		{"| one | `a/b: TestX` | `f` |\n| one | `a/b: TestX` | `f` |", "one: is there twice"},
	} {
		faults, _, _ := pitfallFaults(repo, c.row+"\n\n## What cannot happen here\n")
		if got := strings.Join(faults, "; "); got != c.want {
			t.Errorf("%s: got %q, want %q", c.row, got, c.want)
		}
	}
	if faults, _, _ := pitfallFaults(repo, "| one | `a/b: TestX` | `f` |\n"); len(faults) == 0 {
		t.Error("a page without its last section passes")
	}
}
