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

const (
	decisionsIndex = "docs/decisions.md"
	decisionsDir   = "docs/decisions"
)

var (
	// decisionHead is how a page begins: number, title, status.
	decisionHead = regexp.MustCompile(`^# (\d+)\. (.+)\n\nStatus: (built|built in part|not built|in force)\.`)
	// decisionSections are the sections in their order; the true ones may not be left out.
	decisionSections = []struct {
		name string
		must bool
	}{{"Context", true}, {"Decision", true}, {"Why", false}, {"Measured", false}, {"Consequences", true}, {"Where", true}}
	codePath = regexp.MustCompile("`([\\w.-]+(?:/[\\w.-]+)+)`")
)

// decisionFaults returns what is wrong with the pages of decisions below a repository's root.
func decisionFaults(repo fs.FS) (faults []string) {
	index, err := fs.ReadFile(repo, decisionsIndex)
	if err != nil {
		return []string{err.Error()}
	}
	pages, err := fs.ReadDir(repo, decisionsDir)
	if err != nil {
		return []string{err.Error()}
	}
	for i, p := range pages {
		complain := func(format string, args ...any) {
			faults = append(faults, p.Name()+": "+fmt.Sprintf(format, args...))
		}
		text, err := fs.ReadFile(repo, path.Join(decisionsDir, p.Name()))
		if err != nil {
			complain("%v", err)
			continue
		}
		head := decisionHead.FindStringSubmatch(string(text))
		if head == nil {
			complain("does not begin with number, title and status")
			continue
		}
		if want := fmt.Sprintf("%04d-", i+1); !strings.HasPrefix(p.Name(), want) || head[1] != fmt.Sprint(i+1) {
			complain("is page %d: its name should begin with %s, its title with the number", i+1, want)
		}
		row := fmt.Sprintf("\n| %d | [%s](decisions/%s) | %s |\n", i+1, head[2], p.Name(), head[3])
		if !strings.Contains(string(index), row) {
			complain("the index has no row%s", row)
		}
		faults = append(faults, pageFaults(repo, p.Name(), string(text))...)
	}
	if rows := strings.Count(string(index), "\n| ") - 1; rows != len(pages) {
		faults = append(faults, fmt.Sprintf("the index has %d rows, there are %d pages", rows, len(pages)))
	}
	return faults
}

// pageFaults returns what is wrong with a page's sections, and with the places in the code that it names.
func pageFaults(repo fs.FS, name, text string) (faults []string) {
	var have, want []string
	for _, m := range regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(text, -1) {
		have = append(have, m[1])
	}
	for _, s := range decisionSections {
		if s.must || slices.Contains(have, s.name) {
			want = append(want, s.name)
		}
	}
	if !slices.Equal(have, want) {
		return []string{fmt.Sprintf("%s: has the sections %v, want %v", name, have, want)}
	}
	_, where, _ := strings.Cut(text, "\n## Where\n")
	places := codePath.FindAllStringSubmatch(where, -1)
	if len(places) == 0 {
		faults = append(faults, name+": names no file of the code")
	}
	for _, p := range places {
		if _, err := fs.Stat(repo, p[1]); err != nil {
			faults = append(faults, fmt.Sprintf("%s: %v", name, err))
		}
	}
	return faults
}

func TestEveryDecisionHasAPageAndARow(t *testing.T) {
	for _, fault := range decisionFaults(os.DirFS(root)) {
		t.Error(fault)
	}
}

func TestAPageThatSaysTooLittleIsFound(t *testing.T) {
	const (
		name = "docs/decisions/0001-x.md"
		good = "# 1. X\n\nStatus: built.\n\n## Context\n\n## Decision\n\n## Consequences\n\n## Where\n\n`a/b.go`.\n"
		row  = "\n| | decision | status |\n|---|---|---|\n| 1 | [X](decisions/0001-x.md) | built |\n"
	)
	for _, c := range []struct{ what, old, instead, index, want string }{
		{what: "nothing wrong", index: row},
		{"another status", "built.", "planned.", row, "does not begin with"},
		{"no context", "## Context\n\n", "", row, "has the sections"},
		{"a file that is gone", "a/b.go", "a/c.go", row, "a/c.go"},
		{"no file", "`a/b.go`", "nowhere", row, "names no file"},
		{"another number", "# 1.", "# 2.", row, "is page 1"},
		{"no row", "", "", "\n| | decision | status |\n", "has no row"},
		{"a row too many", "", "", row + "| 2 | [Y](decisions/0002-y.md) | built |\n", "has 2 rows"},
	} {
		t.Run(c.what, func(t *testing.T) {
			repo := fstest.MapFS{
				name:           {Data: []byte(strings.Replace(good, c.old, c.instead, 1))},
				decisionsIndex: {Data: []byte(c.index)},
				"a/b.go":       {},
			}
			got := strings.Join(decisionFaults(repo), "\n")
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("faults are %q, want one with %q", got, c.want)
			}
		})
	}
}
