// SPDX-License-Identifier: Apache-2.0

package fuzz

import (
	"encoding/binary"

	"github.com/pvrdmad/pvrdmad/tests/inproc"
)

// script is an input, read from the front. What is missing at its end reads as 0.
type script struct{ b []byte }

func (s *script) done() bool { return len(s.b) == 0 }

func (s *script) bytes(n int) []byte {
	out := make([]byte, n)
	s.b = s.b[copy(out, s.b):]
	return out
}

func (s *script) u8() uint8   { return s.bytes(1)[0] }
func (s *script) u16() uint16 { return binary.LittleEndian.Uint16(s.bytes(2)) }
func (s *script) u32() uint32 { return binary.LittleEndian.Uint32(s.bytes(4)) }
func (s *script) u64() uint64 { return binary.LittleEndian.Uint64(s.bytes(8)) }

// below returns a number from 0 to n-1.
func (s *script) below(n int) int { return int(s.u8()) % n }

// pick returns one of some things.
func pick[T any](s *script, from []T) T { return from[s.below(len(from))] }

// nowhere are addresses at which guests have no memory, or not the one that is looked for.
var nowhere = []uint64{
	0, 1, 4096, 3 << 30, inproc.ROMAddr, inproc.ROMAddr + inproc.ROMSize, inproc.ROMAddr + inproc.ROMSize - 4096,
	1<<20 + memory/2, 1<<20 + memory/2 - 4096, 4<<30 - 4096, 4<<30 + memory/2, 1<<64 - 4096, 1<<64 - 1,
}

// number is a value of a field: small ones, the ends of the ranges, addresses, handles and keys are likelier than any.
func (w *world) number(s *script) uint64 {
	switch s.u8() % 14 {
	case 0:
		return uint64(s.u8())
	case 1:
		return uint64(s.u16())
	case 2:
		return uint64(s.u32())
	case 3:
		return s.u64()
	case 4:
		return 1<<32 - 1
	case 5:
		return 1<<64 - 1
	case 6:
		return 1 << (s.u8() % 64)
	case 7:
		return 1<<(s.u8()%64) - 1
	case 8:
		return pick(s, nowhere)
	case 9:
		return w.page(s) + uint64(s.u16()%4097)
	case 10, 11:
		return w.page(s)
	case 12:
		return uint64(pick(s, w.numbers))
	default:
		return 0
	}
}

// page is a page of the guest's memory.
func (w *world) page(s *script) uint64 { return pick(s, w.pages) }
