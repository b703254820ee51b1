// SPDX-License-Identifier: Apache-2.0

package guestmem_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/pvrdmad/pvrdmad/guestmem"
)

// shuffled is a list of n pages at base in random order.
func shuffled(base uint64, n int) []uint64 {
	pages := sequence(base, n)
	rand.New(rand.NewPCG(1, 2)).Shuffle(n, func(i, j int) { pages[i], pages[j] = pages[j], pages[i] })
	return pages
}

// BenchmarkCopy compares Copy with plain copies of the same bytes in the same layout: the ratio of the two is what
// checking, translating and guarding cost. Sizes above a page walk through more memory than the caches hold.
func BenchmarkCopy(b *testing.B) {
	const ram = 64 << 20
	d := guestmem.NewDomain()
	src, dst := newGuest(b, d, "src", ram), newGuest(b, d, "dst", ram)
	sizes := []int{64, 4096, 64 << 10, 1 << 20}
	for _, layout := range []struct {
		name  string
		pages func(uint64, int) []uint64
	}{{"adjacent", sequence}, {"scattered", shuffled}} {
		srcList, dstList := layout.pages(0, ram/4096), layout.pages(0, ram/4096)
		sp, dp := src.pin(b, srcList), dst.pin(b, dstList)
		for _, size := range sizes {
			window := uint64(16 * size) // what one loop goes through: small sizes stay in the caches
			if size > 4096 {
				window = ram
			}
			name := fmt.Sprintf("%s/%d", layout.name, size)
			b.Run(name+"/Copy", func(b *testing.B) {
				b.SetBytes(int64(size))
				off := uint64(0)
				for b.Loop() {
					if err := guestmem.Copy(dp, off, sp, off, uint64(size)); err != nil {
						b.Fatal(err)
					}
					off = (off + uint64(size)) % window
				}
			})
			b.Run(name+"/plain", func(b *testing.B) {
				b.SetBytes(int64(size))
				off := uint64(0)
				for b.Loop() {
					plainCopy(dst.ram, dstList, src.ram, srcList, off, uint64(size))
					off = (off + uint64(size)) % window
				}
			})
			b.Run(name+"/CopyFromSpace", func(b *testing.B) {
				b.SetBytes(int64(size))
				off := uint64(0)
				for b.Loop() {
					if err := guestmem.Copy(dp, off, src.Space, off, uint64(size)); err != nil {
						b.Fatal(err)
					}
					off = (off + uint64(size)) % window
				}
			})
		}
	}
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
	g := newGuest(b, guestmem.NewDomain(), "vm", 1<<20)
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
	g := newGuest(b, guestmem.NewDomain(), "vm", 64<<20)
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
