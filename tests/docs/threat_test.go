// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

var (
	promiseHead = regexp.MustCompile(`(?m)^### P(\d+)\. .+$`)
	// proof names a test: the folder of its package, and the function.
	proof    = regexp.MustCompile("(?m)^- `([\\w./-]+): ((?:Test|Fuzz)\\w+)`$")
	listItem = regexp.MustCompile(`(?m)^- .*$`)
)

// promiseFaults returns what is wrong with the promises of the threat model: each has a number, and tests that exist.
func promiseFaults(repo fs.FS, page string) (faults []string) {
	_, rest, _ := strings.Cut(page, "\n## Promises\n")
	promises, _, found := strings.Cut(rest, "\n## ")
	heads := promiseHead.FindAllStringSubmatchIndex(promises, -1)
	if !found || len(heads) == 0 {
		return []string{"the page has no section of promises, or nothing behind it"}
	}
	for i, head := range heads {
		end := len(promises)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		number, text := promises[head[2]:head[3]], promises[head[1]:end]
		if number != fmt.Sprint(i+1) {
			faults = append(faults, fmt.Sprintf("promise %d is called P%s", i+1, number))
		}
		proofs := proof.FindAllStringSubmatch(text, -1)
		if len(proofs) == 0 || len(proofs) != len(listItem.FindAllString(text, -1)) {
			faults = append(faults, fmt.Sprintf("P%s has %d tests among %d items: every item names one, and there is one", number,
				len(proofs), len(listItem.FindAllString(text, -1))))
		}
		for _, p := range proofs {
			if !hasTest(repo, p[1], p[2]) {
				faults = append(faults, fmt.Sprintf("P%s: %s has no test %s", number, p[1], p[2]))
			}
		}
	}
	return faults
}

// hasTest says whether a package has a test function.
func hasTest(repo fs.FS, folder, name string) bool {
	files, _ := fs.Glob(repo, path.Join(folder, "*_test.go"))
	for _, f := range files {
		text, err := fs.ReadFile(repo, f)
		if err == nil && strings.Contains(string(text), "\nfunc "+name+"(") {
			return true
		}
	}
	return false
}

func TestEveryPromiseOfTheThreatModelNamesTestsThatThereAre(t *testing.T) {
	for _, fault := range promiseFaults(os.DirFS(root), read(t, "docs/threat-model.md")) {
		t.Error(fault)
	}
}

func TestAPromiseWithoutATestIsFound(t *testing.T) {
	repo := fstest.MapFS{"a/b/x_test.go": {Data: []byte("package b\n\nfunc TestX(t *testing.T) {\n\t// func TestY(\n}\n")}}
	page := func(promises string) string {
		return "# T\n\n## Promises\n\n" + promises + "\n## The rest\n\n- a word\n"
	}
	for _, c := range []struct{ name, page, want string }{
		{"nothing wrong", page("### P1. X\n\n- `a/b: TestX`\n"), ""},
		{"a test that is gone", page("### P1. X\n\n- `a/b: TestZ`\n"), "no test TestZ"},
		{"a test that is only spoken of", page("### P1. X\n\n- `a/b: TestY`\n"), "no test TestY"},
		{"another package", page("### P1. X\n\n- `a: TestX`\n"), "a has no test"},
		{"no test", page("### P1. X\n\nReally.\n"), "P1 has 0 tests"},
		{"an item that names none", page("### P1. X\n\n- `a/b: TestX`\n- and more\n"), "1 tests among 2"},
		{"a number left out", page("### P1. X\n\n- `a/b: TestX`\n\n### P3. Y\n\n- `a/b: TestX`\n"), "promise 2 is called P3"},
		{"no promises", "# T\n\n## Promises\n\n## The rest\n", "no section"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := strings.Join(promiseFaults(repo, c.page), "\n")
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("faults are %q, want one with %q", got, c.want)
			}
		})
	}
}
