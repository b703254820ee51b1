// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Logs of fuzz targets that go test called failed, and whether scripts/fuzz-timed-out finds nothing against the target in them.
var fuzzLogs = map[string]struct {
	log  string
	over bool
}{
	"its time was over": {`fuzz: elapsed: 18s, execs: 414689 (22818/sec), new interesting: 20 (total: 30)
--- FAIL: FuzzNames (20.10s)
    context deadline exceeded
FAIL
exit status 1
FAIL	m/abi	20.109s
`, true},
	"an input fails": {`--- FAIL: FuzzNames (3.02s)
    --- FAIL: FuzzNames (0.00s)
        names_test.go:9: bad

    Failing input written to testdata/fuzz/FuzzNames/582528ddfad69eb5
    To re-run:
    go test -run=FuzzNames/582528ddfad69eb5
FAIL
exit status 1
FAIL	m/abi	3.1s
`, false},
	"an input fails when the time is over": {`--- FAIL: FuzzNames (20.02s)
    context deadline exceeded
    Failing input written to testdata/fuzz/FuzzNames/582528ddfad69eb5
FAIL
`, false},
	"the target itself waited too long": {`--- FAIL: FuzzNames (20.02s)
    names_test.go:9: context deadline exceeded
FAIL
`, false},
	"a process that hung": {`--- FAIL: FuzzNames (20.02s)
    fuzzing process hung or terminated unexpectedly: exit status 2
FAIL
`, false},
	"a data race": {`WARNING: DATA RACE
--- FAIL: FuzzNames (20.02s)
    context deadline exceeded
FAIL
`, false},
	"nothing was built": {"# m/abi\nnames_test.go:9:2: undefined: x\nFAIL\tm/abi [build failed]\nFAIL\n", false},
	"nothing":           {"", false},
}

func TestAFuzzTargetWhoseTimeIsOverHasNotFailed(t *testing.T) {
	for name, c := range fuzzLogs {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "target.log")
			if err := os.WriteFile(path, []byte(c.log), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command("../../scripts/fuzz-timed-out", path).CombinedOutput()
			if over := err == nil; over != c.over || len(out) != 0 {
				t.Errorf("its time was over: %t, want %t; %v %s", over, c.over, err, out)
			}
		})
	}
}
