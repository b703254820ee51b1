// SPDX-License-Identifier: Apache-2.0

package guestmem_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/guestmem"
)

// alongside runs fn on several goroutines at once, each with a number of its own, and waits.
func alongside(fn func(n uint64)) {
	const many = 4
	var all sync.WaitGroup
	for n := range uint64(many) {
		all.Go(func() { fn(n) })
	}
	all.Wait()
}

// twoPages returns memory of two pages, and a list of them in the other order.
func twoPages(t *testing.T, f form) ([]byte, *guestmem.Pages) {
	t.Helper()
	d := f.domain()
	ram, attach := f.ram(t, 2)
	s := d.NewSpace("vm1")
	t.Cleanup(func() { _ = s.Close() })
	if err := attach(s); err != nil {
		t.Fatal(err)
	}
	return ram, d.pin(t, s, []uint64{page, 0}, rw)
}

func TestNoAdditionIsLostAmongOtherThreadsAndProcessors(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		const rounds, word = 5000, page - 8
		ram, p := twoPages(t, f)
		seen := make([]atomic.Bool, 4*3*rounds)
		alongside(func(uint64) {
			for range rounds {
				was, err := guestmem.FetchAdd64(p, word, 1)
				if err != nil || seen[was].Swap(true) {
					t.Errorf("the sum %d was found a second time, or %v", was, err)
					return
				}
				atomic.AddUint64(processorsView(ram, page+word), 1) // as a guest's processor
				for want := uint64(0); ; {
					was, err := guestmem.CompareAndSwap64(p, word, want, want+1)
					if err != nil {
						t.Error(err)
						return
					}
					if was == want {
						break
					}
					want = was
				}
			}
		})
		if got := atomic.LoadUint64(processorsView(ram, page+word)); got != 4*3*rounds {
			t.Errorf("%d additions of 1 make %d", 4*3*rounds, got)
		}
	})
}

func TestASwapFindsWhatItLookedForOnlyIfItWroteItsOwn(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		const rounds, word = 20000, 8
		ram, p := twoPages(t, f)
		var swaps, resets atomic.Uint64
		alongside(func(n uint64) {
			for range rounds {
				if n == 0 {
					if atomic.CompareAndSwapUint64(processorsView(ram, page+word), 1, 0) {
						resets.Add(1)
					}
					continue
				}
				was, err := guestmem.CompareAndSwap64(p, word, 0, 1)
				if err != nil || was > 1 {
					t.Errorf("found %d, %v", was, err)
					return
				}
				if was == 0 {
					swaps.Add(1)
				}
			}
		})
		if left := atomic.LoadUint64(processorsView(ram, page+word)); swaps.Load() != resets.Load()+left || swaps.Load() == 0 {
			t.Errorf("%d swaps from 0 to 1, %d back, and %d is left", swaps.Load(), resets.Load(), left)
		}
	})
}

func TestAnAddressSpaceHasNoWordsToChangeAtomically(t *testing.T) {
	g := newGuest(t, noLists(), "vm1", page)
	_, cas := guestmem.CompareAndSwap64(g.Space, 0, 0, 1)
	_, add := guestmem.FetchAdd64(g.Space, 0, 1)
	_, none := guestmem.FetchAdd64(nil, 0, 1)
	for _, err := range []error{cas, add, none} {
		if !errors.Is(err, unix.EINVAL) {
			t.Errorf("got %v, want EINVAL", err)
		}
	}
}
