// SPDX-License-Identifier: Apache-2.0

package pyverbs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const smallTable = `# a comment
tests.test_pd.PDTest.test_alloc_pd pass

tests.test_cq.CQTest.test_resize_cq skip no-resize-cq
`

// smallRun is how the tests of smallTable end.
func smallRun() []Outcome {
	return []Outcome{
		{ID: "tests.test_cq.CQTest.test_resize_cq", Outcome: skipped, Text: "Resize CQ is not supported"},
		{ID: "tests.test_pd.PDTest.test_alloc_pd", Outcome: passed},
	}
}

func mustRead(t *testing.T, text string) Table {
	t.Helper()
	table, err := ReadTable(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestARunThatEndsAsTheTableSaysHasNoDifference(t *testing.T) {
	if got := mustRead(t, smallTable).Compare(smallRun()); len(got) != 0 {
		t.Errorf("differences: %q", got)
	}
}

func TestEveryDifferenceFromTheTableIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		change func([]Outcome) []Outcome
		want   string
	}{
		"a failure": {
			func(o []Outcome) []Outcome { o[1] = Outcome{ID: o[1].ID, Outcome: failed, Text: "boom"}; return o },
			"test_alloc_pd failed after 0.0 s:\nboom",
		},
		"a skip instead of a pass": {
			func(o []Outcome) []Outcome { o[1].Outcome, o[1].Text = skipped, "Create MW is not supported"; return o },
			"was skipped (no-mw",
		},
		"a pass instead of a skip": {
			func(o []Outcome) []Outcome { o[0].Outcome, o[0].Text = passed, ""; return o },
			"test_resize_cq passed",
		},
		"a skip for another reason of the list": {
			func(o []Outcome) []Outcome { o[0].Text = "Create XRCD is not supported"; return o },
			"the table expects a skip (no-resize-cq)",
		},
		"a skip for a reason that is not in the list": {
			func(o []Outcome) []Outcome { o[0].Text = "No supported port is up, can't run traffic"; return o },
			"a reason that is not in the list",
		},
		"a test that is missing": {
			func(o []Outcome) []Outcome { return o[:1] },
			"test_alloc_pd did not run",
		},
		"a test that is new": {
			func(o []Outcome) []Outcome { return append(o, Outcome{ID: "tests.test_x.X.test_y", Outcome: passed}) },
			"test_y is not in the table",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := mustRead(t, smallTable).Compare(c.change(smallRun()))

			if len(got) != 1 || !strings.Contains(got[0], c.want) {
				t.Errorf("differences: %q, want one that says %q", got, c.want)
			}
		})
	}
}

func TestATableExpectsPassesAndSkipsForKnownReasonsAlone(t *testing.T) {
	for name, text := range map[string]string{
		"a failure":               "tests.test_a.A.test_b fail\n",
		"a skip without a reason": "tests.test_a.A.test_b skip\n",
		"an unknown reason":       "tests.test_a.A.test_b skip no-time\n",
		"a reason for a pass":     "tests.test_a.A.test_b pass no-mw\n",
		"a test twice":            "tests.test_a.A.test_b pass\ntests.test_a.A.test_b pass\n",
		"a test alone":            "tests.test_a.A.test_b\n",
	} {
		t.Run(name, func(t *testing.T) {
			if table, err := ReadTable(strings.NewReader(text)); err == nil {
				t.Errorf("table %v is accepted", table)
			}
		})
	}
}

func TestATableIsReadAsItWasWritten(t *testing.T) {
	table := mustRead(t, smallTable)
	var text strings.Builder
	if err := table.Write(&text); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(table, mustRead(t, text.String())); diff != "" {
		t.Errorf("table (-written +read):\n%s", diff)
	}
}

func TestAnUpdateTakesWhatTheRunShows(t *testing.T) {
	before := Table{"tests.test_gone.G.test_g": "no-mw"}

	got, err := before.Update(smallRun())

	if diff := cmp.Diff(mustRead(t, smallTable), got); err != nil || diff != "" {
		t.Errorf("error %v; table (-want +got):\n%s", err, diff)
	}
}

