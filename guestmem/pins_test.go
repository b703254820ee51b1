// SPDX-License-Identifier: Apache-2.0

package guestmem_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pvrdmad/pvrdmad/guestmem"
)

func TestTheUsesOfRegionsByPageListsAreLimited(t *testing.T) {
	inBothForms(t, func(t *testing.T, f form) {
		// Arrange: many small regions, and page lists that lie in all of them.
		s := f.domain().NewSpace("vm1")
		defer s.Close()
		const regions = 4096
		fd := memfd(t, regions*page)
		addrs := make([]uint64, regions)
		for i := range addrs {
			addrs[i] = 2 * uint64(i) * page // a hole between two
			if err := s.Map(addrs[i], page, fd, uint64(regions-1-i)*page, rw); err != nil {
				t.Fatal(err)
			}
		}
		var lists []*guestmem.Pages

		// Act
		const limit = 1 << 18
		for range limit / regions {
			p, err := s.PinContiguous(addrs, rw)
			if err != nil {
				t.Fatalf("after %d lists: %v", len(lists), err)
			}
			lists = append(lists, p)
		}
		_, err := s.PinContiguous(addrs[:1], rw)

		// Assert
		mustFail(t, err, unix.ENOMEM, "vm1")
		lists[0].Release()
		p, err := s.PinContiguous(addrs[:1], rw)
		if err != nil {
			t.Fatalf("after a list was given back: %v", err)
		}
		for _, p := range append(lists[1:], p) {
			p.Release()
		}
	})
}
