// SPDX-License-Identifier: Apache-2.0

package guestmem_test

import (
	"errors"
	"testing"

	"github.com/pvrdmad/pvrdmad/guestmem"
)

func TestBackedCountsRegionsThatHaveMemory(t *testing.T) {
	g := newGuest(t, noLists(), "vm1", 8*page)
	if err := errors.Join(g.Map(1<<30, 16*page, -1, 0, guestmem.ProtRead),
		g.MapBytes(1<<31, make([]byte, 2*page), rw)); err != nil {
		t.Fatal(err)
	}
	if n, bytes := g.Backed(); n != 2 || bytes != 10*page {
		t.Errorf("%d regions with %d bytes, want 2 with %d", n, bytes, 10*page)
	}
	g.UnmapAll()
	if n, bytes := g.Backed(); n != 0 || bytes != 0 {
		t.Errorf("%d regions with %d bytes after all were unmapped", n, bytes)
	}
}

func TestRevocationsTellWhetherAListWasRevoked(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		d := f.domain()
		g := newGuest(t, d, "vm1", 8*page)
		if err := g.MapBytes(1<<31, make([]byte, 2*page), rw); err != nil {
			t.Fatal(err)
		}
		p := d.pin(t, g.Space, []uint64{3 * page, page, 0}, rw)
		defer p.Release()
		if err := g.Unmap(1<<31, 2*page); err != nil {
			t.Fatal(err)
		}
		if n := g.Revocations(); n != 0 {
			t.Errorf("%d revocations, none of a list", n)
		}
		if err := g.Unmap(0, 8*page); err != nil {
			t.Fatal(err)
		}
		if n := g.Revocations(); n != 1 || !p.Revoked() {
			t.Errorf("%d revocations, want 1", n)
		}
	})
}
