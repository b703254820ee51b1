// SPDX-License-Identifier: Apache-2.0

package pvrdma

import "testing"

func TestAFifoGivesBackWhatItTookInOrder(t *testing.T) {
	var f fifo[int]
	in, out := 0, 0
	for round := range 200 {
		for range round % 17 {
			f.push(in)
			in++
		}
		for range min(f.len(), round%13) {
			if f.front() != out {
				t.Fatalf("the front is %d, want %d", f.front(), out)
			}
			x := f.pop()
			if round%5 == 0 {
				f.putBack(x)
				x = f.pop()
			}
			if x != out {
				t.Fatalf("%d came out, want %d", x, out)
			}
			out++
		}
		if f.len() != in-out {
			t.Fatalf("the length is %d, want %d", f.len(), in-out)
		}
	}
}

func TestAFifoInUseAllocatesNothingAndHoldsNothing(t *testing.T) {
	var f fifo[*int]
	x := new(int)
	for range 100 {
		f.push(x)
	}
	turn := func() {
		f.push(f.pop())
	}
	for range 1000 {
		turn()
	}
	if n := testing.AllocsPerRun(1000, turn); n != 0 {
		t.Errorf("%v allocations for one turn", n)
	}
	for f.len() > 0 {
		f.pop()
	}
	for _, p := range f.items[:cap(f.items)] {
		if p != nil {
			t.Fatal("an empty queue holds on to an element")
		}
	}
}
