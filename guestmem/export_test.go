// SPDX-License-Identifier: Apache-2.0

package guestmem

// Enter begins an access by address and returns the function that ends it.
func (s *Space) Enter() (leave func()) { return s.enter().leave }

// Fill makes the Domain believe that other guests have mapped all that it allows but files files and bytes bytes.
func (d *Domain) Fill(files int, bytes uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files, d.bytes = d.maxFiles-files, maxDomainBytes-bytes
}

// MaxMapCount is vm.max_map_count.
func MaxMapCount() int { return maxMapCount() }

// Used says what all guests of the Domain take: files, mappings of windows, and address space in bytes.
func (d *Domain) Used() (files, pieces int, bytes uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.files, d.pieces, d.bytes
}
