// SPDX-License-Identifier: Apache-2.0

package guestmem_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/guestmem"
)

// newList makes an empty list, or fails the test.
func (g *guest) newList(t testing.TB, most int) *guestmem.Pages {
	t.Helper()
	p, err := g.NewList(most)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Release)
	return p
}

func TestAListWithoutPagesGivesAccessToNothing(t *testing.T) {
	g, b := newGuest(t, noLists(), "vm1", 4*page), make([]byte, 8)
	p := g.newList(t, 2)
	empty := func(what string) {
		t.Helper()
		if err := p.Read(0, b); !p.Revoked() || !errors.Is(err, guestmem.ErrRevoked) {
			t.Errorf("%s: read gave %v", what, err)
		}
	}
	empty("new")
	if err := p.Fill([]uint64{page, 3 * page}, rw); err != nil {
		t.Fatal(err)
	}
	g.ram[3*page+9] = 42
	if err := p.Read(page+9, b); err != nil || b[0] != 42 {
		t.Errorf("filled: read %d, %v", b[0], err)
	}
	p.Empty()
	empty("emptied")
	for what, c := range map[string]struct {
		pages []uint64
		want  error
	}{
		"no pages": {nil, unix.EINVAL}, "more than it has room for": {sequence(0, 3), unix.EINVAL},
		"a page that is none": {[]uint64{0, 4 * page}, unix.EFAULT}, "a part of a page": {[]uint64{8}, unix.EFAULT},
	} {
		if err := p.Fill([]uint64{0}, rw); err != nil {
			t.Fatal(err)
		}
		mustFail(t, p.Fill(c.pages, rw), c.want, "vm1")
		empty(what)
	}
	p.Release()
	mustFail(t, p.Fill([]uint64{0}, rw), unix.EINVAL, "vm1")
	if st := g.Stats(); st.Pinned != 0 || st.Lists != 0 {
		t.Errorf("released: %+v", st)
	}
}

func TestAListThatIsPinnedOnceCannotBeFilled(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		g := newGuest(t, f.domain(), "vm1", 4*page)
		p := g.pin(t, []uint64{0, 2 * page})
		mustFail(t, p.Fill([]uint64{page}, rw), unix.EINVAL, "vm1")
		p.Empty()
		if p.Revoked() {
			t.Error("the list lost its pages")
		}
	})
}

func TestAFilledListIsRevokedAndCanBeFilledOnceMore(t *testing.T) {
	d := noLists()
	g := newGuest(t, d, "vm1", 4*page)
	p := g.newList(t, 4)
	if err := p.Fill(sequence(0, 4), rw); err != nil {
		t.Fatal(err)
	}
	if err := g.Unmap(0, 4*page); err != nil {
		t.Fatal(err)
	}
	if !p.Revoked() {
		t.Error("the list outlives its region")
	}
	if err := g.Map(64*page, 4*page, g.fd, 0, rw); err != nil {
		t.Fatal(err)
	}
	mustFail(t, p.Fill(sequence(0, 4), rw), unix.EFAULT, "vm1")
	if err := p.Fill(sequence(64*page, 4), rw); err != nil {
		t.Error(err)
	}
}

func TestAnEmptyListCountsAgainstTheLimitOfLists(t *testing.T) {
	g := newGuest(t, noLists(), "vm1", page)
	n := 0
	for ; n < 1000; n++ {
		p, err := g.NewList(guestmem.MaxPinPages)
		if err != nil {
			mustFail(t, err, unix.ENOMEM, "vm1")
			break
		}
		t.Cleanup(p.Release)
	}
	if n == 1000 || n < 10 {
		t.Errorf("%d lists of the largest size", n)
	}
	for _, most := range []int{0, -1, guestmem.MaxPinPages + 1} {
		_, err := g.NewList(most)
		mustFail(t, err, unix.EINVAL, "vm1")
	}
}

func TestFillingAListAllocatesNothing(t *testing.T) {
	g := newGuest(t, noLists(), "vm1", 256*page)
	if err := g.Map(1<<32, 256*page, memfd(t, 256*page), 0, rw); err != nil {
		t.Fatal(err)
	}
	p := g.newList(t, 128)
	for name, pages := range map[string][]uint64{
		"one run": sequence(0, 128), "runs": append(sequence(0, 64), sequence(128*page, 64)...), "scattered": shuffled(0, 128),
		"two regions": append(shuffled(0, 64), shuffled(1<<32, 64)...),
	} {
		n := testing.AllocsPerRun(100, func() {
			if err := p.Fill(pages, rw); err != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
