// SPDX-License-Identifier: Apache-2.0

package pyverbs

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	startLine = `{"id": "start", "outcome": "pass", "text": "3.13.5", "seconds": 0}` + "\n"
	passLine  = `{"id": "tests.test_pd.PDTest.test_alloc_pd", "outcome": "pass", "text": "", "seconds": 0.25}` + "\n"
	skipLine  = `{"id": "tests.test_cq.CQTest.test_resize_cq", "outcome": "skip", "text": "no", "seconds": 0}` + "\n"
	endLine   = `{"id": "end", "outcome": "pass", "text": "2", "seconds": 0}` + "\n"
)

func TestTheOutcomesOfARunAreRead(t *testing.T) {
	got, err := Parse(startLine + passLine + skipLine + endLine)

	want := []Outcome{
		{ID: "tests.test_pd.PDTest.test_alloc_pd", Outcome: passed, Seconds: 0.25},
		{ID: "tests.test_cq.CQTest.test_resize_cq", Outcome: skipped, Text: "no"},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v; outcomes (-want +got):\n%s", err, diff)
	}
}

func TestARunThatIsNotWholeIsAnErrorAndItsOutcomesAreKept(t *testing.T) {
	for name, c := range map[string]struct {
		text, want string
		kept       int
	}{
		"nothing at all":       {"", "did not come to its end", 0},
		"no beginning":         {passLine + skipLine + endLine, "begins them", 0},
		"a second beginning":   {startLine + passLine + startLine, "begins them", 1},
		"no end":               {startLine + passLine + skipLine, "stop after 3 lines", 2},
		"a line cut short":     {startLine + passLine + skipLine[:20], "line 3", 1},
		"a lost test":          {startLine + passLine + endLine, "ran 2 tests and told of 1", 1},
		"a test twice":         {startLine + passLine + passLine + endLine, "there twice", 1},
		"more after the end":   {startLine + passLine + skipLine + endLine + passLine, "more after", 2},
		"an unknown outcome":   {startLine + strings.Replace(passLine, `"pass"`, `"maybe"`, 1), `outcome "maybe"`, 0},
		"a test without an id": {startLine + `{"outcome": "pass"}` + "\n", "is empty", 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(c.text)

			if err == nil || !strings.Contains(err.Error(), c.want) || len(got) != c.kept {
				t.Errorf("%d outcomes, error %v; want %d and an error that says %q", len(got), err, c.kept, c.want)
			}
		})
	}
}
