// SPDX-License-Identifier: Apache-2.0

// Package pyclient plays the table of vfio-user cases with a client in Python, which was written from the protocol's
// documents and the table alone. It shares no code and no author's habit with the server. It may not be made to agree
// with the server where the documents say otherwise.
package pyclient

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const table = "../../vfiouser/testdata/cases.tsv"

// build returns the program that serves the cases' device.
func build(t *testing.T) string {
	t.Helper()
	server := filepath.Join(t.TempDir(), "caseserver")
	if out, err := exec.Command("go", "build", "-o", server, "../../vfiouser/internal/caseserver").CombinedOutput(); err != nil {
		t.Fatalf("build the server: %v\n%s", err, out)
	}
	return server
}

// play runs the client on a table of cases and returns what it printed.
func play(t *testing.T, table, server string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	// -B: no compiled files in the checkout.
	cmd := exec.CommandContext(t.Context(), "python3", "-B", "run.py", table, server)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func TestAClientWrittenFromTheDocumentsAloneAgreesOnEveryCase(t *testing.T) {
	out, err := play(t, table, build(t))
	if err != nil {
		t.Fatalf("%v (scripts/setup installs Python)\n%s", err, out)
	}
	t.Log(strings.TrimSpace(out))
}

// A client that would agree with anything proves nothing.
func TestTheClientInPythonNoticesAServerThatDiffers(t *testing.T) {
	server := build(t)
	good, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	for _, lie := range []struct{ id, truth, lie string }{
		{"write-read-only", "\tEACCES\topen\targs\t", "\tEINVAL\topen\targs\t"},
		{"version-brace", "\tEINVAL\tclosed\tversion\t", "\tEINVAL\topen\tversion\t"},
		{"type-2", "\tnone\tclosed\ttype\t", "\tnone\tclosed\tsize\t"},
		{"size-1", "\tnone\tclosed\tsize\t", "\tEINVAL\tclosed\tsize\t"},
		{"unmap-unknown", "\tENOENT\topen\tmapping\t", "\tsuccess\topen\tmapping\t"},
	} {
		t.Run(lie.id, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cases.tsv")
			if err := os.WriteFile(path, []byte(falsify(t, string(good), lie.id, lie.truth, lie.lie)), 0o644); err != nil {
				t.Fatal(err)
			}

			out, err := play(t, path, server)

			if err == nil || !strings.Contains(out, "FAIL "+lie.id+":") || strings.Count(out, "\nFAIL ") > 1 {
				t.Errorf("the false row was not the one that failed: %v\n%s", err, out)
			}
		})
	}
}

// falsify replaces truth by lie in the row of an id.
func falsify(t *testing.T, table, id, truth, lie string) string {
	t.Helper()
	lines := strings.Split(table, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, id+"\t") && strings.Contains(line, truth) {
			lines[i] = strings.Replace(line, truth, lie, 1)
			return strings.Join(lines, "\n")
		}
	}
	t.Fatalf("no row %s with %q", id, truth)
	return ""
}
