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

// inRuns is a list of n pages at base in runs of length pages, the runs in random order.
func inRuns(base uint64, n, length int) []uint64 {
	var pages []uint64
	for _, i := range rand.New(rand.NewPCG(3, 4)).Perm(n / length) {
		pages = append(pages, sequence(base+uint64(i*length)*page, length)...)
	}
	return pages
}

// BenchmarkScatter compares what a copy costs by a run list, through a window, and between memory that is contiguous
// anyway, in turns. The figures are medians: GB/s of each, and the two as a share of the contiguous copy.
func BenchmarkScatter(b *testing.B) {
	for _, region := range []uint64{256 << 10, 1 << 20, 8 << 20, 16 << 20, 64 << 20} {
		for _, length := range []int{1, 4, 16, 64, 256} {
			for _, size := range []uint64{64 << 10, 256 << 10, 1 << 20} {
				if size > region || uint64(length)*page > region {
					continue
				}
				b.Run(fmt.Sprintf("region=%dK/run=%d/copy=%dK", region>>10, length, size>>10), func(b *testing.B) {
					scatter(b, region, length, size)
				})
			}
		}
	}
}

// asEngine copies a message as the engine does: in parts of 256 KiB, and past the caches if it is of 1 MiB and more.
func asEngine(dst, src guestmem.Memory, off, size uint64) error {
	const part, long = 256 << 10, 1 << 20
	how := guestmem.Copy
	if size >= long {
		how = guestmem.CopyLong
	}
	for ; size > 0; size, off = size-min(size, part), off+part {
		if err := how(dst, off, src, off, min(size, part)); err != nil {
			return err
		}
	}
	return nil
}

func scatter(b *testing.B, region uint64, length int, size uint64) {
	n := int(region / page)
	var way [3]func(off uint64) error
	for i, f := range bothForms {
		d := f.domain()
		src, dst := newGuest(b, d, "src", int64(region)), newGuest(b, d, "dst", int64(region))
		sp, dp := src.pin(b, inRuns(0, n, length)), dst.pin(b, inRuns(0, n, length))
		way[i] = func(off uint64) error { return asEngine(dp, sp, off, size) }
	}
	d := noLists()
	src, dst := newGuest(b, d, "src", int64(region)), newGuest(b, d, "dst", int64(region))
	way[2] = func(off uint64) error { copy(dst.ram[off:off+size], src.ram[off:off+size]); return nil }

	turn := max(int(4<<20/size), 4)
	off := uint64(0)
	var speed [3][]float64
	var share [2][]float64
	for b.Loop() {
		var now [3]float64
		for i, f := range way {
			var begin time.Time
			for range 2 { // the first finds the caches as others left them
				begin = time.Now()
				for range turn {
					if err := f(off); err != nil {
						b.Fatal(err)
					}
					off = (off + size) % region
				}
			}
			now[i] = float64(size) * float64(turn) / float64(time.Since(begin).Nanoseconds())
			speed[i] = append(speed[i], now[i])
		}
		share[0], share[1] = append(share[0], now[0]/now[2]), append(share[1], now[1]/now[2])
	}
	median := func(v []float64) float64 { slices.Sort(v); return v[len(v)/2] }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(speed[0]), "list-GB/s")
	b.ReportMetric(median(speed[1]), "window-GB/s")
	b.ReportMetric(median(speed[2]), "contiguous-GB/s")
	b.ReportMetric(median(share[0]), "list/contiguous")
	b.ReportMetric(median(share[1]), "window/contiguous")
}

// BenchmarkPinContiguous says what a window costs when it is made and given back, beside the list alone.
func BenchmarkPinContiguous(b *testing.B) {
	for _, n := range []int{256, 4096} {
		for _, length := range []int{1, 16} {
			for _, f := range bothForms {
				b.Run(fmt.Sprintf("%d/run=%d/%s", n, length, f.name), func(b *testing.B) {
					g := newGuest(b, f.domain(), "vm", 16<<20)
					list := inRuns(0, n, length)
					for b.Loop() {
						p, err := g.PinContiguous(list, rw)
						if err != nil || p.Window() != (f.windows.Budget > 0) {
							b.Fatal(err, p.Scattered())
						}
						p.Release()
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n/length), "ns/run")
				})
			}
		}
	}
}
