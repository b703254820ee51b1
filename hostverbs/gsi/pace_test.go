// SPDX-License-Identifier: Apache-2.0

package gsi

import (
	"testing"

	"pgregory.net/rapid"
)

func TestABurstPassesAtOnceAndThenOneInEachInterval(t *testing.T) {
	var p Pace
	now := int64(1 << 40)
	for i := range Burst {
		if !p.Take(now) {
			t.Fatalf("number %d of a burst has to wait", i)
		}
	}
	for range 1000 {
		if p.Take(now) {
			t.Fatal("one more than a burst passes")
		}
		if w := p.Wait(now); w != Interval {
			t.Fatalf("the next one may come in %d ns, want %d", w, int64(Interval))
		}
		now += Interval
		if p.Wait(now) != 0 || !p.Take(now) {
			t.Fatal("none passes after an interval")
		}
	}
	if now += Burst * Interval; p.Wait(now) != 0 {
		t.Fatal("not even one passes after a pause")
	}
	for i := range Burst {
		if !p.Take(now) {
			t.Fatalf("number %d of a burst after a pause has to wait", i)
		}
	}
}

func TestAGuestsPaceIsKeptAndNoOthers(t *testing.T) {
	all := Paces{}
	for range Burst {
		if !all.Of("a").Take(0) {
			t.Fatal("one of a burst has to wait")
		}
	}
	if all.Of("a").Take(0) || !all.Of("b").Take(0) {
		t.Error("the pace of one guest is another, or that of another guest the same")
	}
}

// However a guest asks, in any time there passes a burst and what the intervals allow, and who waits as long as it is told
// passes.
func TestNeverMoreThanABurstAndOneInEachInterval(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p Pace
		var passed []int64
		now := int64(0)
		for range rapid.IntRange(1, 400).Draw(t, "asks") {
			now += rapid.Int64Range(0, 2*Interval).Draw(t, "pause")
			if !p.Take(now) {
				if rapid.Bool().Draw(t, "impatient") {
					continue
				}
				now += p.Wait(now)
				if !p.Take(now) {
					t.Fatalf("none passes after the wait")
				}
			}
			passed = append(passed, now)
		}
		for first := range passed {
			for last := first; last < len(passed); last++ {
				if n, most := int64(last-first+1), Burst+(passed[last]-passed[first])/Interval; n > most {
					t.Fatalf("%d passed in %d ns, want %d at most", n, passed[last]-passed[first], most)
				}
			}
		}
	})
}
