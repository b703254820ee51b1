// SPDX-License-Identifier: Apache-2.0

package guestmem_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"golang.org/x/sys/unix"
)

func TestAPageListThatCannotBePinnedIsRefusedWithThePageAtFault(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		s := f.domain().NewSpace("vm1")
		defer s.Close()
		fd := memfd(t, 4*page)
		for addr, r := range map[uint64]struct {
			fd   int
			prot guestmem.Prot
		}{0: {fd, rw}, page: {fd, guestmem.ProtRead}, 2 * page: {-1, rw}, 3 * page: {fd, guestmem.ProtWrite}} {
			if err := s.Map(addr, page, r.fd, 0, r.prot); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []struct {
			name  string
			pages []uint64
			prot  guestmem.Prot
			want  error
			says  string
		}{
			{"no pages", nil, rw, unix.EINVAL, "pin 0 pages"},
			{"too many pages", make([]uint64, guestmem.MaxPinPages+1), rw, unix.EINVAL, "262144 allowed"},
			{"a hole", []uint64{0, 9 * page}, rw, unix.EFAULT, "page 1 of 2 at 0x9000: no memory there"},
			{"misaligned", []uint64{0, 0, 8}, rw, unix.EFAULT, "page 2 of 3 at 0x8: not aligned"},
			{"read-only memory for writing", []uint64{page}, rw, unix.EFAULT, "does not allow it"},
			{"write-only memory for reading", []uint64{3 * page}, guestmem.ProtRead, unix.EFAULT, "does not allow it"},
			{"no descriptor", []uint64{2 * page}, guestmem.ProtRead, unix.EFAULT, "share=on"},
		} {
			t.Run(c.name, func(t *testing.T) {
				p, err := s.PinContiguous(c.pages, c.prot)
				if p != nil {
					t.Fatal("pinned")
				}
				mustFail(t, err, c.want, "vm1")
				if !strings.Contains(err.Error(), c.says) {
					t.Fatalf("error %q does not say %q", err, c.says)
				}
				if n := s.Stats().Pinned; n != 0 {
					t.Fatalf("%d pages are left pinned", n)
				}
			})
		}
	})
}

func TestTheLongestListHoldsWhatItShould(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		const n = guestmem.MaxPinPages
		g := newGuest(t, f.domain(), "vm1", 16*page)
		for name, c := range map[string]struct {
			at   func(i int) uint64
			runs int
			list uint64
		}{
			"one page again and again": {func(int) uint64 { return 3 * page }, n, 8 * n},
			"every other page":         {func(i int) uint64 { return uint64(i%8) * 2 * page }, n, 8 * n},
			"sixteen pages in a run":   {func(i int) uint64 { return uint64(i%16) * page }, n / 16, n},
		} {
			t.Run(name, func(t *testing.T) {
				pages := make([]uint64, n)
				for i := range pages {
					pages[i] = c.at(i)
				}
				// The first two need more mappings than the budget has, and stay run lists.
				p, err := g.PinContiguous(pages, rw)
				if err != nil {
					t.Fatal(err)
				}
				defer p.Release()
				if p.Window() != (c.runs < n && f == windowed) {
					t.Fatalf("list of %d runs: window %v, %v", p.Runs(), p.Window(), p.Scattered())
				}
				if p.Len() != n*page || p.Runs() != c.runs || p.ListBytes() != c.list {
					t.Fatalf("length %#x, %d runs, %d bytes of list; want %d and %d", p.Len(), p.Runs(), p.ListBytes(), c.runs, c.list)
				}
				for _, i := range []int{0, 1, 17, 4095, n/2 + 3, n - 1} {
					want := fmt.Sprintf("page %d", i)
					if err := p.Write(uint64(i)*page+8, []byte(want)); err != nil {
						t.Fatal(err)
					}
					got := g.ram[c.at(i)+8:][:len(want)]
					if string(got) != want {
						t.Fatalf("page %d: wrote %q, memory holds %q", i, want, got)
					}
				}
			})
		}
	})
}

func TestAListAcrossManyRegionsAndFilesHoldsWhatItShould(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		s := f.domain().NewSpace("vm1")
		defer s.Close()
		const regions = 60
		var fds [3]int
		for i := range fds {
			fds[i] = memfd(t, regions*page)
		}
		var pages []uint64
		for i := range uint64(regions) {
			if err := s.Map(i*2*page, page, fds[i%3], i*page, rw); err != nil {
				t.Fatal(err)
			}
			pages = append(pages, i*2*page, 0) // and the first region again and again
		}
		p, err := s.PinContiguous(pages, rw)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Release()
		for i := range uint64(regions) {
			if err := p.Write(2*i*page, []byte{byte(i + 1)}); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 1)
			if _, err := unix.Pread(fds[i%3], got, int64(i*page)); err != nil || got[0] != byte(i+1) {
				t.Fatalf("region %d holds %d, %v", i, got[0], err)
			}
		}
		if err := s.Unmap(2*(regions-1)*page, page); err != nil {
			t.Fatal(err)
		}
		if !p.Revoked() {
			t.Fatal("the list survives one of its regions")
		}
	})
}