func TestAnUpdateRefusesToExpectLess(t *testing.T) {
	for name, c := range map[string]struct {
		run  []Outcome
		want string
	}{
		"a failure":        {[]Outcome{{ID: "tests.test_a.A.test_b", Outcome: failed, Text: "boom"}}, "test_b failed"},
		"an unknown skip":  {[]Outcome{{ID: "tests.test_a.A.test_b", Outcome: skipped, Text: "tired"}}, "not in the list"},
		"one pass too few": {smallRun()[:1], "0 tests pass, and 1 did before"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := mustRead(t, smallTable).Update(c.run)

			if err == nil || got != nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("update gives %v, %v, want an error that says %q", got, err, c.want)
			}
		})
	}
}

func TestAPartOfTheTableIsThatOfItsModules(t *testing.T) {
	got := mustRead(t, smallTable).Of([]string{"test_pd"})

	if diff := cmp.Diff(Table{"tests.test_pd.PDTest.test_alloc_pd": ""}, got); diff != "" {
		t.Errorf("part (-want +got):\n%s", diff)
	}
}

// mustPass are the tests that a guest's programs lean on most. No table may expect less of them.
var mustPass = []string{
	"test_atomic.AtomicTest.test_atomic_cmp_and_swap", "test_atomic.AtomicTest.test_atomic_fetch_and_add",
	"test_atomic.AtomicTest.test_atomic_invalid_lkey", "test_atomic.AtomicTest.test_atomic_invalid_mr_access",
	"test_atomic.AtomicTest.test_atomic_invalid_qp_access", "test_atomic.AtomicTest.test_atomic_invalid_rkey",
	"test_atomic.AtomicTest.test_atomic_non_aligned_addr",
	"test_cq_events.CqEventsTestCase.test_cq_events_rc", "test_cq_events.CqEventsTestCase.test_cq_events_ud",
	"test_rdmacm.CMTestCase.test_rdmacm_async_read", "test_rdmacm.CMTestCase.test_rdmacm_async_reject_traffic",
	"test_rdmacm.CMTestCase.test_rdmacm_async_traffic", "test_rdmacm.CMTestCase.test_rdmacm_async_traffic_external_qp",
	"test_rdmacm.CMTestCase.test_rdmacm_async_udp_traffic", "test_rdmacm.CMTestCase.test_rdmacm_async_write",
	"test_rdmacm.CMTestCase.test_rdmacm_sync_traffic",
	"test_srq.SrqTestCase.test_modify_srq_limit", "test_srq.SrqTestCase.test_rc_srq_traffic",
}

func TestTheCommittedTablesExpectThePassesThatCount(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("tables: %q, %v", paths, err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		table := mustRead(t, string(text))
		row := strings.TrimSuffix(filepath.Base(path), ".txt")
		if n := len(table.Of(lacks[row])); n > 0 {
			t.Errorf("%s: %d tests of modules that %s lacks", path, n, row)
		}
		for _, id := range mustPass {
			if slices.Contains(lacks[row], moduleOf("tests."+id)) {
				continue
			}
			if reason, there := table["tests."+id]; !there || reason != "" {
				t.Errorf("%s: %s is expected to be %q (there: %v), want a pass", path, id, reason, there)
			}
		}
	}
}

func TestTheSuiteIsToldWhatToSkipByReasonsOfTheList(t *testing.T) {
	var texts map[string]string
	if err := json.Unmarshal([]byte(Skips()), &texts); err != nil {
		t.Fatal(err)
	}
	for id, name := range skips {
		if got := reasonOf(texts[id]); got != name {
			t.Errorf("%s: the runner says %q, which is reason %q, want %q", id, texts[id], got, name)
		}
	}
}

func TestAReasonHasOneName(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range reasons {
		if seen[r.name] || r.why == "" || strings.ContainsAny(r.name, " #") {
			t.Errorf("reason %q is there twice, has a blank, or is not explained", r.name)
		}
		seen[r.name] = true
	}
}
