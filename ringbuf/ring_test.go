// SPDX-License-Identifier: Apache-2.0

package ringbuf_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/pvrdmad/pvrdmad/ringbuf"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func mustRing(t testing.TB, n uint32) ringbuf.Ring {
	t.Helper()
	r, err := ringbuf.NewRing(n)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestARingHasAPowerOfTwoEntries(t *testing.T) {
	for n, ok := range map[uint32]bool{
		0: false, 1: true, 2: true, 3: false, 512: true, 1536: false, ringbuf.MaxRing: true, math.MaxUint32: false,
	} {
		r, err := ringbuf.NewRing(n)
		if (err == nil) != ok || (err != nil && !errors.Is(err, unix.EINVAL)) || (ok && r.N != n) {
			t.Errorf("%d entries: %+v, %v", n, r, err)
		}
	}
	if (ringbuf.Ring{}).Valid(0) {
		t.Error("the zero Ring has a valid index")
	}
}

// Small rings are looked at in all states there are, the impossible ones included.
func TestSmallRingsAgreeWithTheDriverInEveryState(t *testing.T) {
	for _, n := range []uint32{1, 2, 4, 8, 16} {
		r := mustRing(t, n)
		for prod := range 4*n + 3 {
			for cons := range 4*n + 3 {
				compare(t, r, prod, cons)
			}
		}
	}
}

// fataler is what testing.T and rapid.T have in common here.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// compare holds one state against the driver's functions.
func compare(t fataler, r ringbuf.Ring, prod, cons uint32) {
	t.Helper()
	d := driver{n: r.N, prod: prod, cons: cons}
	at := fmt.Sprintf("N %d, prod %#x, cons %#x", r.N, prod, cons)
	if r.Valid(prod) != d.idxValid(prod) {
		t.Fatalf("%s: Valid(prod) is %v", at, r.Valid(prod))
	}
	n, ok := r.Pending(prod, cons)
	free, freeOK := r.Free(prod, cons)
	space, fill := d.hasSpace()
	data, read := d.hasData()
	if space == invalid {
		if ok || freeOK || n != 0 || free != 0 {
			t.Fatalf("%s: the driver calls it invalid, Pending is %d, %v", at, n, ok)
		}
		return
	}
	ahead := uint64(prod) - uint64(cons)
	if prod < cons {
		ahead += 2 * uint64(r.N)
	}
	if ok != (ahead <= uint64(r.N)) || freeOK != ok {
		t.Fatalf("%s: producer is %d ahead, Pending says %v", at, ahead, ok)
	}
	if !ok {
		return
	}
	if uint64(n) != ahead || free != r.N-n {
		t.Fatalf("%s: producer is %d ahead, Pending %d, Free %d", at, ahead, n, free)
	}
	if r.Full(prod, cons) != (space == 0) || r.Empty(prod, cons) != (data == 0) {
		t.Fatalf("%s: Full %v, Empty %v; the driver has space %d, data %d", at, r.Full(prod, cons), r.Empty(prod, cons), space, data)
	}
	if r.Full(prod, cons) != (n == r.N) || r.Empty(prod, cons) != (n == 0) {
		t.Fatalf("%s: Full %v, Empty %v, Pending %d", at, r.Full(prod, cons), r.Empty(prod, cons), n)
	}
	if r.Slot(prod) != fill || r.Slot(cons) != read || int64(r.Slot(prod)) != d.idx(prod) {
		t.Fatalf("%s: slots %d and %d, the driver's are %d and %d", at, r.Slot(prod), r.Slot(cons), fill, read)
	}
	d.inc(&d.prod)
	if r.Inc(prod) != d.prod || r.Add(prod, 1) != d.prod || r.Add(prod, 2*r.N) != prod {
		t.Fatalf("%s: Inc is %#x, the driver's %#x", at, r.Inc(prod), d.prod)
	}
}

func TestARingAgreesWithTheDriver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := uint32(1) << rapid.IntRange(0, 31).Draw(t, "log2 N")
		r := ringbuf.Ring{N: n}
		index := rapid.OneOf(
			rapid.Uint32Range(0, 2*n-1), rapid.Uint32(),
			rapid.SampledFrom([]uint32{0, n - 1, n, n + 1, 2*n - 1, 2 * n, 2*n + 1, math.MaxUint32}),
		)
		compare(t, r, index.Draw(t, "prod"), index.Draw(t, "cons"))
	})
}

// A guest that fills and a device that empties, in any rhythm and from anywhere in the ring, see the same entries in the
// same order. The largest ring's index is the whole 32-bit counter, and most runs lead over its end.
func TestADeviceReadsWhatADriverWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := uint32(1) << rapid.SampledFrom([]int{0, 1, 2, 3, 5, 9, 16, 30, 31}).Draw(t, "log2 N")
		r, d := ringbuf.Ring{N: n}, driver{n: n}
		start := (0 - rapid.Uint32Range(0, 100).Draw(t, "steps before the end")) & (2*n - 1)
		d.prod, d.cons = start, start
		slots := map[uint32]int{}
		cons, written, read := start, 0, 0
		for _, fill := range rapid.SliceOfN(rapid.Bool(), 0, 300).Draw(t, "steps") {
			if fill {
				ok, slot := d.hasSpace()
				if (ok == 1) != (written-read < int(n)) {
					t.Fatalf("the driver sees room: %d, with %d of %d outstanding", ok, written-read, n)
				}
				if ok == 1 {
					written++
					slots[slot] = written
					d.inc(&d.prod)
				}
				continue
			}
			pending, ok := r.Pending(d.prod, cons)
			if !ok || int(pending) != written-read {
				t.Fatalf("Pending is %d, %v; %d were written and %d read", pending, ok, written, read)
			}
			if pending > 0 {
				read++
				if got := slots[r.Slot(cons)]; got != read {
					t.Fatalf("read entry %d, want %d", got, read)
				}
				cons = r.Inc(cons)
				d.cons = cons
			}
		}
		if d.prod != r.Add(start, uint32(written)) || cons != r.Add(start, uint32(read)) {
			t.Fatalf("indices %#x and %#x after %d and %d steps from %#x", d.prod, cons, written, read, start)
		}
	})
}