func TestAccessesBeyondAListAreRefusedAndChangeNothing(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		g := newGuest(t, f.domain(), "vm1", 8*page)
		for name, pages := range map[string][]uint64{
			"one run": {0, page}, "runs": {0, page, 4 * page, 5 * page}, "scattered": {0, 5 * page},
		} {
			t.Run(name, func(t *testing.T) {
				p := g.pin(t, pages)
				n := p.Len()
				before := bytes.Clone(g.ram)
				for _, r := range []struct{ off, n uint64 }{
					{n - 4, 8}, {n, 1}, {n + 1, 0}, {n + 1, 1}, {1<<64 - 8, 8}, {1<<64 - 1, 2},
				} {
					b := bytes.Repeat([]byte{0xff}, int(r.n))
					for what, err := range map[string]error{
						"Write": p.Write(r.off, b), "Read": p.Read(r.off, b),
						"Copy to": guestmem.Copy(p, r.off, p, 0, r.n), "Copy from": guestmem.Copy(p, 0, p, r.off, r.n),
					} {
						if !errors.Is(err, unix.EFAULT) {
							t.Errorf("%s %#x+%#x: %v", what, r.off, r.n, err)
						}
					}
				}
				mustFail(t, guestmem.Copy(p, 8, p, 0, 1<<64-1), unix.EFAULT, "vm1")
				mustFail(t, p.Store32(n, 1), unix.EFAULT, "vm1")
				mustFail(t, p.Publish32(n, 1), unix.EFAULT, "vm1")
				mustFail(t, p.Store64(n-4, 1), unix.EINVAL, "vm1")
				if !bytes.Equal(before, g.ram) {
					t.Fatal("memory has changed")
				}
				if err := p.Write(n, nil); err != nil {
					t.Fatalf("nothing at the end: %v", err)
				}
			})
		}
	})
}

func TestWordsAreAtomicAlignedAndLandWhereTheyShould(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		g := newGuest(t, f.domain(), "vm1", 8*page)
		for name, pages := range map[string][]uint64{
			"one run": {0, page, 2 * page, 3 * page}, "runs": {4 * page, 5 * page, 2 * page, 3 * page}, "scattered": {6 * page, 2 * page, 0, 4 * page},
		} {
			t.Run(name, func(t *testing.T) {
				p := g.pin(t, pages)
				off := uint64(2*page + 16)
				if err := p.Store64(off, 0x1122334455667788); err != nil {
					t.Fatal(err)
				}
				if v, err := p.Load32(off + 4); err != nil || v != 0x11223344 {
					t.Fatalf("upper half is %#x, %v", v, err)
				}
				if err := p.Store32(off, 0xaabbccdd); err != nil {
					t.Fatal(err)
				}
				if v, err := p.Load64(off); err != nil || v != 0x11223344aabbccdd {
					t.Fatalf("word is %#x, %v", v, err)
				}
				if was, err := p.CompareAndSwap64(off, 1, 2); err != nil || was != 0x11223344aabbccdd {
					t.Fatalf("found %#x and not what is there, %v", was, err)
				}
				if was, err := p.CompareAndSwap64(off, 0x11223344aabbccdd, 43); err != nil || was != 0x11223344aabbccdd {
					t.Fatalf("found %#x, %v", was, err)
				}
				if was, err := p.FetchAdd64(off, ^uint64(0)); err != nil || was != 43 {
					t.Fatalf("added to %d, %v", was, err)
				}
				if got := g.ram[pages[2]+16]; got != 42 {
					t.Fatalf("memory holds %d", got)
				}
				if err := p.Publish32(off+4, 0xdeadbeef); err != nil {
					t.Fatal(err)
				}
				if v, err := p.Load64(off); err != nil || v != 0xdeadbeef0000002a {
					t.Fatalf("word is %#x after its upper half was published, %v", v, err)
				}
				for _, off := range []uint64{1, 2, 3, 6} {
					_, err := p.Load32(off)
					mustFail(t, err, unix.EINVAL, "vm1")
					mustFail(t, p.Store32(off, 0), unix.EINVAL, "vm1")
					mustFail(t, p.Publish32(off, 0), unix.EINVAL, "vm1")
					mustFail(t, p.Store64(off, 0), unix.EINVAL, "vm1")
				}
				_, err := p.Load64(4)
				mustFail(t, err, unix.EINVAL, "vm1")
				_, err = p.CompareAndSwap64(4, 0, 0)
				mustFail(t, err, unix.EINVAL, "vm1")
				_, err = p.FetchAdd64(12, 0)
				mustFail(t, err, unix.EINVAL, "vm1")
			})
		}
	})
}

