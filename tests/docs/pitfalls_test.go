// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

var (
	pitfallRow = regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$`)
	namedTest  = regexp.MustCompile("`([\\w./-]+): ((?:Test|Fuzz)\\w+)(?:/([^`]+))?`")
	namedFault = regexp.MustCompile("`([\\w-]+)`")
	// choice is which test a planted fault runs.
	choice = regexp.MustCompile(`(?m)^(package|run) = "(.*)"$`)
)

// test is a test as a row names it: the folder of its package, the function and, if it is narrower, the case.
type test struct{ folder, function, part string }

// cannotHappen begins the part of a page whose rows have no tests.
const cannotHappen = "\n## What cannot happen here\n"

// pitfallFaults returns what is wrong with the tables of a page: each row names tests that exist, and planted faults that do and
// that one of these tests is to notice, or says that there is none.
func pitfallFaults(repo fs.FS, page string) (faults []string, rows, unplanted int) {
	page, _, _ = strings.Cut(page, cannotHappen)
	var seen []string
	for _, row := range pitfallRow.FindAllStringSubmatch(page, -1) {
		what := row[1]
		if what == "what went wrong" || what == "trap" || strings.HasPrefix(what, "-") {
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
		tests := testsOf(repo, row[2], complain)
		planted := namedFault.FindAllStringSubmatch(row[3], -1)
		if len(planted) == 0 {
			unplanted++
			if row[3] != "none" {
				complain("names no planted fault, and does not say so")
			}
		}
		for _, fault := range planted {
			if wrong := plantedFault(repo, fault[1], tests); wrong != "" {
				complain("%s", wrong)
			}
		}
	}
	return faults, rows, unplanted
}

// testsOf returns the tests that a row names.
func testsOf(repo fs.FS, cell string, complain func(format string, args ...any)) (tests []test) {
	for _, m := range namedTest.FindAllStringSubmatch(cell, -1) {
		t := test{m[1], m[2], m[3]}
		tests = append(tests, t)
		if !hasTest(repo, t.folder, t.function) {
			complain("%s has no test %s", t.folder, t.function)
		} else if !hasPart(repo, t) {
			complain("%s has no case %q", t.function, t.part)
		}
	}
	if len(tests) == 0 {
		complain("names no test")
	}
	return tests
}

// hasPart says whether the case that a row names is one: the words are a string of the package's tests, or a sentence of the
// engines' contract. A case of the command matrix is named by two strings, a command and a field.
func hasPart(repo fs.FS, t test) bool {
	if t.part == "" {
		return true
	}
	files, _ := fs.Glob(repo, path.Join(t.folder, "*_test.go"))
	contract, _ := fs.Glob(repo, "hostverbs/verbstest/*.go")
	var text strings.Builder
	for _, f := range append(files, contract...) {
		b, _ := fs.ReadFile(repo, f)
		text.Write(b)
	}
	has := func(word string) bool { return strings.Contains(text.String(), `"`+word+`"`) }
	command, field, two := strings.Cut(t.part, ".")
	return has(t.part) || (two && has(command) && has(field))
}

// plantedFault says what is wrong with a planted fault that a row names.
func plantedFault(repo fs.FS, name string, tests []test) string {
	b, err := fs.ReadFile(repo, "tests/faults/planted/"+name+".toml")
	if err != nil {
		return "there is no planted fault " + name
	}
	chosen := map[string]string{}
	for _, m := range choice.FindAllStringSubmatch(string(b), -1) {
		chosen[m[1]] = strings.ReplaceAll(m[2], `\\`, `\`)
	}
	for _, t := range tests {
		if chosen["package"] == "./"+t.folder && chooses(chosen["run"], t) {
			return ""
		}
	}
	return "none of its tests is the one that notices " + name
}

// chooses says whether go test -run chooses a test.
func chooses(run string, t test) bool {
	function, part, _ := strings.Cut(run, "/")
	f, err := regexp.Compile(function)
	if err != nil || !f.MatchString(t.function) {
		return false
	}
	p, err := regexp.Compile(part)
	return err == nil && (t.part == "" || p.MatchString(strings.ReplaceAll(t.part, " ", "_")))
}

func TestEveryPitfallNamesTestsAndPlantedFaultsThatThereAre(t *testing.T) {
	for name, least := range map[string]int{"docs/pitfalls.md": 100, "docs/traps.md": 94} {
		faults, rows, unplanted := pitfallFaults(os.DirFS(root), read(t, name))
		for _, fault := range faults {
			t.Errorf("%s: %s", name, fault)
		}
		if rows < least {
			t.Errorf("%s has %d rows: does this test still read them?", name, rows)
		}
		if unplanted != 0 {
			t.Errorf("%s: %d rows have no planted fault", name, unplanted)
		}
		t.Logf("%s: %d rows", name, rows)
	}
	if !strings.Contains(read(t, "docs/pitfalls.md"), cannotHappen) {
		t.Error("the page does not say what cannot happen")
	}
}

func TestAPitfallWithoutATestOrAFaultIsFound(t *testing.T) {
	repo := fstest.MapFS{
		"a/b/x_test.go":               {Data: []byte("package b\n\nfunc TestX(t *testing.T) { t.Run(\"a case\", nil) }\n\nfunc TestY(t *testing.T) {}\n")},
		"hostverbs/verbstest/x.go":    {Data: []byte("package verbstest\n\nvar x = \"it does\"\n")},
		"tests/faults/planted/f.toml": {Data: []byte("package = \"./a/b\"\nrun = \"^TestX$\"\n")},
		"tests/faults/planted/p.toml": {Data: []byte("package = \"./a/b\"\nrun = \"^TestX$/^a_case$\"\n")},
	}
	for _, c := range []struct{ row, want string }{
		{"| one | `a/b: TestX` | `f` |", ""},
		{"| one | `a/b: TestX` | none |", ""},
		{"| one | `a/b: TestX/a case` | `p` |", ""},
		{"| one | `a/b: TestX/it does` | `f` |", ""},
		{"| one | `a/b: TestX/it does` | `p` |", "one: none of its tests is the one that notices p"},
		{"| one | `a/b: TestX/another case` | `f` |", `one: TestX has no case "another case"`},
		{"| one | `a/b: TestY` | `f` |", "one: none of its tests is the one that notices f"},
		{"| one | `a/b: TestZ` | none |", "one: a/b has no test TestZ"},
		{"| one | nothing | none |", "one: names no test"},
		{"| one | `a/b: TestX` | `g` |", "one: there is no planted fault g"},
		{"| one | `a/b: TestX` | later |", "one: names no planted fault, and does not say so"},
		{"| one | `a/b: TestX` | `f` |\n| one | `a/b: TestX` | `f` |", "one: is there twice"},
	} {
		faults, _, _ := pitfallFaults(repo, c.row+"\n"+cannotHappen)
		if got := strings.Join(faults, "; "); got != c.want {
			t.Errorf("%s: got %q, want %q", c.row, got, c.want)
		}
	}
}

// What a program may lock in the guest is the guest's affair: no command reaches the device, and the page alone can say what the
// program finds.
func TestThePageOfLimitsSaysWhatHappensWithoutMemoryToLock(t *testing.T) {
	page := read(t, "docs/limits.md")
	for _, row := range []string{"memlock-mr", "memlock-cq"} {
		if !regexp.MustCompile("(?m)^\\| `" + row + "` \\| .* \\| ENOMEM \\|$").MatchString(page) {
			t.Errorf("the page does not say that %s is ENOMEM", row)
		}
	}
	_, section, found := strings.Cut(page, "\n## Memory that may be locked\n")
	for _, word := range []string{"RLIMIT_MEMLOCK", "LimitMEMLOCK=infinity", "limits.d"} {
		if !found || !strings.Contains(section, word) {
			t.Errorf("the page does not say how more can be locked: no word of %s", word)
		}
	}
}
