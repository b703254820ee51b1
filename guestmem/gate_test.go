// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

func oneRegion(t *testing.T) *Space {
	t.Helper()
	s := NewDomain().NewSpace("vm1")
	t.Cleanup(func() { s.Close() })
	if err := s.MapBytes(0, make([]byte, PageSize), ProtRead|ProtWrite); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAnAccessThatLoadedTheTableBeforeAnUnmapDoesNotEnterAfterIt(t *testing.T) {
	s := oneRegion(t)
	v := s.cur.Load()
	if err := s.Unmap(0, PageSize); err != nil {
		t.Fatal(err)
	}
	if s.join(v) {
		t.Fatal("it entered with a table that has the region")
	}
	s.UnmapAll() // and it is not counted
}

func TestAnAccessThatLoadedTheTableBeforeAMapEnters(t *testing.T) {
	s := oneRegion(t)
	v := s.cur.Load()
	if err := s.MapBytes(PageSize, make([]byte, PageSize), ProtRead); err != nil {
		t.Fatal(err)
	}
	if !s.join(v) {
		t.Fatal("a Map has turned it away")
	}
	v.leave()
}

func TestAListResolvedBeforeAnUnmapIsNotPinnedAfterIt(t *testing.T) {
	s := oneRegion(t)
	l := lister{space: s, tab: s.cur.Load().tab, prot: ProtRead}
	if err := l.resolve(make([]loc, 1), []uint64{0}); err != nil {
		t.Fatal(err)
	}
	if err := s.Unmap(0, PageSize); err != nil {
		t.Fatal(err)
	}
	if err := s.link(&Pages{space: s, layout: layout{length: PageSize}}, &l); !errors.Is(err, unix.EFAULT) {
		t.Fatalf("error is %v", err)
	}
	if st := s.Stats(); st.Pinned != 0 {
		t.Fatalf("%d pages are pinned", st.Pinned)
	}
}
