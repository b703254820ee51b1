// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"encoding/binary"
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/testguest/driver"
	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"pgregory.net/rapid"
)

func load(t *testing.T) *layout.Layout {
	t.Helper()
	l, err := layout.Load()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestTheDevicesOwnRingsUseAThirdOfTheirSlots(t *testing.T) {
	for name, c := range map[string]struct{ n, cycle, slots, event, slot uint32 }{
		"async events":     {n: 1536, cycle: 1024, slots: 512, event: 600, slot: 88},
		"CQ notifications": {n: 3072, cycle: 2048, slots: 1024, event: 1500, slot: 476},
	} {
		t.Run(name, func(t *testing.T) {
			r := driver.NewRing(load(t), make([]byte, 16), "rx")
			seen := map[uint32]bool{}
			steps := uint32(0)
			for {
				r.SetProd(driver.IdxInc(r.Cons(), c.n)) // one element is there
				v, slot := r.HasData(c.n)
				if v != driver.Yes {
					t.Fatalf("step %d: verdict %d", steps, v)
				}
				if steps == c.event && slot != c.slot {
					t.Errorf("event %d lies in slot %d, want %d", steps, slot, c.slot)
				}
				seen[slot] = true
				r.Consume(c.n)
				if steps++; r.Cons() == 0 {
					break
				}
			}
			if steps != c.cycle || uint32(len(seen)) != c.slots {
				t.Errorf("the index returns after %d steps through %d slots, want %d and %d",
					steps, len(seen), c.cycle, c.slots)
			}
		})
	}
}

func TestAnIndexBeyondTheRingIsInvalidOnBothSides(t *testing.T) {
	r := driver.NewRing(load(t), make([]byte, 16), "tx")
	for _, bad := range []uint32{16, 1 << 31, 0xffffffff} {
		r.SetProd(bad)
		if v, _ := r.HasData(8); v != driver.Invalid {
			t.Errorf("HasData with producer %#x: verdict %d", bad, v)
		}
		if v, _ := r.HasSpace(8); v != driver.Invalid {
			t.Errorf("HasSpace with producer %#x: verdict %d", bad, v)
		}
	}
}

func TestARingOfAPowerOfTwoHoldsThatManyElementsInOrder(t *testing.T) {
	l := load(t)
	rapid.Check(t, func(t *rapid.T) {
		n := uint32(1) << rapid.IntRange(0, 6).Draw(t, "log n")
		r := driver.NewRing(l, make([]byte, 16), "rx")
		slots := make([]int, n)
		produced, consumed := 0, 0
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "produce") {
				v, slot := r.HasSpace(n)
				if (v == driver.Yes) != (produced-consumed < int(n)) {
					t.Fatalf("%d of %d elements: has space says %d", produced-consumed, n, v)
				}
				if v == driver.Yes {
					slots[slot] = produced
					produced++
					r.Produce(n)
				}
				continue
			}
			v, slot := r.HasData(n)
			if (v == driver.Yes) != (produced > consumed) {
				t.Fatalf("%d elements: has data says %d", produced-consumed, v)
			}
			if v == driver.Yes {
				if slots[slot] != consumed {
					t.Fatalf("element %d comes out as %d", consumed, slots[slot])
				}
				consumed++
				r.Consume(n)
			}
		}
	})
}

func TestAPageDirectoryNamesEveryPageThroughItsTables(t *testing.T) {
	r, err := ram.New(ram.Options{Size: 4 << 20, Scatter: true, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	pages, err := r.Pages(600) // more than one table holds
	if err != nil {
		t.Fatal(err)
	}
	d, err := driver.NewPageDir(load(t), r, pages)
	if err != nil {
		t.Fatal(err)
	}
	entry := func(page uint64, i int) uint64 {
		b, err := r.Bytes(page+uint64(8*i), 8)
		if err != nil {
			t.Fatal(err)
		}
		return binary.LittleEndian.Uint64(b)
	}
	for i, want := range pages {
		if got := entry(entry(d.Addr(), i/512), i%512); got != want {
			t.Fatalf("page %d is %#x, want %#x", i, got, want)
		}
	}
	if got := entry(d.Addr(), 2); got != 0 {
		t.Errorf("the third table's entry is %#x, want 0", got)
	}
	d.Free()
	if n := r.InUse(); n != len(pages) {
		t.Errorf("%d pages are in use after the directory was freed, want %d", n, len(pages))
	}
}
