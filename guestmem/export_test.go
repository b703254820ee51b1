// SPDX-License-Identifier: Apache-2.0

package guestmem

// Enter begins an access by address and returns the function that ends it.
func (s *Space) Enter() (leave func()) { return s.enter().leave }
