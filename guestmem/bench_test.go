// SPDX-License-Identifier: Apache-2.0

package guestmem_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/guestmem"
)

// shuffled is a list of n pages at base in random order.
func shuffled(base uint64, n int) []uint64 {
	pages := sequence(base, n)
	rand.New(rand.NewPCG(1, 2)).Shuffle(n, func(i, j int) { pages[i], pages[j] = pages[j], pages[i] })
	return pages
}

// BenchmarkCopy compares Copy with plain copies of the same bytes in the same layout, in turns, because only figures of
// the same moment can be compared. plain/copy is what is left of the plain copy's speed: the median of all turns.
// Sizes above a page walk through more memory than the caches hold.
func BenchmarkCopy(b *testing.B) {
	const ram = 64 << 20
	d := runList.domain()
	src, dst := newGuest(b, d, "src", ram), newGuest(b, d, "dst", ram)
	for _, layout := range []struct {
		name  string
		pages func(uint64, int) []uint64
	}{{"adjacent", sequence}, {"scattered", shuffled}} {
		srcList, dstList := layout.pages(0, ram/4096), layout.pages(0, ram/4096)
		sp, dp := src.pin(b, srcList), dst.pin(b, dstList)
		plain := func(off, n uint64) error {
			plainCopy(dst.ram, dstList, src.ram, srcList, off, n)
			return nil
		}
		pages := func(off, n uint64) error { return guestmem.Copy(dp, off, sp, off, n) }
		space := func(off, n uint64) error { return guestmem.Copy(dp, off, src.Space, off, n) }
		for _, size := range []uint64{64, 4096, 64 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("%s/%d/pages", layout.name, size), func(b *testing.B) { inTurns(b, size, ram, plain, pages) })
			b.Run(fmt.Sprintf("%s/%d/space", layout.name, size), func(b *testing.B) { inTurns(b, size, ram, plain, space) })
		}
	}
}

// inTurns times copies of size bytes through plain and through ours.
func inTurns(b *testing.B, size, ram uint64, plain, ours func(off, n uint64) error) {
	window := 16 * size // small sizes stay in the caches
	if size > 4096 {
		window = ram
	}
	turn := max(1<<20/size, 16)
	if size < 4096 {
		turn = 2000
	}
	run := func(f func(off, n uint64) error) float64 {
		begin := time.Now()
		off := uint64(0)
		for range turn {
			if err := f(off, size); err != nil {
				b.Fatal(err)
			}
			off = (off + size) % window
		}
		return float64(time.Since(begin).Nanoseconds()) / float64(turn)
	}
	var ratios, times []float64
	for b.Loop() {
		run(plain) // both find the caches as they left them themselves
		p := run(plain)
		run(ours)
		o := run(ours)
		ratios, times = append(ratios, p/o), append(times, o)
	}
	slices.Sort(ratios)
	slices.Sort(times)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(times[len(times)/2], "ns/copy")
	b.ReportMetric(float64(size)/times[len(times)/2], "GB/s")
	b.ReportMetric(ratios[len(ratios)/2], "plain/copy")
}

// plainCopy copies as a program without guests would: adjacent pages at once, others page by page.
func plainCopy(dst []byte, dstList []uint64, src []byte, srcList []uint64, off, n uint64) {
	if dstList[1] == 4096 && srcList[1] == 4096 {
		copy(dst[off:off+n], src[off:off+n])
		return
	}
	for n > 0 {
		in := off % 4096
		k := min(n, 4096-in)
		d, s := dstList[off/4096]+in, srcList[off/4096]+in
		copy(dst[d:d+k], src[s:s+k])
		off += k
		n -= k
	}
}

func BenchmarkWord(b *testing.B) {
	g := newGuest(b, runList.domain(), "vm", 1<<20)
	one := g.pin(b, sequence(0, 2))
	many := g.pin(b, shuffled(0, 256))
	b.Run("Load32", func(b *testing.B) {
		for b.Loop() {
			if _, err := one.Load32(64); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Store32", func(b *testing.B) {
		for b.Loop() {
			if err := one.Store32(64, 1); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Load32Scattered", func(b *testing.B) {
		for b.Loop() {
			if _, err := many.Load32(64 << 10); err != nil {
				b.Fatal(err)
			}
		}
	})
	var wqe [128]byte
	b.Run("Read128", func(b *testing.B) {
		for b.Loop() {
			if err := one.Read(4096, wqe[:]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Read128Plain", func(b *testing.B) {
		for b.Loop() {
			copy(wqe[:], g.ram[4096:4096+128])
		}
	})
	b.Run("SpaceRead128", func(b *testing.B) {
		for b.Loop() {
			if err := g.Read(4096, wqe[:]); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkPin(b *testing.B) {
	g := newGuest(b, runList.domain(), "vm", 64<<20)
	for _, n := range []int{16, 1024, 16384} {
		for name, list := range map[string][]uint64{"adjacent": sequence(0, n), "scattered": shuffled(0, n)} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				for b.Loop() {
					p, err := g.Pin(list, guestmem.ProtRead)
					if err != nil {
						b.Fatal(err)
					}
					p.Release()
				}
			})
		}
	}
}
