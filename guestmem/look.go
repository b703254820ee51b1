// SPDX-License-Identifier: Apache-2.0

package guestmem

// Backed returns how many regions have memory, and their sizes together in bytes. It looks at all regions. A virtual IOMMU
// shows here: it maps page by page, where a machine's own layout has a few large regions.
func (s *Space) Backed() (regions int, bytes uint64) {
	s.cur.Load().tab.all(func(r *region) {
		if r.m != nil {
			regions++
			bytes += r.size // regions do not overlap: no more than all addresses
		}
	})
	return regions, bytes
}

// Revocations grows when page lists are revoked. If it is what it was, none has been revoked meanwhile.
func (s *Space) Revocations() uint64 { return s.revocations.Load() }
