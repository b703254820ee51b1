// SPDX-License-Identifier: Apache-2.0

package guestmem_test

import (
	"bytes"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/pvrdmad/pvrdmad/guestmem"
	"golang.org/x/sys/unix"
)

// everyAccess calls each way to reach the byte at guest address 0, which is offset 0 of p.
func everyAccess(s *guestmem.Space, p, other *guestmem.Pages) map[string]error {
	b := make([]byte, 8)
	_, load32 := p.Load32(0)
	_, load64 := p.Load64(0)
	_, cas := p.CompareAndSwap64(0, 0, 0)
	_, add := p.FetchAdd64(0, 0)
	return map[string]error{
		"Pages.Read": p.Read(0, b), "Pages.Write": p.Write(0, b), "Load32": load32, "Store32": p.Store32(0, 0),
		"Publish32": p.Publish32(0, 0),
		"Load64":    load64, "Store64": p.Store64(0, 0), "CompareAndSwap64": cas, "FetchAdd64": add,
		"Space.Read": s.Read(0, b), "Space.Write": s.Write(0, b),
		"Copy to Pages": guestmem.Copy(p, 0, other, 0, 8), "Copy from Pages": guestmem.Copy(other, 0, p, 0, 8),
		"Copy to Space": guestmem.Copy(s, 0, other, 0, 8), "Copy from Space": guestmem.Copy(other, 0, s, 0, 8),
		"CopyIn": guestmem.CopyIn(p, 0, b), "CopyOut": guestmem.CopyOut(b, p, 0),
		"CopyLong to Pages": guestmem.CopyLong(p, 0, other, 0, 8), "CopyLong from Space": guestmem.CopyLong(other, 0, s, 0, 8),
		"Copy of nothing": guestmem.Copy(p, 0, other, 0, 0),
	}
}

func TestUnmapRevokesThePagesThatLieInTheRegionAndNoOthers(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		d := f.domain()
		other := newGuest(t, d, "other", page).pin(t, []uint64{0, 0})
		s := d.NewSpace("vm1")
		defer s.Close()
		fd := memfd(t, 4*page)
		for i := range uint64(2) {
			if err := s.Map(i*2*page, 2*page, fd, i*2*page, rw); err != nil {
				t.Fatal(err)
			}
		}
		g := &guest{Space: s, dom: d}
		inside, across, beside := g.pin(t, []uint64{0, 0}), g.pin(t, []uint64{2 * page, page}), g.pin(t, []uint64{3 * page})
		for name, err := range everyAccess(s, inside, other) {
			if err != nil {
				t.Fatalf("before: %s: %v", name, err)
			}
		}

		if err := s.Unmap(0, 2*page); err != nil {
			t.Fatal(err)
		}

		if !inside.Revoked() || !across.Revoked() || beside.Revoked() {
			t.Fatalf("revoked: inside %v, across %v, beside %v", inside.Revoked(), across.Revoked(), beside.Revoked())
		}
		for name, err := range everyAccess(s, inside, other) {
			if !errors.Is(err, unix.EFAULT) {
				t.Errorf("after: %s: %v", name, err)
			}
		}
		mustFail(t, across.Write(0, []byte("x")), guestmem.ErrRevoked, "vm1")
		if err := beside.Write(0, []byte("x")); err != nil {
			t.Fatal(err)
		}
		// Mapping the range anew does not bring the lists back.
		if err := s.Map(0, 2*page, fd, 0, rw); err != nil {
			t.Fatal(err)
		}
		mustFail(t, inside.Read(0, make([]byte, 1)), guestmem.ErrRevoked, "vm1")
	})
}

func TestWhileDMAIsOffEveryAccessFails(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		d := f.domain()
		g := newGuest(t, d, "vm1", page)
		p, other := g.pin(t, []uint64{0, 0}), newGuest(t, d, "other", page).pin(t, []uint64{0})
		barriers := 0
		g.SetBarrier(func() {
			barriers++
			mustFail(t, p.Store32(0, 1), guestmem.ErrDisabled, "vm1") // what enters from now on is refused already
		})

		g.SetEnabled(false)
		g.SetEnabled(false)
		g.SetBarrier(nil)

		if barriers != 1 || g.Enabled() {
			t.Fatalf("%d barriers, enabled %v", barriers, g.Enabled())
		}
		for name, err := range everyAccess(g.Space, p, other) {
			if !errors.Is(err, guestmem.ErrDisabled) || !errors.Is(err, unix.EFAULT) {
				t.Errorf("%s: %v", name, err)
			}
		}
		g.SetEnabled(true)
		for name, err := range everyAccess(g.Space, p, other) {
			if err != nil {
				t.Errorf("enabled again: %s: %v", name, err)
			}
		}
	})
}

func TestTheBarrierRunsAfterTheMemoryIsOutOfReachAndBeforeUnmapReturns(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		g := newGuest(t, f.domain(), "vm1", page)
		p := g.pin(t, []uint64{0, 0})
		ran := false
		g.SetBarrier(func() {
			ran = true
			if !p.Revoked() || g.Read(0, make([]byte, 1)) == nil {
				t.Error("the barrier runs while the memory can still be reached")
			}
			if g.Stats().Files != 1 {
				t.Error("the file was unmapped before the barrier")
			}
		})
		if err := g.Unmap(0, page); err != nil {
			t.Fatal(err)
		}
		if !ran {
			t.Fatal("no barrier")
		}
	})
}

