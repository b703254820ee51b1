// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// tableModel is a list of regions without order, searched from end to end.
type tableModel []*region

func (m tableModel) find(addr uint64) *region {
	for _, r := range m {
		if addr >= r.addr && addr <= r.last() {
			return r
		}
	}
	return nil
}

func (m tableModel) overlaps(addr, size uint64) bool {
	for _, r := range m {
		if r.addr <= addr+(size-1) && addr <= r.last() {
			return true
		}
	}
	return false
}

// checkTable compares a table with the model at all borders, and looks at its shape.
func checkTable(t *rapid.T, tab *table, m tableModel) {
	n, prev := 0, uint64(0)
	tab.all(func(r *region) {
		if n > 0 && r.addr <= prev {
			t.Fatal("regions are out of order")
		}
		n, prev = n+1, r.last()
	})
	if n != len(m) || tab.n != n {
		t.Fatalf("table holds %d regions and says %d, model %d", n, tab.n, len(m))
	}
	for i, c := range tab.chunks {
		if len(c) == 0 || len(c) > chunkMax {
			t.Fatalf("chunk %d of %d has %d regions", i, len(tab.chunks), len(c))
		}
	}
	for i := 0; i < len(m); i += 1 + len(m)/30 {
		r := m[i]
		for _, addr := range []uint64{r.addr - 1, r.addr, r.last(), r.last() + 1} {
			if got, want := tab.find(addr), m.find(addr); got != want {
				t.Fatalf("find %#x: %v, want %v", addr, got, want)
			}
		}
	}
}

func TestATableAgreesWithASearchFromEndToEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tab, m := &table{}, tableModel{}
		// Few regions in a small space meet often; many regions make chunks split and merge.
		width := rapid.SampledFrom([]uint64{40, 4000, 1 << 30}).Draw(t, "width")
		insert := func(addr, size uint64) {
			r := &region{addr: addr, size: size}
			overlap := tab.overlap(addr, size)
			if (overlap != nil) != m.overlaps(addr, size) {
				t.Fatalf("overlap with %#x+%#x: %v", addr, size, overlap)
			}
			if overlap != nil {
				return
			}
			before, n := tab, tab.n
			tab = tab.insert(r)
			m = append(m, r)
			if before.n != n || before.find(addr) != nil {
				t.Fatal("insert has changed the old table")
			}
		}
		remove := func(i int) {
			r, before := m[i], tab
			tab = tab.without(r.addr, r.last())
			m[i] = m[len(m)-1]
			m = m[:len(m)-1]
			if before.find(r.addr) != r {
				t.Fatal("remove has changed the old table")
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { checkTable(t, tab, m) },
			"insert": func(t *rapid.T) {
				insert(rapid.Uint64Range(0, width).Draw(t, "addr"), rapid.Uint64Range(1, 9).Draw(t, "size"))
			},
			"insert many": func(t *rapid.T) {
				base, step := rapid.Uint64Range(0, width).Draw(t, "addr"), rapid.Uint64Range(1, 5).Draw(t, "step")
				for i := range rapid.Uint64Range(0, 300).Draw(t, "n") {
					insert(base+i*step, 1)
				}
			},
			"remove": func(t *rapid.T) {
				if len(m) == 0 {
					t.Skip("empty")
				}
				remove(rapid.IntRange(0, len(m)-1).Draw(t, "i"))
			},
			"remove a range": func(t *rapid.T) {
				addr := rapid.Uint64Range(0, width).Draw(t, "addr")
				last := addr + rapid.Uint64Range(0, width/4).Draw(t, "size")
				tab = tab.without(addr, last)
				m = slices.DeleteFunc(m, func(r *region) bool { return r.addr >= addr && r.addr <= last })
			},
			"remove many": func(t *rapid.T) {
				keep := rapid.IntRange(0, 300).Draw(t, "keep")
				for len(m) > keep {
					remove(len(m) / 2)
				}
			},
		})
	})
}

func TestRegionsThatAreMostlyGoneLeaveFewChunks(t *testing.T) {
	tab := &table{}
	var regions []*region
	for i := range uint64(MaxRegions) {
		r := &region{addr: i, size: 1}
		regions = append(regions, r)
		tab = tab.insert(r)
	}
	for i, r := range regions {
		if i%200 != 0 {
			tab = tab.without(r.addr, r.last())
		}
	}
	if tab.n != 328 || len(tab.chunks) > 16 {
		t.Fatalf("%d regions in %d chunks", tab.n, len(tab.chunks))
	}
}
