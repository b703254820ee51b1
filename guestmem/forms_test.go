// SPDX-License-Identifier: Apache-2.0

package guestmem_test

import (
	"testing"

	"github.com/pvrdmad/pvrdmad/guestmem"
)

// form is how the page lists of a test lie in this process.
type form struct {
	name    string
	windows guestmem.Windows
}

// The two forms of a list that is not one run: a list of runs, or a window, which every list here gets that can.
var (
	runList   = form{name: "run list"}
	windowed  = form{name: "window", windows: guestmem.Windows{Budget: 1 << 16, MinPages: 1, MaxRun: guestmem.MaxPinPages}}
	bothForms = []form{runList, windowed}
)

// inBothForms runs a test with page lists of each form.
func inBothForms(t *testing.T, test func(t *testing.T, f form)) {
	t.Helper()
	for _, f := range bothForms {
		t.Run(f.name, func(t *testing.T) { test(t, f) })
	}
}

// domain is a Domain with the form of its page lists.
type domain struct {
	*guestmem.Domain
	form form
}

// domain returns an empty Domain whose lists are of the form.
func (f form) domain() *domain { return &domain{guestmem.NewDomainWith(f.windows), f} }

// ram returns memory and a function that maps it at guest address 0. For run lists it is Go's own, so that the race
// detector watches; windows are possible on files alone.
func (f form) ram(t testing.TB, pages int) ([]byte, func(*guestmem.Space) error) {
	if f.windows.Budget == 0 {
		b := make([]byte, pages*page)
		return b, func(s *guestmem.Space) error { return s.MapBytes(0, b, rw) }
	}
	fd := memfd(t, int64(pages)*page)
	return mapped(t, fd, pages*page), func(s *guestmem.Space) error { return s.Map(0, uint64(pages)*page, fd, 0, rw) }
}

// noLists returns a Domain for tests that have no page list.
func noLists() *domain { return runList.domain() }

// pin pins for prot, or fails the test. It checks that the list has the form of the Domain.
func (d *domain) pin(t testing.TB, s *guestmem.Space, pages []uint64, prot guestmem.Prot) *guestmem.Pages {
	t.Helper()
	p, err := s.PinContiguous(pages, prot)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Release)
	if want := d.form.windows.Budget > 0 && p.Runs() > 1; p.Window() != want {
		t.Fatalf("list of %d runs has a window: %v, want %v: %v", p.Runs(), p.Window(), want, p.Scattered())
	}
	return p
}
