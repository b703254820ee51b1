// SPDX-License-Identifier: Apache-2.0

package guestmem_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/pvrdmad/pvrdmad/guestmem"
)

// What streams bytes does so in aligned blocks, with a head and a tail: each length and alignment around a block.
func TestALongCopyMovesTheBytesAndNoOthers(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) { longCopies(t, f.domain()) })
}

func longCopies(t *testing.T, d *domain) {
	src, dst := newGuest(t, d, "src", 16*page), newGuest(t, d, "dst", 16*page)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range src.ram {
		src.ram[i] = byte(r.Uint32())
	}
	sp, dp := src.pin(t, sequence(0, 16)), dst.pin(t, sequence(0, 16))
	for _, n := range []int{0, 1, 127, 128, 255, 256, 257, 383, 384, 385, 4096, 5000, 40000} {
		for range 40 {
			from, to := r.IntN(16*page-n), r.IntN(16*page-n)
			for i := range dst.ram {
				dst.ram[i] = byte(i)
			}
			want := bytes.Clone(dst.ram)
			copy(want[to:], src.ram[from:from+n])
			if err := guestmem.CopyLong(dp, uint64(to), sp, uint64(from), uint64(n)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(dst.ram, want) {
				t.Fatalf("%d bytes from %d to %d: the memory is not what it should be", n, from, to)
			}
		}
	}
}

func TestALongCopyOfOverlappingBytesIsThatOfAMove(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) { overlappingCopies(t, f.domain()) })
}

func overlappingCopies(t *testing.T, d *domain) {
	g := newGuest(t, d, "vm", 4*page)
	p := g.pin(t, sequence(0, 4))
	for _, c := range []struct{ from, to, n int }{
		{0, 1, 8000}, {1, 0, 8000}, {0, 128, 8000}, {128, 0, 8000}, {0, 7999, 8000}, {7999, 0, 8000}, {64, 64, 8000},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			for i := range g.ram {
				g.ram[i] = byte(i * i >> 3)
			}
			want := bytes.Clone(g.ram)
			copy(want[c.to:], want[c.from:c.from+c.n])
			if err := guestmem.CopyLong(p, uint64(c.to), p, uint64(c.from), uint64(c.n)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(g.ram, want) {
				t.Error("the memory is not what a move leaves")
			}
		})
	}
}
