// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pvrdmad/pvrdmad/internal/testguest/driver"
	"github.com/pvrdmad/pvrdmad/internal/testguest/layout"
	"github.com/pvrdmad/pvrdmad/internal/testguest/ram"
	"pgregory.net/rapid"
)

// A queue whose queue pairs come and go holds, after each cleaning, what it held before without the one's completions,
// in the same order, and the producer's index was not touched.
func TestCleaningAQueueTakesOutOneQueuePairsCompletionsOnly(t *testing.T) {
	l, err := layout.Load()
	if err != nil {
		t.Fatal(err)
	}
	r, err := ram.New(ram.Options{Size: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	buf, err := r.Buffer(2 * ram.PageSize)
	if err != nil {
		t.Fatal(err)
	}
	q := &CQ{
		N: 8, Ctx: &Context{l: l, f: newFields(l)}, mem: &object{bufs: []*ram.Buffer{buf}},
		ring: driver.NewRing(l, buf.Bytes(), "rx"),
	}
	rapid.Check(t, func(t *rapid.T) {
		begin := uint32(rapid.IntRange(0, 15).Draw(t, "begin"))
		q.ring.SetProd(begin)
		q.ring.SetCons(begin)
		qps := rapid.SliceOfN(rapid.Uint64Range(1, 3), 0, 8).Draw(t, "queue pairs of the completions")
		var want []uint64
		for i, qp := range qps {
			e := q.entry(q.ring.Prod() & (q.N - 1))
			q.Ctx.f.cqe.qp.Put(e, qp)
			q.Ctx.f.cqe.wrID.Put(e, uint64(i))
			q.ring.Produce(q.N)
			if qp != 2 {
				want = append(want, uint64(i))
			}
		}
		prod := q.ring.Prod()

		q.clean(2)

		var got []uint64
		for v, slot := q.ring.HasData(q.N); v == driver.Yes; v, slot = q.ring.HasData(q.N) {
			got = append(got, q.Ctx.f.cqe.wrID.Get(q.entry(slot)))
			q.ring.Consume(q.N)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("completions left (-want +got):\n%s", diff)
		}
		if q.ring.Prod() != prod {
			t.Fatalf("the producer's index went from %d to %d", prod, q.ring.Prod())
		}
	})
}

func TestSizesAreThoseOfTheGoldenVectors(t *testing.T) {
	l, err := layout.Load()
	if err != nil {
		t.Fatal(err)
	}
	f := newFields(l)
	stride := func(head int, sges ...uint32) []uint32 {
		var out []uint32
		for _, n := range sges {
			out = append(out, roundUp(uint32(head+f.sgeSize*int(n))))
		}
		return out
	}
	if got := stride(f.sqSize, 1, 2, 3, 4, 8, 11, 12, 16, 27, 28); !slices.Equal(got,
		[]uint32{128, 128, 128, 256, 256, 256, 512, 512, 512, 1024}) {
		t.Errorf("send strides %v", got)
	}
	if got := stride(f.rqSize, 1, 2, 3, 4, 7, 8, 16); !slices.Equal(got, []uint32{32, 64, 64, 128, 128, 256, 512}) {
		t.Errorf("receive strides %v", got)
	}
}
