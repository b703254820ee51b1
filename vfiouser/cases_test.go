// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// row is a line of testdata/cases.tsv; testdata/cases.md explains the columns.
type row struct{ id, state, stimulus, answer, connection, counter, then, source string }

// rows reads testdata/cases.tsv.
func rows(t testing.TB) map[string]row {
	t.Helper()
	text, err := os.ReadFile("testdata/cases.tsv")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if head := "id\tstate\tstimulus\tanswer\tconnection\tcounter\tthen\tsource"; lines[0] != head {
		t.Fatalf("cases.tsv begins with %q", lines[0])
	}
	all := map[string]row{}
	for _, line := range lines[1:] {
		f := strings.Split(line, "\t")
		if len(f) != 8 || slices.Contains(f, "") {
			t.Fatalf("cases.tsv: not eight columns: %q", line)
		}
		r := row{f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7]}
		if _, twice := all[r.id]; twice {
			t.Errorf("cases.tsv: %s is there twice", r.id)
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

func TestTheListOfCasesAndTheTestsAreTheSame(t *testing.T) {
	listed := rows(t)
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
			t.Errorf("cases.tsv has\n%+v, tested is\n%+v", got, want)
		}
	}
	for _, s := range scenarios() {
		if tested[s.id] {
			t.Errorf("%s is tested twice", s.id)
		}
		tested[s.id] = true
		if listed[s.id].id == "" {
			t.Errorf("cases.tsv: %s is not listed", s.id)
		}
	}
	for id := range listed {
		if !tested[id] {
			t.Errorf("cases.tsv: %s is not tested", id)
		}
	}
	if len(tested) < 100 {
		t.Errorf("%d cases, at least 100 are due", len(tested))
	}
}
