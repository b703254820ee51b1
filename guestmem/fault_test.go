// SPDX-License-Identifier: Apache-2.0

package guestmem_test

import (
	"errors"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"golang.org/x/sys/unix"
)

// guarded runs f as an owner thread runs its visits.
func guarded(d *domain, f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer d.Recover(&err)
	return f()
}

// victims are two guests with 64 pages each; the second half of bad's file is gone.
type victims struct {
	d         *domain
	good, bad *guest
	goodOne   *guestmem.Pages // 4 adjacent pages
	goodMany  *guestmem.Pages // 4 scattered pages
	badOne    *guestmem.Pages // 4 adjacent pages, the last two gone
	badMany   *guestmem.Pages // 4 scattered pages, the last two gone
}

func newVictims(t *testing.T, f form) *victims {
	v := &victims{d: f.domain()}
	v.good = newGuest(t, v.d, "good", 64*page)
	v.bad = newGuest(t, v.d, "bad", 64*page)
	scattered := []uint64{2 * page, 8 * page, 40 * page, 33 * page}
	v.goodOne, v.goodMany = v.good.pin(t, sequence(0, 4)), v.good.pin(t, scattered)
	v.badOne, v.badMany = v.bad.pin(t, sequence(30*page, 4)), v.bad.pin(t, scattered)
	if err := unix.Ftruncate(v.bad.fd, 32*page); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestAFaultNamesTheGuestWhoseMemoryIsGone(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		v := newVictims(t, f)
		buf := make([]byte, 64)
		guard := func(f func() error) func() error { return func() error { return guarded(v.d, f) } }
		for _, c := range []struct {
			name   string
			access func() error
			addr   uint64 // guest address of the page that is gone
			dst    bool   // for copies
		}{
			{"Copy to it", func() error { return guestmem.Copy(v.badOne, 2*page+64, v.goodOne, 0, 64) }, 32 * page, true},
			{"Copy from it", func() error { return guestmem.Copy(v.goodOne, 0, v.badOne, 3*page, 64) }, 33 * page, false},
			{"Copy within it", func() error { return guestmem.Copy(v.badOne, 0, v.badOne, 3*page, 64) }, 33 * page, false},
			{"Copy within it, other side", func() error { return guestmem.Copy(v.badOne, 3*page, v.badMany, 0, 64) }, 33 * page, true},
			{"Copy to scattered pages", func() error { return guestmem.Copy(v.badMany, page, v.goodMany, 0, 3*page) }, 40 * page, true},
			{"Copy from scattered pages", func() error { return guestmem.Copy(v.goodMany, 0, v.badMany, 3*page, page) }, 33 * page, false},
			{"Copy to its address space", func() error { return guestmem.Copy(v.bad.Space, 50*page, v.goodOne, 0, 64) }, 50 * page, true},
			{"Copy from its address space", func() error { return guestmem.Copy(v.goodMany, 0, v.bad.Space, 50*page, 64) }, 50 * page, false},
			{"Copy within its address space", func() error { return guestmem.Copy(v.bad.Space, 33*page, v.bad.Space, 0, 64) }, 33 * page, true},
			{"Copy on to it, long", func() error { return guestmem.CopyLong(v.badOne, page+1, v.goodOne, 0, 3*page-1) }, 32 * page, true},
			{"Copy on from it, long", func() error { return guestmem.CopyLong(v.goodOne, 1, v.badOne, page, 3*page-1) }, 32 * page, false},
			{"Copy to scattered pages, long", func() error { return guestmem.CopyLong(v.badMany, page, v.goodMany, 0, 3*page) }, 40 * page, true},
			{"Copy from its address space, long", func() error { return guestmem.CopyLong(v.goodMany, 0, v.bad.Space, 50*page, page) }, 50 * page, false},
			{"CopyIn", func() error { return guestmem.CopyIn(v.badMany, 2*page, buf) }, 40 * page, false},
			{"CopyOut", func() error { return guestmem.CopyOut(buf, v.badOne, 2*page) }, 32 * page, false},
			{"CopyIn by address", func() error { return guestmem.CopyIn(v.bad.Space, 63*page, buf) }, 63 * page, false},
			{"CopyOut by address", func() error { return guestmem.CopyOut(buf, v.bad.Space, 63*page) }, 63 * page, false},
			{"Space.Read", func() error { return v.bad.Read(32*page, buf) }, 32 * page, false},
			{"Space.Write", func() error { return v.bad.Write(32*page, buf) }, 32 * page, false},
			{"Pages.Read", guard(func() error { return v.badOne.Read(2*page, buf) }), 32 * page, false},
			{"Pages.Write", guard(func() error { return v.badMany.Write(3*page, buf) }), 33 * page, false},
			{"Load32", guard(func() error { _, err := v.badOne.Load32(2 * page); return err }), 32 * page, false},
			{"Store32", guard(func() error { return v.badOne.Store32(2*page+8, 1) }), 32 * page, false},
			{"Publish32", guard(func() error { return v.badOne.Publish32(2*page+8, 1) }), 32 * page, false},
			{"Publish32 in scattered pages", guard(func() error { return v.badMany.Publish32(2*page, 1) }), 40 * page, false},
			{"Load64", guard(func() error { _, err := v.badMany.Load64(2 * page); return err }), 40 * page, false},
			{"Store64", guard(func() error { return v.badMany.Store64(2*page, 1) }), 40 * page, false},
			{"CompareAndSwap64", guard(func() error {
				_, err := v.badOne.CompareAndSwap64(2*page, 0, 1)
				return err
			}), 32 * page, false},
			{"FetchAdd64", guard(func() error { _, err := v.badMany.FetchAdd64(3*page, 1); return err }), 33 * page, false},
			{"CompareAndSwap64, guarded", func() error {
				_, err := guestmem.CompareAndSwap64(v.badMany, 2*page, 0, 1)
				return err
			}, 40 * page, false},
			{"FetchAdd64, guarded", func() error { _, err := guestmem.FetchAdd64(v.badOne, 2*page, 1); return err }, 32 * page, false},
		} {
			t.Run(c.name, func(t *testing.T) {
				checkFault(t, v.bad, c.access(), c.addr)
				var side *guestmem.CopyError
				if err := c.access(); errors.As(err, &side) != strings.HasPrefix(c.name, "Copy ") {
					t.Fatalf("error is %T", err)
				} else if side != nil && side.Dst != c.dst {
					t.Fatalf("the fault is blamed on the wrong side: %v", err)
				}
				if err := v.good.Write(0, buf); err != nil {
					t.Fatalf("the other guest suffers: %v", err)
				}
				if err := v.badOne.Write(0, buf); err != nil {
					t.Fatalf("memory that is there cannot be reached any more: %v", err)
				}
			})
		}
	})
}

