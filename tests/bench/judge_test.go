// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAnAimIsJudgedByTheMedianOfTheRatios(t *testing.T) {
	for _, tt := range []struct {
		name           string
		subject, bound []float64
		aim            aim
		want           string
	}{
		{"below an upper limit", []float64{190, 200, 210}, []float64{100, 100, 100}, aim{AtMost: 2}, verdictMet},
		{"above an upper limit", []float64{190, 201, 210}, []float64{100, 100, 100}, aim{AtMost: 2}, verdictMissed},
		{"above a lower limit", []float64{6, 7, 5}, []float64{10, 10, 10}, aim{AtLeast: 0.6}, verdictMet},
		{"below a lower limit", []float64{5, 7, 5}, []float64{10, 10, 10}, aim{AtLeast: 0.6}, verdictMissed},
		{"one bad round", []float64{150, 150, 9000}, []float64{100, 100, 100}, aim{AtMost: 2}, verdictMet},
		{"no aim", []float64{1}, []float64{1}, aim{}, verdictReport},
		{"a bound that doubled", []float64{1, 1, 1}, []float64{100, 150, 200}, aim{AtMost: 2}, verdictMet},
		{"a bound that more than doubled", []float64{1, 1, 1}, []float64{100, 150, 201}, aim{AtMost: 2}, verdictNone},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := judge("x", "ns", "y", tt.subject, tt.bound, tt.aim)
			if r.Verdict != tt.want {
				t.Errorf("verdict is %q, want %q", r.Verdict, tt.want)
			}
			if (r.Why != "") != (tt.want == verdictNone) {
				t.Errorf("the reason is %q", r.Why)
			}
		})
	}
}

// A ratio of medians would compare figures of different moments.
func TestARatioIsOfOneRound(t *testing.T) {
	r := judge("x", "ns", "y", []float64{100, 300, 1000}, []float64{100, 150, 200}, aim{AtMost: 1})
	if r.Ratio.Median != 2 || r.Ratio.Min != 1 || r.Ratio.Max != 5 {
		t.Errorf("ratios are %+v, want a median of 2 from 1 to 5", r.Ratio)
	}
}

func TestSubjectAndBoundTakeTurns(t *testing.T) {
	b := &bench{options: options{rounds: 4}}
	var order string
	f := func(c string) func() (float64, error) {
		return func() (float64, error) { order += c; return 1, nil }
	}
	r, err := b.turns("x", "ns", "y", f("s"), f("b"), aim{AtMost: 1})
	if err != nil || order != "bssbbssb" || r.Rounds != 4 {
		t.Errorf("order is %q in %d rounds, %v", order, r.Rounds, err)
	}
	broken := errors.New("broken")
	if _, err := b.turns("x", "ns", "y", f("s"), func() (float64, error) { return 0, broken }, aim{}); !errors.Is(err, broken) {
		t.Errorf("a bound that fails gives %v", err)
	}
}

func TestFewerThanTenRoundsAreRefused(t *testing.T) {
	if _, err := run(options{rounds: 9}); err == nil || !strings.Contains(err.Error(), "at least 10") {
		t.Errorf("9 rounds give %v", err)
	}
}

func TestTheReportFitsALine(t *testing.T) {
	var out bytes.Buffer
	printHead(&out, &record{Commit: "0123456+", CPU: strings.Repeat("x", 40), Rounds: 11, Turn: "100ms"})
	r := judge("64 B WRITE, p50, 1 of 10000 queue pairs ac", "GB/s", strings.Repeat("b", 30), []float64{1.0 / 3},
		[]float64{1e-9}, aim{AtLeast: 0.9})
	printResult(&out, r)
	r.Verdict, r.Why = verdictNone, "the bound itself varied 12.5 x"
	printResult(&out, r)
	for line := range strings.Lines(out.String()) {
		if n := len(strings.TrimRight(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if !strings.Contains(out.String(), "no verdict: the bound itself varied") {
		t.Error("the report does not say that there is no verdict")
	}
}

func TestARunIsALineOfTheHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.jsonl")
	r := newRecord(options{rounds: 10, turn: time.Second})
	r.Results = []result{judge("x", "ns", "y", []float64{1}, []float64{2}, aim{AtMost: 1})}
	for range 2 {
		if err := r.appendTo(path); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimRight(b, "\n"), []byte("\n"))
	if len(lines) != 2 {
		t.Fatalf("%d lines, want 2", len(lines))
	}
	var back record
	if err := json.Unmarshal(lines[1], &back); err != nil {
		t.Fatal(err)
	}
	if back.Results[0].Ratio.Median != 0.5 || back.CPU == "" || back.Kernel == "" || back.CPUs < 1 {
		t.Errorf("the line says %+v", back)
	}
}

func TestSystemCallsAreCountedFromTheSummary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "strace")
	text := "    calls syscall\n--------- ----------------\n       12 futex\n        9 rt_sigreturn\n--------- -----\n       21 total\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := countCalls(path); n != 21 || err != nil {
		t.Errorf("%v calls, %v", n, err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := countCalls(path); err == nil {
		t.Error("an empty summary is no error")
	}
}

func TestASubjectThatDoesNotExistIsAnError(t *testing.T) {
	if all, err := choose(options{}); err != nil || len(all) != len(subjects()) {
		t.Errorf("nothing asked: %d subjects, %v", len(all), err)
	}
	if one, err := choose(options{only: "^write64$"}); err != nil || len(one) != 1 {
		t.Errorf("one asked: %d subjects, %v", len(one), err)
	}
	if _, err := choose(options{only: "no-such"}); err == nil || !strings.Contains(err.Error(), "write64") {
		t.Errorf("%v: want an error that names the subjects", err)
	}
}
