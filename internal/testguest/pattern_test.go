// SPDX-License-Identifier: Apache-2.0

package testguest_test

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/testguest"
	"pgregory.net/rapid"
)

func TestAPatternNoticesAnyByteThatIsNotItsOwn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := testguest.Pattern{Seed: rapid.Uint64().Draw(t, "seed"), Iteration: rapid.Uint64().Draw(t, "iteration")}
		b := make([]byte, rapid.IntRange(1, 300).Draw(t, "length"))
		p.Fill(b)
		if err := p.Check(b); err != nil {
			t.Fatal(err)
		}
		b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "change"))
		if p.Check(b) == nil {
			t.Fatal("a changed byte is not noticed")
		}
	})
}

func TestPatternsOfOtherIterationsAndPlacesDiffer(t *testing.T) {
	a, b := make([]byte, 256), make([]byte, 256)
	testguest.Pattern{Seed: 1, Iteration: 1}.Fill(a)
	testguest.Pattern{Seed: 1, Iteration: 2}.Fill(b)
	if err := (testguest.Pattern{Seed: 1, Iteration: 1}).Check(b); err == nil {
		t.Error("iteration 2 passes for iteration 1")
	}
	if err := (testguest.Pattern{Seed: 1, Iteration: 1}).Check(a[8:]); err == nil {
		t.Error("bytes from offset 8 pass for those from 0")
	}
}
