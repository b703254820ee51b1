// SPDX-License-Identifier: Apache-2.0

package ringbuf_test

// driver is the guest's side of a ring, step by step as the functions of pvrdma_ring.h go about it, for any number of
// elements. Results are 1, 0, or invalid.
type driver struct {
	n          uint32
	prod, cons uint32 // prod_tail and cons_head in shared memory
}

const invalid = -1

// idxValid: no bit outside of 2n-1 is set.
func (d *driver) idxValid(idx uint32) bool { return idx & ^((d.n<<1)-1) == 0 }

// idx: the element an index stands for, by the bits of n-1.
func (d *driver) idx(i uint32) int64 {
	if d.idxValid(i) {
		return int64(i & (d.n - 1))
	}
	return invalid
}

// inc: one more, by the bits of 2n-1.
func (d *driver) inc(i *uint32) {
	*i++
	*i &= (d.n << 1) - 1
}

// hasSpace: the tail is not the head with the bit n turned over. The second result is the element to fill.
func (d *driver) hasSpace() (int, uint32) {
	if d.idxValid(d.prod) && d.idxValid(d.cons) {
		if d.prod != d.cons^d.n {
			return 1, d.prod & (d.n - 1)
		}
		return 0, d.prod & (d.n - 1)
	}
	return invalid, 0
}

// hasData: the tail is not the head. The second result is the element to read.
func (d *driver) hasData() (int, uint32) {
	if d.idxValid(d.prod) && d.idxValid(d.cons) {
		if d.prod != d.cons {
			return 1, d.cons & (d.n - 1)
		}
		return 0, d.cons & (d.n - 1)
	}
	return invalid, 0
}
