// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"slices"
	"testing"
)

// withGuests is a worker of n devices, without a thread.
func withGuests(n int) *Worker {
	w := &Worker{}
	for range n {
		w.devices = append(w.devices, &Device{})
	}
	return w
}

func TestAWorkerThatSpinsLooksAtQuietGuestsAFewAtATime(t *testing.T) {
	const guests = 64
	w := withGuests(guests)
	active := w.devices[7]
	w.note(active, true)
	looks := map[*Device]int{}
	for range guests / slice {
		w.choose(true)
		if len(w.chosen) > 1+slice {
			t.Fatalf("a pass looks at %d guests, want the active one and %d others at most", len(w.chosen), slice)
		}
		for _, d := range w.chosen {
			looks[d]++
		}
	}
	for i, d := range w.devices {
		want := 1
		if d == active {
			want = guests / slice
		}
		if looks[d] != want {
			t.Errorf("guest %d was looked at %d times in %d passes, want %d", i, looks[d], guests/slice, want)
		}
	}
}

func TestAWorkerThatMaySleepLooksAtAllGuests(t *testing.T) {
	w := withGuests(64)
	w.choose(false)
	if !slices.Equal(w.chosen, w.devices) {
		t.Errorf("it looks at %d of %d guests", len(w.chosen), len(w.devices))
	}
}

func TestAGuestIsQuietAfterManyLooksInVain(t *testing.T) {
	w := withGuests(64)
	d := w.devices[0]
	w.note(d, true)
	for range quietPasses {
		w.note(d, false)
	}
	if !d.lively {
		t.Error("it is quiet too soon")
	}
	d.busy = true
	w.note(d, false)
	d.busy = false
	for range quietPasses + 1 {
		w.note(d, false)
	}
	if d.lively || len(w.lively) != 0 {
		t.Error("it is never quiet")
	}
}

func TestBusyGuestsHaveTheirTurnsInOrder(t *testing.T) {
	w := withGuests(5)
	for _, i := range []int{4, 1, 3} {
		w.devices[i].busy = true
		w.note(w.devices[i], false)
	}
	var turns []*Device
	for range 6 {
		turns = append(turns, w.nextBusy())
	}
	if !slices.Equal(turns[:3], turns[3:]) || turns[0] == turns[1] || turns[1] == turns[2] || turns[0] == turns[2] {
		t.Errorf("turns %v", turns)
	}
	w.forget(w.devices[1])
	for range 4 {
		if w.nextBusy() == w.devices[1] {
			t.Error("a guest that is gone has a turn")
		}
	}
}
