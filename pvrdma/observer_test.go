// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEveryReasonAndCauseHasALabel(t *testing.T) {
	labels := map[string]bool{}
	for r := BadRegister; r <= BadMemory; r++ {
		labels[r.String()] = true
	}
	for c := ResetByDriver; c <= ResetByBusMaster; c++ {
		labels["reset by "+c.String()] = true
	}
	for s := NoError; s <= ErrorNotEnabled; s++ {
		labels["state "+s.String()] = true
	}
	if len(labels) != int(BadMemory)+1+int(ResetByBusMaster)+1+int(ErrorNotEnabled)+1 || labels["unknown"] || labels[""] ||
		labels["reset by "] || labels["reset by unknown"] || labels["state "] || labels["state unknown"] {
		t.Errorf("labels %v", labels)
	}
	if GuestErrorReason(BadMemory+1).String() != "unknown" || ResetCause(ResetByBusMaster+1).String() != "unknown" ||
		ErrorState(ErrorNotEnabled+1).String() != "unknown" {
		t.Error("a value without a name has one")
	}
}

func TestCountersAddUp(t *testing.T) {
	a := Counters{1, 2, 3, 4, 5, 6, 7}
	a.Add(Counters{10, 20, 30, 40, 50, 60, 70})
	if diff := cmp.Diff(Counters{11, 22, 33, 44, 55, 66, 77}, a); diff != "" {
		t.Error(diff)
	}
}
