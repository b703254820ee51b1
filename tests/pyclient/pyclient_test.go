// SPDX-License-Identifier: Apache-2.0

// Package pyclient plays the tables of vfio-user cases with a client in Python, which was written from the protocol's
// documents and the tables alone. It shares no code and no author's habit with the server. It may not be made to agree
// with the server where the documents say otherwise.
package pyclient

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tables are the rows that the client plays. A row without a player or a player without a row fails the run.
const (
	cases     = "../../vfiouser/testdata/cases.tsv"
	sequences = "../../vfiouser/testdata/sequences.tsv"
)

// build returns the program that serves the cases' device.
func build(t *testing.T) string {
	t.Helper()
	server := filepath.Join(t.TempDir(), "caseserver")
	if out, err := exec.Command("go", "build", "-o", server, "../../vfiouser/internal/caseserver").CombinedOutput(); err != nil {
		t.Fatalf("build the server: %v\n%s", err, out)
	}
	return server
}

// play runs the client on a table and returns what it printed.
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
	server := build(t)
	for _, table := range []string{cases, sequences} {
		t.Run(filepath.Base(table), func(t *testing.T) {
			t.Parallel()
			out, err := play(t, table, server)
			if err != nil {
				t.Fatalf("%v (scripts/setup installs Python)\n%s", err, out)
			}
			t.Log(strings.TrimSpace(out))
		})
	}
}

// lie is a false word in the row of an id.
type lie struct{ id, truth, lie string }

var lies = map[string][]lie{
	cases: {
		{"write-read-only", "\tEACCES\topen\targs\t", "\tEINVAL\topen\targs\t"},
		{"version-brace", "\tEINVAL\tclosed\tversion\t", "\tEINVAL\topen\tversion\t"},
		{"type-2", "\tnone\tclosed\ttype\t", "\tnone\tclosed\tsize\t"},
		{"type-15", "\tnone\tclosed\ttype\t", "\tnone\tclosed\t-\t"},
		{"size-1", "\tnone\tclosed\tsize\t", "\tEINVAL\tclosed\tsize\t"},
		{"unmap-unknown", "\tENOENT\topen\tmapping\t", "\tsuccess\topen\tmapping\t"},
		{"reset-payload", "\tEINVAL\topen\t", "\tEINVAL\tclosed\t"},
		{"irqs-index-5", "\tEINVAL\topen\t", "\tnone\topen\t"},
	},
	sequences: {
		{"version-bare", "\tsuccess\topen\t", "\tEINVAL\topen\t"},
		{"info", "\tsuccess\topen\t-\t", "\tsuccess\topen\targs\t"},
		{"region-mapped", "\tsuccess\topen\t", "\tsuccess\tclosed\t"},
		{"write-4096", "\tsuccess\topen\t-\t-\t", "\tsuccess\topen\t-\tmore\t"},
		{"write-read", "\tsuccess\topen\t-\t", "\tsuccess\t-\t-\t"},
		{"refused-posted", "\tnone\topen\targs\t", "\tEINVAL\topen\targs\t"},
		{"command-posted", "\tnone\topen\tcommand\t", "\tnone\topen\t-\t"},
		{"device-refuses", "\tEBUSY\topen\tdevice\t", "\tEIO\topen\tdevice\t"},
		{"device-panics", "\tnone\tclosed\t-\t", "\tnone\topen\t-\t"},
		{"multi-bad-count-max", "\tsuccess\topen\tlimit\t", "\tsuccess\topen\targs\t"},
		{"map-over-same", "\tEEXIST\topen\tmapping\t", "\tsuccess\topen\tmapping\t"},
		{"irqs-qemu", "\tsuccess\topen\t-\t", "\tnone\topen\t-\t"},
		{"reset-posted", "\tnone\topen\t-\t", "\tsuccess\topen\t-\t"},
		{"loss-with-everything", "\tnone\t-\t-\t", "\tnone\topen\t-\t"},
		{"silent", "\tnone\tclosed\t-\t", "\tnone\tclosed\tversion\t"},
		{"loss-half-closed", "\tsuccess\tclosed\t", "\tsuccess\topen\t"},
		{"fd-with-payload", "\tEINVAL\topen\tfds\t", "\tEINVAL\topen\tlength\t"},
		{"fds-16-and-16", "\tEINVAL\tclosed\t", "\tEINVAL\topen\t"},
	},
}

// A client that would agree with anything proves nothing. All false rows of a table are played in one run: each of them
// has to fail, and no other.
func TestTheClientInPythonNoticesAServerThatDiffers(t *testing.T) {
	server := build(t)
	for table, lies := range lies {
		t.Run(filepath.Base(table), func(t *testing.T) {
			t.Parallel()
			text := read(t, table)
			want := map[string]bool{}
			for _, lie := range lies {
				text = falsify(t, text, lie.id, lie.truth, lie.lie)
				want[lie.id] = true
			}

			out, err := play(t, write(t, table, text), server)

			if got := failed(out); err == nil || !maps.Equal(got, want) {
				t.Errorf("%v: failed rows %v, want %v\n%s", err, got, want, out)
			}
		})
	}
}

func TestTheClientInPythonRefusesATableThatIsNotItsOwn(t *testing.T) {
	server := build(t)
	for table, id := range map[string]string{cases: "size-1", sequences: "reset"} {
		missing := falsify(t, read(t, table), id, id+"\t", "unheard-of\t")

		out, err := play(t, write(t, table, missing), server)

		if err == nil || !strings.Contains(out, "differ in: "+id+" unheard-of") {
			t.Errorf("%s without %s: %v\n%s", table, id, err, out)
		}
	}
}

// failed returns the ids of the rows that failed.
func failed(out string) map[string]bool {
	ids := map[string]bool{}
	for line := range strings.Lines(out) {
		if rest, found := strings.CutPrefix(line, "FAIL "); found {
			id, _, _ := strings.Cut(rest, ":")
			ids[id] = true
		}
	}
	return ids
}

func read(t *testing.T, table string) string {
	t.Helper()
	text, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// write makes a false copy of a table, under its name.
func write(t *testing.T, table, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(table))
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
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
