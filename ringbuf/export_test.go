// SPDX-License-Identifier: Apache-2.0

package ringbuf

// ClaimOne and Fill are the two halves of Push, so that a test can come in between.
func (q *MPSC[T]) ClaimOne() (place uint64, ok bool) {
	place, n := q.claim(1)
	return place, n == 1
}

func (q *MPSC[T]) Fill(place uint64, v T) { q.fill(place, v) }
