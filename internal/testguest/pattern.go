// SPDX-License-Identifier: Apache-2.0

package testguest

import (
	"encoding/binary"
	"fmt"
)

// Pattern is bytes that follow from a seed, an iteration and the offset, so that bytes of another place, of another
// message or of an earlier iteration are noticed.
type Pattern struct{ Seed, Iteration uint64 }

// word is the eight bytes at an offset that is a multiple of eight: splitmix64 of the three numbers.
func (p Pattern) word(off uint64) uint64 {
	x := p.Seed + p.Iteration*0x9e3779b97f4a7c15 + off*0xbf58476d1ce4e5b9
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// Fill writes the pattern from offset 0 on.
func (p Pattern) Fill(b []byte) {
	var w [8]byte
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(w[:], p.word(uint64(i)))
		copy(b[i:], w[:])
	}
}

// Check compares every byte with the pattern and names the first that differs.
func (p Pattern) Check(b []byte) error {
	var w [8]byte
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(w[:], p.word(uint64(i)))
		for j := 0; j < 8 && i+j < len(b); j++ {
			if b[i+j] != w[j] {
				return fmt.Errorf("byte %d of %d is %#02x, want %#02x (seed %d, iteration %d)", i+j, len(b), b[i+j], w[j],
					p.Seed, p.Iteration)
			}
		}
	}
	return nil
}