// checkFault checks that err is a fault in the page at addr of a guest whose first region is its only one.
func checkFault(t *testing.T, g *guest, err error, addr uint64) {
	t.Helper()
	var f *guestmem.FaultError
	if !errors.As(err, &f) || !errors.Is(err, unix.EFAULT) {
		t.Fatalf("error is %v, want a *FaultError with EFAULT", err)
	}
	if f.Owner != g.Owner() || f.Space != g.Space || f.Addr/page != addr/page || f.Offset != f.Addr {
		t.Fatalf("fault is %+v, want guest %s, address and offset in the page %#x", *f, g.Owner(), addr)
	}
	for _, part := range []string{`guest "` + g.Owner() + `"`, "region 0x0+0x40000"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

func TestAFaultLeavesTheGoroutineAsItWas(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		v := newVictims(t, f)
		for _, before := range []bool{true, false} {
			debug.SetPanicOnFault(before)
			_ = guestmem.Copy(v.goodOne, 0, v.badOne, 3*page, 64)
			_ = guestmem.Copy(v.goodOne, 0, v.bad.Space, 50*page, 64)
			_ = guestmem.CopyIn(v.badOne, 3*page, make([]byte, 8))
			_ = v.bad.Read(50*page, make([]byte, 8))
			_ = guestmem.Copy(v.goodOne, 0, v.goodOne, page, 64)
			if after := debug.SetPanicOnFault(false); after != before {
				t.Errorf("panic on fault was %v, is %v", before, after)
			}
		}
	})
}

