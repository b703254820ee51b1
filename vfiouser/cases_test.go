// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// row is a line of testdata/cases.tsv or testdata/sequences.tsv; testdata/cases.md explains the columns.
type row struct{ id, state, stimulus, answer, connection, counter, then, source string }

// The files of cases.
const (
	framesFile    = "testdata/cases.tsv"
	sequencesFile = "testdata/sequences.tsv"
)

// rows reads a file of cases.
func rows(t testing.TB, file string) map[string]row {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if head := "id\tstate\tstimulus\tanswer\tconnection\tcounter\tthen\tsource"; lines[0] != head {
		t.Fatalf("%s begins with %q", file, lines[0])
	}
	all := map[string]row{}
	for _, line := range lines[1:] {
		f := strings.Split(line, "\t")
		if len(f) != 8 || slices.Contains(f, "") {
			t.Fatalf("%s: not eight columns: %q", file, line)
		}
		r := row{f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7]}
		if _, twice := all[r.id]; twice {
			t.Errorf("%s: %s is there twice", file, r.id)
		}
		all[r.id] = r
	}
	return all
}

// answerWord returns an errno as the column "answer" has it.
func answerWord(errno unix.Errno) string {
	switch errno {
	case 0:
		return "none"
	case unix.EOPNOTSUPP: // ENOTSUP is the same number
		return "EOPNOTSUPP"
	default:
		return unix.ErrnoName(errno)
	}
}

// connectionWord returns what becomes of a connection as the column "connection" has it.
func connectionWord(closed bool) string {
	if closed {
		return "closed"
	}
	return "open"
}

// openFaults returns all frames that are refused after the VERSION was accepted.
func openFaults() []badFrame {
	return slices.Concat(framingFaults(), payloadFaults(), accessFaults(), irqFaults(), dmaFaults())
}

func TestTheListOfFramesAndTheTestsAreTheSame(t *testing.T) {
	listed := rows(t, framesFile)
	tested := map[string]bool{}
	open, fresh := openFaults(), handshakeFaults()
	for i, b := range slices.Concat(open, fresh) {
		tested[b.id] = true
		state := "open"
		if i >= len(open) {
			state = "new"
		}
		got := listed[b.id]
		want := got
		want.id, want.state, want.answer = b.id, state, answerWord(b.errno)
		want.connection, want.counter = connectionWord(b.ends), b.fault.String()
		if got != want {
			t.Errorf("%s has\n%+v, tested is\n%+v", framesFile, got, want)
		}
	}
	wantSame(t, framesFile, listed, tested)
	if len(tested) < 100 {
		t.Errorf("%d cases, at least 100 are due", len(tested))
	}
}

func TestTheListOfSequencesAndTheTestsAreTheSame(t *testing.T) {
	tested := map[string]bool{}
	for _, s := range scenarios() {
		if tested[s.id] {
			t.Errorf("%s is tested twice", s.id)
		}
		tested[s.id] = true
	}
	wantSame(t, sequencesFile, rows(t, sequencesFile), tested)
}

// wantSame fails for what is in one of a file and the tests alone.
func wantSame(t *testing.T, file string, listed map[string]row, tested map[string]bool) {
	t.Helper()
	for id := range listed {
		if !tested[id] {
			t.Errorf("%s: %s is not tested", file, id)
		}
	}
	for id := range tested {
		if listed[id].id == "" {
			t.Errorf("%s is not in %s", id, file)
		}
	}
}
