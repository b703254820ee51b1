// SPDX-License-Identifier: Apache-2.0

// Package pyverbs runs the tests of rdma-core's Python bindings in a guest, as its distribution ships them, and compares
// how each ends with a committed table: it passes, or it is skipped for a reason from a closed list.
//
// The reading and comparing is ordinary Go and needs no guest. The package may not change the suite, nor write a table
// that expects a failure.
package pyverbs

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Runner is the program that runs the suite in a guest; its first lines say how.
//
//go:embed run.py
var Runner []byte

// InKernelLog is what the driver says of what the suite asks for: UC and raw packet queue pairs, and queue pairs with 65,535
// elements for each request, which the device refuses.
var InKernelLog = regexp.MustCompile(`^vmw_pvrdma \S+: (queuepair type [38] not supported|` +
	`failed to write request error reg: 22|could not create queuepair, error: -14)$`)

// How a test can end, as run.py spells it.
const (
	passed  = "pass"
	skipped = "skip"
	failed  = "fail"
)

// The ids of run.py's lines that are no test's.
const (
	startID = "start"
	endID   = "end"
)

// Outcome is how a test ended.
type Outcome struct {
	// ID is the test's name, as unittest spells it.
	ID string `json:"id"`
	// Outcome is "pass", "skip" or "fail".
	Outcome string `json:"outcome"`
	// Text is why, in the suite's own words; empty for a pass.
	Text string `json:"text"`
	// Seconds is how long it took.
	Seconds float64 `json:"seconds"`
}

// Parse reads what run.py wrote. With an error it returns the outcomes before it: those of a run that was cut short.
func Parse(text string) ([]Outcome, error) {
	var outcomes []Outcome
	seen, number := map[string]bool{}, 0
	for line := range strings.Lines(text) {
		number++
		var o Outcome
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			return outcomes, fmt.Errorf("line %d of the suite's results: %w", number, err)
		}
		switch {
		case (o.ID == startID) != (number == 1):
			return outcomes, fmt.Errorf("line %d of the suite's results: %q begins them, and nothing else", number, startID)
		case seen[endID]:
			return outcomes, fmt.Errorf("line %d of the suite's results: there is more after %q", number, endID)
		case o.ID == "" || seen[o.ID]:
			return outcomes, fmt.Errorf("line %d of the suite's results: %q is empty or there twice", number, o.ID)
		case o.Outcome != passed && o.Outcome != skipped && o.Outcome != failed:
			return outcomes, fmt.Errorf("line %d of the suite's results: %s has the outcome %q", number, o.ID, o.Outcome)
		}
		seen[o.ID] = true
		switch o.ID {
		case startID:
		case endID:
			if want := strconv.Itoa(len(outcomes)); o.Text != want {
				return outcomes, fmt.Errorf("the suite ran %s tests and told of %s", o.Text, want)
			}
		default:
			outcomes = append(outcomes, o)
		}
	}
	if !seen[endID] {
		return outcomes, fmt.Errorf("the suite did not come to its end: its results stop after %d lines", number)
	}
	return outcomes, nil
}
