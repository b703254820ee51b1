// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Logs as go test and other tools write them, and what scripts/failures makes of them.
var failureLogs = map[string]struct {
	log  string
	said []string
	not  []string // of the log
}{
	"a test and its parents": {
		log: `ok  	m/a	1s
--- FAIL: TestC (0.00s)
    --- FAIL: TestC/q (0.00s)
        c_test.go:4: bad q
            more of it
    c_test.go:7: the parent says this
FAIL
FAIL	m/c	0.1s
ok  	m/z	1s
FAIL
`,
		said: []string{
			"failed: TestC/q", "    --- FAIL: TestC/q (0.00s)", "        c_test.go:4: bad q", "            more of it",
			"    c_test.go:7: the parent says this", "FAIL\tm/c\t0.1s",
		},
		not: []string{"failed: TestC\n", "m/a", "m/z"},
	},
	"a verbose log": {
		log: `=== RUN   TestA
    a_test.go:3: fine
--- PASS: TestA (0.00s)
=== RUN   TestB
=== RUN   TestB/x
    b_test.go:4: bad x
=== RUN   TestB/y
    b_test.go:5: y is well
=== NAME  TestB
    b_test.go:9: the end is bad, too
--- FAIL: TestB (0.01s)
    --- FAIL: TestB/x (0.00s)
    --- PASS: TestB/y (0.00s)
FAIL
`,
		said: []string{"failed: TestB/x", "    b_test.go:4: bad x", "    b_test.go:9: the end is bad, too"},
		not:  []string{"fine", "y is well", "PASS"},
	},
	"a data race and a panic": {
		log: `a line of before
==================
WARNING: DATA RACE
Write at 0x00c000012345 by goroutine 7:
panic: runtime error: index out of range
goroutine 9 [running]:
FAIL	m/c	0.1s
`,
		said: []string{"WARNING: DATA RACE", "Write at 0x00c000012345 by goroutine 7:", "panic: runtime error: index out of range", "goroutine 9 [running]:", "FAIL\tm/c\t0.1s"},
		not:  []string{"before"},
	},
	"a lane that is no test": {
		log:  "one\ntwo\nnot formatted, run make format: x.go\n",
		said: []string{"not formatted, run make format: x.go"},
	},
}

func TestWhatFailedIsSaidAtTheEndOfTheLanes(t *testing.T) {
	for name, c := range failureLogs {
		t.Run(name, func(t *testing.T) {
			got := failuresOf(t, c.log, "60")
			for _, line := range c.said {
				if !strings.Contains(got, line+"\n") {
					t.Errorf("%q is not in:\n%s", line, got)
				}
			}
			for _, text := range c.not {
				if strings.Contains(got, text) {
					t.Errorf("%q is in:\n%s", text, got)
				}
			}
		})
	}
}

func TestWhatFailedIsSaidInAFewLines(t *testing.T) {
	log := "--- FAIL: TestLong (0.00s)\n" + strings.Repeat("    long_test.go:1: again\n", 500) + "FAIL\n"

	got := failuresOf(t, log, "60")

	if n := strings.Count(got, "\n"); n != 61 || !strings.Contains(got, "442 lines more") {
		t.Errorf("%d lines, want 60 and one that says how many are left out:\n%s", n, got)
	}
}

func failuresOf(t *testing.T, log, lines string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lane.log")
	if err := os.WriteFile(path, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("../../scripts/failures", path, lines).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}
