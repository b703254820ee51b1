// SPDX-License-Identifier: Apache-2.0

package pvrdma

import (
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func TestAHandleIsGivenAgainOnlyAfterAllOthersWere(t *testing.T) {
	tab := newTable[int](1, 4)
	for want := range uint32(4) {
		if got := tab.add(new(int)); got != want+1 {
			t.Errorf("fresh handle %d, want %d", got, want+1)
		}
	}
	wantErrno(t, tab.full(), unix.ENOMEM)
	for _, h := range []uint32{3, 1, 4} {
		tab.remove(h)
	}
	for _, want := range []uint32{3, 1, 4} {
		if got := tab.add(new(int)); got != want {
			t.Errorf("handle %d is given again, want %d: the one that is free for longest", got, want)
		}
	}
}

func TestAHandleThatNamesNothingIsFoundNowhere(t *testing.T) {
	tab := newTable[int](1, 4)
	h := tab.add(new(int))
	for _, no := range []uint32{0, h + 1, 4, 5, 1 << 24, 0xffffffff} {
		if tab.get(no) != nil {
			t.Errorf("handle %#x names something", no)
		}
	}
	tab.remove(h)
	if tab.get(h) != nil {
		t.Error("a removed object is still found")
	}
}

func TestATableDoesNotGrowWithItsUse(t *testing.T) {
	const limit = 8
	tab := newTable[int](1, limit)
	for range limit {
		tab.add(new(int))
	}
	// One handle is free at any time, so that the list of free ones never runs empty.
	tab.remove(1)
	for i := range 100_000 {
		tab.remove(uint32(i%limit+1)%limit + 1)
		tab.add(new(int))
	}
	if n := cap(tab.freed); n > 8*limit {
		t.Errorf("the list of free handles takes %d entries for a table of %d", n, limit)
	}
}

func TestAHandleThatIsSetApartIsNobodyElses(t *testing.T) {
	tab := newTable[int](1, 3)
	tab.keep()
	for _, want := range []uint32{2, 3} {
		if next, got := tab.next(), tab.add(new(int)); got != want || next != want {
			t.Errorf("handle %d, announced as %d, want %d", got, next, want)
		}
	}
	wantErrno(t, tab.full(), unix.ENOMEM)
	if tab.get(1) != nil || tab.live != 2 {
		t.Errorf("%v under the handle that was set apart, %d live", tab.get(1), tab.live)
	}
	x := new(int)
	for range 3 {
		tab.put(1, x)
		if tab.get(1) != x || tab.live != 3 || tab.full() == nil {
			t.Fatalf("handle 1 names %v, %d live, full: %v", tab.get(1), tab.live, tab.full())
		}
		tab.remove(1)
		if tab.get(1) != nil || tab.live != 2 || tab.full() == nil {
			t.Fatalf("handle 1 names %v, %d live, full: %v", tab.get(1), tab.live, tab.full())
		}
	}
	tab.remove(3)
	if got := tab.next(); got != 3 || tab.full() != nil {
		t.Errorf("handle %d is next, want 3: %v", got, tab.full())
	}
}

// TestATableIsAQueueOfHandles compares a table with the plainest thing that does the same.
func TestATableIsAQueueOfHandles(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		first := rapid.Uint32Range(0, 2).Draw(r, "first")
		limit := rapid.Uint32Range(1, 12).Draw(r, "limit")
		tab := newTable[int](first, limit)
		var free, live []uint32
		for h := range limit {
			free = append(free, first+h)
		}
		objects := map[uint32]*int{}
		r.Repeat(map[string]func(*rapid.T){
			"add": func(r *rapid.T) {
				if (tab.full() != nil) != (len(free) == 0) {
					r.Fatalf("full says %v with %d handles free", tab.full(), len(free))
				}
				if len(free) == 0 {
					return
				}
				x := new(int)
				h := tab.add(x)
				if h != free[0] {
					r.Fatalf("handle %d, want %d", h, free[0])
				}
				if h < first || h-first >= limit {
					r.Fatalf("handle %d is out of range", h)
				}
				free, live, objects[h] = free[1:], append(live, h), x
			},
			"remove": func(r *rapid.T) {
				if len(live) == 0 {
					return
				}
				i := rapid.IntRange(0, len(live)-1).Draw(r, "which")
				h := live[i]
				tab.remove(h)
				live = append(live[:i:i], live[i+1:]...)
				free = append(free, h)
				delete(objects, h)
			},
			"": func(r *rapid.T) {
				if int(tab.live) != len(live) {
					r.Fatalf("%d live, want %d", tab.live, len(live))
				}
				n := 0
				tab.each(func(*int) { n++ })
				if n != len(live) {
					r.Fatalf("each visits %d objects of %d", n, len(live))
				}
				for h := range limit + 3 {
					if got := tab.get(h); got != objects[h] {
						r.Fatalf("handle %d names %v, want %v", h, got, objects[h])
					}
				}
			},
		})
	})
}