func TestAListPinnedForReadingCannotBeWritten(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		g := newGuest(t, f.domain(), "vm1", page)
		p, err := g.PinContiguous([]uint64{0, 0}, guestmem.ProtRead)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Release()
		b := make([]byte, 8)
		_, cas := p.CompareAndSwap64(0, 0, 1)
		_, add := guestmem.FetchAdd64(p, 0, 1)
		for what, err := range map[string]error{
			"Write": p.Write(0, b), "Store32": p.Store32(0, 1), "Store64": p.Store64(0, 1), "CompareAndSwap64": cas,
			"FetchAdd64": add, "Publish32": p.Publish32(0, 1), "CopyLong": guestmem.CopyLong(p, 0, g.Space, 0, 8),
			"CopyIn": guestmem.CopyIn(p, 0, b), "Copy": guestmem.Copy(p, 0, g.Space, 0, 8),
		} {
			if !errors.Is(err, unix.EFAULT) || !strings.Contains(err.Error(), "without write access") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := p.Read(0, b); err != nil {
			t.Fatal(err)
		}
	})
}

func TestTheDataPathAllocatesNothing(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		d := f.domain()
		a, b := newGuest(t, d, "a", 64*page), newGuest(t, d, "b", 64*page)
		buf := make([]byte, 128)
		for name, pages := range map[string][]uint64{
			"one run": sequence(0, 16), "runs": append(sequence(0, 8), sequence(32*page, 8)...), "scattered": shuffled(0, 16),
		} {
			p, q := a.pin(t, pages), b.pin(t, pages)
			for what, f := range map[string]func() error{
				"Read":             func() error { return p.Read(4000, buf) },
				"Write":            func() error { return p.Write(4000, buf) },
				"Load32":           func() error { _, err := p.Load32(9000); return err },
				"Store32":          func() error { return p.Store32(9000, 1) },
				"Publish32":        func() error { return p.Publish32(9000, 1) },
				"Prefetch":         func() error { p.Prefetch(4000, 128); return nil },
				"Load64":           func() error { _, err := p.Load64(9000); return err },
				"Store64":          func() error { return p.Store64(9000, 1) },
				"CompareAndSwap64": func() error { _, err := guestmem.CompareAndSwap64(p, 9000, 0, 0); return err },
				"FetchAdd64":       func() error { _, err := guestmem.FetchAdd64(p, 9000, 1); return err },
				"Copy":             func() error { return guestmem.Copy(q, 100, p, 4000, 40000) },
				"Copy of 64 bytes": func() error { return guestmem.Copy(q, 0, p, 64, 64) },
				"Copy to Space":    func() error { return guestmem.Copy(b.Space, 100, p, 4000, 40000) },
				"Copy from Space":  func() error { return guestmem.Copy(q, 100, a.Space, 4000, 40000) },
				"Copy of Spaces":   func() error { return guestmem.Copy(b.Space, 100, a.Space, 4000, 40000) },
				"CopyIn":           func() error { return guestmem.CopyIn(p, 4000, buf) },
				"CopyOut":          func() error { return guestmem.CopyOut(buf, p, 4000) },
				"Space.Read":       func() error { return a.Read(4000, buf) },
				"Space.Write":      func() error { return a.Write(4000, buf) },
				"a guarded visit":  func() error { return guarded(d, func() error { return nil }) },
			} {
				n := testing.AllocsPerRun(100, func() {
					if err := f(); err != nil {
						t.Fatalf("%s, %s: %v", name, what, err)
					}
				})
				if n != 0 {
					t.Errorf("%s, %s: %v allocations", name, what, n)
				}
			}
		}
	})
}

func TestAllGuestsTogetherAreLimited(t *testing.T) {
	d := noLists()
	s := d.NewSpace("vm1")
	defer s.Close()
	d.Fill(1, 1<<40)
	if err := s.Map(0, page, memfd(t, page), 0, rw); err != nil {
		t.Fatal(err)
	}
	mustFail(t, s.Map(page, page, memfd(t, page), 0, rw), unix.ENOMEM, "vm1")
	d.Fill(10, page)
	mustFail(t, s.Map(page, page, memfd(t, 2*page), 0, rw), unix.ENOMEM, "vm1")
}
