// SPDX-License-Identifier: Apache-2.0

package ram_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func newRAM(t *testing.T, o ram.Options) *ram.RAM {
	t.Helper()
	r, err := ram.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func TestPagesOfPlainMemoryLieSideBySideAndAboveFourGiB(t *testing.T) {
	r := newRAM(t, ram.Options{Size: 64 * ram.PageSize})
	pages, err := r.Pages(8)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range pages {
		if want := uint64(4<<30 + i*ram.PageSize); p != want {
			t.Errorf("page %d is at %#x, want %#x", i, p, want)
		}
	}
}

func TestARunOfPagesDoesNotCrossTwoRegions(t *testing.T) {
	r := newRAM(t, ram.Options{Size: 16 * ram.PageSize})
	if _, err := r.Pages(6); err != nil {
		t.Fatal(err)
	}
	pages, err := r.Pages(4)
	if err != nil {
		t.Fatal(err)
	}
	if pages[0] >= 4<<30 || pages[3] != pages[0]+3*ram.PageSize {
		t.Errorf("four pages of which two fit the high region are %#x", pages)
	}
}

func TestMoreMemoryThanThereIsIsRefused(t *testing.T) {
	for _, scatter := range []bool{false, true} {
		r := newRAM(t, ram.Options{Size: 16 * ram.PageSize, Scatter: scatter})
		if _, err := r.Pages(17); !errors.Is(err, unix.ENOMEM) {
			t.Errorf("scatter %v: err = %v, want ENOMEM", scatter, err)
		}
	}
}

func TestABufferOfScatteredPagesIsOnePieceForTheProgram(t *testing.T) {
	r := newRAM(t, ram.Options{Size: 256 * ram.PageSize, Scatter: true, Seed: 7})
	b, err := r.Buffer(32 * ram.PageSize)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b.Bytes() {
		b.Bytes()[i] = byte(i / ram.PageSize)
	}

	if slices.IsSorted(b.Pages()) {
		t.Error("the pages are not scattered")
	}
	for i, p := range b.Pages() {
		got, err := r.Bytes(p, ram.PageSize)
		if err != nil {
			t.Fatal(err)
		}
		if got[0] != byte(i) || got[ram.PageSize-1] != byte(i) {
			t.Errorf("page %d at %#x holds %d", i, p, got[0])
		}
		if b.Phys(i*ram.PageSize+5) != p+5 {
			t.Errorf("byte 5 of page %d is at %#x, want %#x", i, b.Phys(i*ram.PageSize+5), p+5)
		}
	}
	if err := b.Free(); err != nil {
		t.Fatal(err)
	}
	if n := r.InUse(); n != 0 {
		t.Errorf("%d pages are in use after the buffer was freed", n)
	}
}

func TestAPageComesZeroedAlsoWhenItWasUsedBefore(t *testing.T) {
	r := newRAM(t, ram.Options{Size: 2 * ram.PageSize})
	for range 3 {
		p, err := r.Page()
		if err != nil {
			t.Fatal(err)
		}
		b, err := r.Bytes(p, ram.PageSize)
		if err != nil {
			t.Fatal(err)
		}
		if i := slices.IndexFunc(b, func(c byte) bool { return c != 0 }); i >= 0 {
			t.Fatalf("byte %d of a fresh page is %#x", i, b[i])
		}
		b[100] = 0xff
		r.Free(p)
	}
}

func TestMemoryOutsideTheRegionsIsNotThere(t *testing.T) {
	r := newRAM(t, ram.Options{Size: 4 * ram.PageSize})
	for _, addr := range []uint64{0, 1<<20 - 1, 1<<20 + 2*ram.PageSize, 4<<30 - 1, ^uint64(0)} {
		if _, err := r.Bytes(addr, 2); !errors.Is(err, unix.EFAULT) {
			t.Errorf("Bytes(%#x): err = %v, want EFAULT", addr, err)
		}
	}
}

func TestNoPageIsHandedOutTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, err := ram.New(ram.Options{
			Size: 64 * ram.PageSize, Scatter: rapid.Bool().Draw(t, "scatter"), Seed: rapid.Uint64().Draw(t, "seed"),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		owner := map[uint64]int{}
		var held [][]uint64
		for step := range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(held) > 0 && rapid.Bool().Draw(t, "free") {
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				r.Free(held[i]...)
				for _, p := range held[i] {
					delete(owner, p)
				}
				held = slices.Delete(held, i, i+1)
				continue
			}
			pages, err := r.Pages(rapid.IntRange(1, 12).Draw(t, "pages"))
			if errors.Is(err, unix.ENOMEM) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range pages {
				if by, taken := owner[p]; taken {
					t.Fatalf("page %#x of step %d was handed out again in step %d", p, by, step)
				}
				owner[p] = step
			}
			held = append(held, pages)
		}
		if n := r.InUse(); n != len(owner) {
			t.Fatalf("%d pages in use, want %d", n, len(owner))
		}
	})
}