func TestTakingMemoryAwayWaitsForAccessesByAddressThatAreUnderWay(t *testing.T) {
	for name, take := range map[string]func(*guest){
		"Unmap":      func(g *guest) { g.Unmap(0, page) },
		"UnmapAll":   func(g *guest) { g.UnmapAll() },
		"SetEnabled": func(g *guest) { g.SetEnabled(false) },
		"Close":      func(g *guest) { g.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuest(t, noLists(), "vm1", page)
			leave := g.Enter()
			if err := g.Map(page, page, g.fd, 0, rw); err != nil { // a Map in between does not lose it
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				take(g)
				close(done)
			}()
			select {
			case <-done:
				t.Fatal("it did not wait")
			case <-time.After(20 * time.Millisecond):
			}
			leave()
			<-done
		})
	}
}

// owner is a thread with visits, and the barrier that waits for one.
type owner struct{ mu sync.Mutex }

func (o *owner) visit(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
}

// The memory of the run list is Go's own, so the race detector sees an access that goes on after Unmap has returned: the
// test then writes the same bytes without any synchronization.
func TestNothingReachesTheMemoryAfterUnmap(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		d := f.domain()
		s, peer := d.NewSpace("vm1"), newGuest(t, d, "peer", 4*page)
		defer s.Close()
		var o owner
		s.SetBarrier(func() { o.visit(func() {}) })
		remote := peer.pin(t, sequence(0, 4))
		ram, mapRAM := f.ram(t, 4)
		var current *guestmem.Pages // owner's
		stop := make(chan struct{})
		var wg sync.WaitGroup
		loop := func(f func()) {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						f()
					}
				}
			})
		}
		loop(func() { // the data path
			o.visit(func() {
				if p := current; p != nil {
					_ = guestmem.Copy(p, 0, remote, 0, 2*page)
					_ = p.Store32(0, 7)
				}
			})
			runtime.Gosched()
		})
		loop(func() { // a command that reads other pages by address
			_ = s.Read(page, make([]byte, 2*page))
			_ = guestmem.Copy(remote, 0, s, 2*page, page)
		})
		for range 50 {
			if err := mapRAM(s); err != nil {
				t.Fatal(err)
			}
			p, err := s.PinContiguous([]uint64{0, 3 * page}, rw)
			if err != nil {
				t.Fatal(err)
			}
			o.visit(func() { current = p })
			time.Sleep(100 * time.Microsecond)
			if err := s.Unmap(0, 4*page); err != nil {
				t.Fatal(err)
			}
			for i := range ram {
				ram[i]++
			}
			after := bytes.Clone(ram)
			time.Sleep(50 * time.Microsecond)
			if !bytes.Equal(ram, after) {
				t.Fatal("memory has changed after Unmap")
			}
			o.visit(func() { current = nil })
			p.Release()
		}
		close(stop)
		wg.Wait()
	})
}

func TestPinningRacesWithUnmapping(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		s := f.domain().NewSpace("vm1")
		defer s.Close()
		_, mapRAM := f.ram(t, 8)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 500 {
				if err := mapRAM(s); err != nil {
					t.Error(err)
					return
				}
				if err := s.Unmap(0, 8*page); err != nil {
					t.Error(err)
					return
				}
			}
		}()
		for alive := true; alive; {
			select {
			case <-done:
				alive = false
			default:
			}
			p, err := s.PinContiguous([]uint64{0, 3 * page}, rw)
			if err != nil {
				mustFail(t, err, unix.EFAULT, "vm1")
				continue
			}
			p.Release()
		}
		if st := s.Stats(); st.Pinned != 0 || st.Regions != 0 {
			t.Fatalf("left over: %+v", st)
		}
	})
}

func TestOnlyRegionsOfAMappedFileAreReadThroughAnOldMapping(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		// A page list keeps reading the same file page after its guest address was given to another file: it is revoked,
		// not redirected.
		s := f.domain().NewSpace("vm1")
		defer s.Close()
		one, two := memfd(t, page), memfd(t, page)
		if err := s.Map(0, page, one, 0, rw); err != nil {
			t.Fatal(err)
		}
		p, err := s.PinContiguous([]uint64{0, 0}, rw)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Release()
		if err := s.Unmap(0, page); err != nil {
			t.Fatal(err)
		}
		if err := s.Map(0, page, two, 0, rw); err != nil {
			t.Fatal(err)
		}
		_ = guestmem.CopyIn(p, 0, []byte("secret"))
		for _, fd := range []int{one, two} {
			got := make([]byte, 6)
			if _, err := unix.Pread(fd, got, 0); err != nil || !bytes.Equal(got, make([]byte, 6)) {
				t.Fatalf("a revoked list has written %q, %v", got, err)
			}
		}
	})
}