func TestUnmapDoesNotWaitForAnAccessThatFaulted(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		v := newVictims(t, f)
		for range 3 {
			if v.bad.Read(50*page, make([]byte, 8)) == nil || guestmem.Copy(v.bad.Space, 50*page, v.bad.Space, 0, 8) == nil {
				t.Fatal("no fault")
			}
		}
		done := make(chan struct{})
		go func() {
			v.bad.UnmapAll()
			close(done)
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatal("UnmapAll hangs: a fault left its access counted")
		}
	})
}

func TestMemoryThatIsBackServesAgain(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		v := newVictims(t, f)
		if guestmem.CopyIn(v.badOne, 3*page, []byte("x")) == nil {
			t.Fatal("no fault")
		}
		if err := unix.Ftruncate(v.bad.fd, 64*page); err != nil {
			t.Fatal(err)
		}
		if err := guestmem.CopyIn(v.badOne, 3*page, []byte("x")); err != nil {
			t.Fatal(err)
		}
	})
}

func TestOtherPanicsPassThroughTheGuard(t *testing.T) {
	d := noLists()
	newGuest(t, d, "vm1", page)
	foreign, err := unix.Mmap(-1, 0, page, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(foreign)
	var nothing *struct{ x int }
	for name, f := range map[string]func() error{
		"a word":                   func() error { panic("word") },
		"an index":                 func() error { return []error{}[len(foreign)] },
		"a nil pointer":            func() error { nothing.x++; return nil },
		"a fault at other memory":  func() error { foreign[0] = 1; return nil },
		"a call of runtime.Goexit": nil,
	} {
		t.Run(name, func(t *testing.T) {
			returned := false
			done := make(chan any)
			go func() {
				defer func() { done <- recover() }()
				_ = guarded(d, func() error {
					if f == nil {
						runtime.Goexit()
					}
					return f()
				})
				returned = true
			}()
			r := <-done
			if returned || (f != nil) != (r != nil) {
				t.Fatalf("the guard has swallowed it: returned %v, recovered %v", returned, r)
			}
		})
	}
}

func TestAFaultInARegionUnmappedMeanwhileStillNamesTheGuest(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		v := newVictims(t, f)
		// Without a barrier nothing waits for this goroutine, so the region can go while the guard is open.
		err := guarded(v.d, func() error {
			defer v.bad.UnmapAll()
			return v.badOne.Write(2*page, []byte("x"))
		})
		var fault *guestmem.FaultError
		if !errors.As(err, &fault) || fault.Owner != "bad" || fault.Offset != 32*page || !strings.Contains(fault.Region, "unmapped") {
			t.Fatalf("error is %v", err)
		}
	})
}

// Memory goes and comes while four goroutines copy: the only thing that may happen is a *FaultError.
func TestTheProcessLivesWhileMemoryComesAndGoes(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		d := f.domain()
		a, b := newGuest(t, d, "a", 64*page), newGuest(t, d, "b", 64*page)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for i := range 4 {
			from, to := a, b
			if i%2 == 1 {
				from, to = b, a
			}
			src, dst := from.pin(t, shuffled(0, 64)), to.pin(t, sequence(0, 64))
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					for _, err := range []error{
						guestmem.Copy(dst, 0, src, 0, 64*page),
						guestmem.Copy(dst, 0, from.Space, 16*page, 32*page),
						guarded(d, func() error {
							if raceEnabled {
								return dst.Write(63*page, []byte{1})
							}
							return dst.Store32(63*page, 1)
						}),
					} {
						var f *guestmem.FaultError
						if err != nil && !errors.As(err, &f) {
							t.Errorf("not a fault: %v", err)
							return
						}
					}
				}
			})
		}
		for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
			for _, g := range []*guest{a, b} {
				if unix.Ftruncate(g.fd, 8*page) != nil || unix.Ftruncate(g.fd, 64*page) != nil {
					t.Error("ftruncate")
				}
			}
		}
		close(stop)
		wg.Wait()
	})
}
